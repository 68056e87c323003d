"""Archives of the classes that stock's programs load, by which a JVM starts with a third less CPU.

`python -m tests.support.class_archives` makes them from what a short life of each program loads. A
JVM without one starts as ever, so nothing depends on them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.downloads import only_one
from tests.support.jars import (
    STOCK_VERSIONS,
    archive_of,
    java_command,
    stock_jars,
)
from tests.support.java_client import JavaClients
from tests.support.processes import ServerFailed
from tests.support.stock import run_mqadmin
from tests.support.wait import PeerFailed

_TOPIC = "loaded"
_DUMP_LIMIT = 180.0
_HEAP_MB = 256


def main() -> int:
    """Makes the archives that are missing or older than their jars."""
    for version in STOCK_VERSIONS:
        _make(version)
    return 0


def _make(version: str) -> None:
    jars = stock_jars(version)
    archive = archive_of(jars)
    with only_one(archive.parent):
        if (
            archive.exists()
            and archive.stat().st_mtime >= (jars.parent / "complete").stat().st_mtime
        ):
            return
        archive.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as home:
            try:
                _dump(jars, _loaded_classes(version, Path(home)), archive)
            except (ServerFailed, PeerFailed, TimeoutError, subprocess.SubprocessError) as error:
                print(f"no archive of the classes of {version}: {error}", file=sys.stderr)


def _loaded_classes(version: str, home: Path) -> list[str]:
    """Runs the programs; returns the lines of the JVM's lists of classes, each once."""
    lists = home / "lists"
    lists.mkdir()
    with ExitStack() as stack:
        cluster = Cluster.of(home, name_servers=[version], brokers=[version])
        for server in (*cluster.name_servers, *cluster.brokers):
            stack.callback(server.close)
            with _listing(lists / server.name):
                server.start()
        with _listing(lists / "client"):
            java = JavaClients(version, home / "client")
        stack.callback(java.close)
        _use(java, cluster)
        with _listing(lists / "mqadmin"):
            run_mqadmin(version, home, "clusterList", "-n", cluster.namesrv)
    lines = (line for each in sorted(lists.iterdir()) for line in each.read_text().splitlines())
    return list(dict.fromkeys(lines))


def _use(java: JavaClients, cluster: Cluster) -> None:
    """Sends a message and receives it."""
    cluster.create_topic(java, _TOPIC)
    with java.producer(cluster.namesrv) as producer:
        producer.send({"topic": _TOPIC, "body": "one"})
    with java.consumer(cluster.namesrv, "group", {_TOPIC: "*"}) as consumer:
        consumer.received(1)


@contextmanager
def _listing(path: Path) -> Iterator[None]:
    """JVMs that start meanwhile write the names of the classes that they load."""
    os.environ["JDK_JAVA_OPTIONS"] = f"-XX:DumpLoadedClassList={path}"
    try:
        yield
    finally:
        del os.environ["JDK_JAVA_OPTIONS"]


def _dump(jars: Path, classes: list[str], archive: Path) -> None:
    names = archive.with_suffix(".classes")
    names.write_text("\n".join(classes) + "\n")
    made = archive.with_suffix(".new")
    command = [word for word in java_command(_HEAP_MB) if not word.startswith("-Xshare")]
    command += [
        "-Xshare:dump",
        f"-XX:SharedClassListFile={names}",
        f"-XX:SharedArchiveFile={made}",
        "-cp",
        f"{jars}/*",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=_DUMP_LIMIT)
    made.rename(archive)


if __name__ == "__main__":
    sys.exit(main())
