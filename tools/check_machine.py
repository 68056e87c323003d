"""Names what this machine lacks for `make run` or `make test`, and what it is needed for."""

import re
import shutil
import subprocess
import sys


def missing(goal: str) -> list[str]:
    """One line for each thing that `goal` ("run" or "test") needs and does not find."""
    problems = []
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python runs this file to hear it
        found = ".".join(map(str, sys.version_info[:2]))
        problems.append(f"Python 3.11 or later runs the servers; this is {found} (PYTHON=... make)")
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


def java_version() -> int | None:
    """The major version of `java`; None where there is none."""
    if shutil.which("java") is None:
        return None
    output = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', output)
    return int(found.group(1)) if found else None


if __name__ == "__main__":
    problems = missing(sys.argv[1] if len(sys.argv) > 1 else "test")
    for problem in problems:
        print(f"missing - {problem}", file=sys.stderr)
    sys.exit(1 if problems else 0)
