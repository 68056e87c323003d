"""Generates the Python modules of the .proto files, and tells whether they are current.

`make proto` generates them with grpcio-tools of one version, in a venv of its own: what it writes
works with every `protobuf` that setup.cfg allows. `make lint` compares hashes, which needs nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

#: With protoc 25.1, whose modules protobuf 4.25 and later take.
GENERATOR = "grpcio-tools==1.62.3"

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "rocketmq_tw" / "proxy" / "proto"
#: What belongs together: the hash and name of each .proto file, and of what was generated from it.
HASHES = FOLDER / "hashes.txt"
VENV = ROOT / "build" / "proto-venv"


def generate(python: Path) -> None:
    """Generates all modules with the grpcio-tools of `python`, and notes their hashes."""
    sources = [str(path.relative_to(ROOT)) for path in sorted(FOLDER.glob("*.proto"))]
    protoc = [str(python), "-m", "grpc_tools.protoc", "--proto_path=."]
    subprocess.run([*protoc, "--python_out=.", "--pyi_out=.", *sources], cwd=ROOT, check=True)
    HASHES.write_text(current_hashes())


def own_python() -> Path:
    """Returns the interpreter of a venv with the generator, made where there is none."""
    python = VENV / "bin" / "python"
    if not python.exists():
        venv.create(VENV, with_pip=True)
        # setuptools: for pkg_resources, which the generator imports.
        packages = [GENERATOR, "setuptools<81"]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
    return python


def current_hashes() -> str:
    """Returns a line for each .proto file and each generated module, as `HASHES` has them."""
    files = [*FOLDER.glob("*.proto"), *FOLDER.glob("*_pb2.py"), *FOLDER.glob("*_pb2.pyi")]
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}" for file in files]
    return "".join(f"{line}\n" for line in sorted(lines, key=lambda line: line.split()[1]))


def differences() -> list[str]:
    """Returns the names of files that are others than when they were generated."""
    noted = HASHES.read_text().splitlines() if HASHES.exists() else []
    changed = set(noted) ^ set(current_hashes().splitlines())
    return sorted({line.split()[1] for line in changed})


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell whether all is current")
    parser.add_argument("--python", type=Path, help="an interpreter that has grpcio-tools")
    options = parser.parse_args()
    if not options.check:
        generate(options.python or own_python())
    changed = differences()
    if changed:
        print(f"not what was generated: {', '.join(changed)}; run make proto", file=sys.stderr)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
