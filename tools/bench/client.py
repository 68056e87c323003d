"""The load generators: stock's Java clients, each in one JVM that stays warm (`java/`,
`java-grpc/`)."""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.jars import compiled, java_command, stock_jars

_COMMON = Path(__file__).with_name("java-common")
_HEAP_MB = 1024
_CLIENT_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class LoadFailed(Exception):
    """The generator reported an error; the message is Java's."""


class Generator(NamedTuple):
    """A program that makes load: the folder with its sources, its main class, and the client that
    it is compiled against, as for `stock_jars`."""

    folder: str
    main: str
    profile: str | None = None


#: Classic clients, and stock's gRPC client 5.2.0.
CLASSIC = Generator("java", "Load")
GRPC = Generator("java-grpc", "GrpcLoad", "grpc-client")


def compile_generator(version: str, generator: Generator) -> str:
    """Compiles a generator; its class path."""
    jars = stock_jars(version, generator.profile)
    sources = Path(__file__).with_name(generator.folder)
    classes = compiled(f"bench-{generator.folder}", sources, jars, _COMMON)
    return f"{classes}:{jars}/*"


class LoadClient:
    """One JVM; `run` is one operation of its generator."""

    def __init__(self, version: str, home: Path, generator: Generator = CLASSIC) -> None:
        home.mkdir(parents=True, exist_ok=True)
        command = [word for word in java_command(_HEAP_MB) if word not in _CLIENT_FLAGS]
        command += ["-XX:+UseParallelGC", f"-Duser.home={home}", "-cp"]
        command += [compile_generator(version, generator), generator.main]
        self._log = (home / "load.log").open("ab")
        self._process = subprocess.Popen(
            command,
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
        # A generator that has died has nobody to read what was written last.
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class LoadClients:
    """The generators, each from when it is needed."""

    def __init__(self, version: str, home: Path) -> None:
        self._version = version
        self._home = home
        self._clients: dict[Generator, LoadClient] = {}

    def get(self, generator: Generator) -> LoadClient:
        """The JVM of a generator."""
        client = self._clients.get(generator)
        if client is None:
            home = self._home / generator.folder
            client = self._clients[generator] = LoadClient(self._version, home, generator)
        return client

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
