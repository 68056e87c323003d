"""The stock jars, downloaded by Maven once and kept under `build/`.

`python -m tests.support.jars` does that for all tests at once.
"""

import subprocess
from pathlib import Path

from tests.support.downloads import fetch, only_one

#: The versions that we are compared with.
STOCK_VERSIONS = ("4.9.7", "5.3.3")
#: The last one in whose controller mode brokers have no lasting ids: what is upgraded from.
ADDRESS_IDS_VERSION = "5.1.0"

PROJECT = Path(__file__).resolve().parents[2]
BUILD = PROJECT / "build"
POM = PROJECT / "tests" / "interop" / "pom.xml"
DRIVER_SOURCES = PROJECT / "tests" / "interop" / "java"
#: What only clients of 5.x can do.
NEWER_SOURCES = [PROJECT / "tests" / "interop" / name for name in ("java-pop", "java-dashboard")]

_COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

#: Netty, RocketMQ's buffers and RocksDB reach into the JDK; a JDK 17 must be told to let them.
_OPEN_PACKAGES = (
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
)


#: The option that names an archive of classes.
SHARED_ARCHIVE = "-XX:SharedArchiveFile="


class DriverRefused(Exception):
    """javac refused a program of the tests."""


def java_command(heap_mb: int, tls_mode: str = "disabled") -> list[str]:
    """`java` with a small heap and the flags that make it start fast.

    `tls_mode` is `tls.server.mode` of stock's servers: any but "disabled", their default too, makes
    an RSA key for each port, and that takes two thirds of the CPU of a start.
    """
    command = [
        "java",
        f"-Xms{heap_mb}m",
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        "-Xshare:auto",
        # What the JVM itself has to say must not mix with a program's answers.
        "-XX:+DisplayVMOutputToStderr",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dtls.server.mode={tls_mode}",
    ]
    for package in _OPEN_PACKAGES:
        command += [f"--add-opens={package}=ALL-UNNAMED", f"--add-exports={package}=ALL-UNNAMED"]
    return command


def archive_of(jars: Path) -> Path:
    """The archive of the classes that programs of a directory of jars load, which need not be
    there: see `tests.support.class_archives`."""
    return jars.parent / "archive" / "classes.jsa"


def class_path(jars: Path, *more: Path) -> list[str]:
    """The options of a JVM that give it a directory of jars, then `more`, directories of classes or
    jars. An archive of classes counts only where the class path begins as the one that it was made
    with."""
    archive = archive_of(jars)
    shared = [f"{SHARED_ARCHIVE}{archive}"] if archive.exists() else []
    return [*shared, "-cp", ":".join([f"{jars}/*", *map(str, more)])]


def stock_jars(version: str, profile: str | None = None) -> Path:
    """The directory with the jars of `version`; the first caller downloads them.

    `profile` is one of the pom's, for artifacts beyond name server, broker, client and tools.
    """
    home = BUILD / "stock" / (version if profile is None else f"{version}-{profile}")
    jars = home / "lib"
    with only_one(home):
        done = home / "complete"
        if not done.exists() or done.stat().st_mtime < POM.stat().st_mtime:
            _download(version, profile, jars)
            done.touch()
    return jars


def driver_class_path(version: str) -> list[str]:
    """The class path of the tests' Java driver, compiled against the clients of `version`, as
    options of a JVM."""
    jars = stock_jars(version)
    more = [] if version.startswith("4.") else NEWER_SOURCES
    return class_path(jars, compiled(version, DRIVER_SOURCES, jars, *more))


def compiled(name: str, sources: Path, jars: Path, *more: Path) -> Path:
    """The directory with the classes of the .java files in `sources` and in `more`, with `jars`, a
    directory of them or one file, as their class path; made where one is newer."""
    home = BUILD / "driver" / name
    classes = home / "classes"
    with only_one(home):
        done = home / "complete"
        files = [file for folder in (sources, *more) for file in sorted(folder.glob("*.java"))]
        if not done.exists() or done.stat().st_mtime < max(each.stat().st_mtime for each in files):
            class_path = f"{jars}/*" if jars.is_dir() else str(jars)
            command = ["javac", "-nowarn", "-cp", class_path, "-d", str(classes)]
            made = subprocess.run([*command, *map(str, files)], capture_output=True, text=True)
            if made.returncode:
                raise DriverRefused(f"{sources.name} does not compile:\n{made.stderr}")
            done.touch()
    return classes


def _download(version: str, profile: str | None, jars: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(POM), f"-Drocketmq.version={version}"]
    if profile is not None:
        command += ["-P", profile]
    command += [_COPY_DEPENDENCIES, f"-DoutputDirectory={jars}"]
    fetch(f"jars of RocketMQ {version}", command)


if __name__ == "__main__":
    for each in (*STOCK_VERSIONS, ADDRESS_IDS_VERSION):
        stock_jars(each)
    # Of containers.
    stock_jars(STOCK_VERSIONS[-1], "controller")
