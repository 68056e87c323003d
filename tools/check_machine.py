"""Names what this machine lacks for `make run` or `make test`, and what it is needed for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

#: Older ones do not load the wheels of cryptography: they lack PyModule_FromDefAndSpec2.
LEAST_PYPY = (7, 3, 20)


def missing(goal: str) -> list[str]:
    """One line for each thing that `goal` ("run", "spark" or "test") needs and does not find."""
    problems = []
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python runs this file to hear it
        found = ".".join(map(str, sys.version_info[:2]))
        problems.append(f"Python 3.11 or later runs the servers; this is {found} (PYTHON=... make)")
    pypy = pypy_version()
    if pypy and pypy < LEAST_PYPY:
        problems.append(
            f"PyPy {dotted(LEAST_PYPY)} or later runs the servers, older ones do not load"
            f" cryptography; this is {dotted(pypy)}: take one of pypy.org's, or CPython"
        )
    if pypy and goal != "run":
        problems.append(
            "CPython: PyPy runs the servers only, since it has no grpcio, which the tests call, and"
            " no pyarrow, which Spark's workers need (PYTHON=... make)"
        )
    if goal == "test":
        java = java_version()
        if java is None:
            problems.append("java: a JDK 17 or later runs the stock jars that the tests talk to")
        elif java < 17:
            problems.append(f"java: the stock jars of the tests want a JDK 17, this is {java}")
        if shutil.which("javac") is None:
            problems.append("javac: a JDK (not only a JRE) compiles the tests' Java client")
        if shutil.which("mvn") is None:
            problems.append("mvn: Maven downloads the stock jars that the tests talk to")
    return problems


def remarks() -> list[str]:
    """One line for each thing that is left out on this machine, or that pip will ask for."""
    told = []
    if pypy_version() and not can_compile():
        told.append(
            "lz4 and zstandard are left out, which PyPy has to compile: a C compiler and, where"
            " PyPy is a distribution's, its headers (pypy3-dev) would be needed. Proxies, clients"
            " and rmqadmin cannot unpack bodies of these kinds"
        )
    if pypy_version() and pypy_version() >= (8,) and shutil.which("cargo") is None:
        told.append(
            "cryptography may have no wheel for this PyPy; pip compiles it then and asks for Rust"
            " (cargo), a C compiler and OpenSSL's headers (libssl-dev)"
        )
    return told


def extras() -> str:
    """What stands behind the package's name where it is installed to run servers, such as
    "[compression]"."""
    return "[compression]" if pypy_version() and can_compile() else ""


def pypy_version() -> tuple[int, ...]:
    """PyPy's own version, such as (7, 3, 20); nothing on CPython."""
    return tuple(getattr(sys, "pypy_version_info", ())[:3])


def dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def can_compile() -> bool:
    """Whether there are a C compiler and the headers of this Python."""
    return (
        any(map(shutil.which, ("cc", "gcc", "clang")))
        and (Path(sysconfig.get_path("include")) / "Python.h").exists()
    )


def java_version() -> int | None:
    """The major version of `java`; None where there is none."""
    if shutil.which("java") is None:
        return None
    output = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', output)
    return int(found.group(1)) if found else None


if __name__ == "__main__":
    goal = sys.argv[1] if len(sys.argv) > 1 else "test"
    if goal == "extras":
        print(extras())
        sys.exit()
    for remark in remarks():
        print(f"note - {remark}", file=sys.stderr)
    problems = missing(goal)
    for problem in problems:
        print(f"missing - {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)
