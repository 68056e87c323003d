"""Programs that fetch something from a registry; one that refused or broke off is asked again."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

#: How often it is asked, and how many seconds it has each time.
_ATTEMPTS = 4
_LIMIT = 600.0
#: What failed is asked for again after that.
_FAILED_SECONDS = 3600.0


class DownloadFailed(Exception):
    """What is fetched cannot be had: the message says which, and what the program said."""


def fetch(
    what: str,
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    attempts: int = _ATTEMPTS,
    limit: float = _LIMIT,
) -> None:
    """Runs a command that fetches `what`, up to `attempts` times with `limit` seconds each; raises
    `DownloadFailed`."""
    for attempt in range(1, attempts + 1):
        output = _failure(command, cwd, environment, limit)
        if output is None:
            return
        failed = f"{what} did not come, attempt {attempt} of {attempts}:\n{output}"
        print(failed, file=sys.stderr)
        if attempt < attempts:
            # A registry that refused a moment ago wants a pause, and there is no event to await.
            time.sleep(5 * 2**attempt)
    raise DownloadFailed(failed)


def check_out(what: str, repository: str, commit: str, tree: Path) -> None:
    """Has the files of one commit of a Git repository, an address or a directory, in `tree`; raises
    `DownloadFailed`."""
    if not (tree / ".git").exists():
        subprocess.run(["git", "init", "-q", str(tree)], check=True)
    git = ["git", "-C", str(tree)]
    fetch(what, [*git, "fetch", "-q", "--depth", "1", repository, commit])
    subprocess.run([*git, "checkout", "-q", "-f", commit], check=True)


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Keeps other processes of the test run out while one downloads or compiles."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_once(home: Path, made_of: str, make: Callable[[], None]) -> None:
    """Calls `make` unless it has made what is under `home` of the same; what failed is not tried
    again for an hour."""
    done, failed = home / "made-of", home / "failed"
    with only_one(home):
        if done.exists() and done.read_text() == made_of:
            return
        if failed.exists() and time.time() - failed.stat().st_mtime < _FAILED_SECONDS:
            raise DownloadFailed(failed.read_text())
        try:
            make()
        except DownloadFailed as error:
            failed.write_text(str(error))
            raise
        done.write_text(made_of)


def _failure(
    command: Sequence[str],
    cwd: Path | None,
    environment: Mapping[str, str] | None,
    limit: float,
) -> str | None:
    """What the command says of its failure; None where all went well."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except OSError as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return f"it took more than {limit:g} s"
    return done.stdout + done.stderr if done.returncode else None
