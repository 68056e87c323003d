"""The load generator: stock's Java client in one JVM that stays warm (`java/`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.jars import BUILD, DriverRefused, java_command, stock_jars

_SOURCES = Path(__file__).with_name("java")
_HEAP_MB = 1024
_CLIENT_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class LoadFailed(Exception):
    """The generator reported an error; the message is Java's."""


def compile_generator(version: str) -> str:
    """Compiles the generator against the client of `version`; its class path."""
    jars = stock_jars(version)
    classes = BUILD / "bench" / "classes"
    sources = sorted(_SOURCES.glob("*.java"))
    newest = max(path.stat().st_mtime for path in sources)
    done = classes / "complete"
    if not done.exists() or done.stat().st_mtime < newest:
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-Xlint:none", "-cp", f"{jars}/*", "-d", str(classes)]
        compiled = subprocess.run(
            [*command, *map(str, sources)], capture_output=True, text=True, check=False
        )
        if compiled.returncode:
            raise DriverRefused(f"the load generator does not compile:\n{compiled.stderr}")
        done.touch()
    return f"{classes}:{jars}/*"


class LoadClient:
    """One JVM; `run` is one operation of `java/Load.java`."""

    def __init__(self, version: str, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        command = [word for word in java_command(_HEAP_MB) if word not in _CLIENT_FLAGS]
        command += ["-XX:+UseParallelGC", f"-Duser.home={home}", "-cp", compile_generator(version)]
        self._log = (home / "load.log").open("ab")
        self._process = subprocess.Popen(
            [*command, "Load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, operation: str, **arguments: object) -> dict[str, Any]:
        """The operation's result: count, failed, seconds, and percentiles in microseconds."""
        words = [operation, *(f"{key}={value}" for key, value in arguments.items())]
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(f"the load generator ended; see {self._log.name}")
        result: dict[str, Any] = json.loads(line)
        if "error" in result:
            raise LoadFailed(f"{' '.join(words)}: {result['error']}; see {self._log.name}")
        return result

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
