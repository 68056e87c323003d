"""What a server that cannot start says, and what it tells to change."""

import errno
import os
import socket
from pathlib import Path

import pytest
from twisted.internet.error import CannotListenError

from rocketmq_tw.services.failed_start import KeysToChange, describe_failed_start

KEYS = KeysToChange(
    "haListenPort", "bindAddress", {"root": "/a/store", "log": "/a/store/log", "unset": ""}
)


def system_error(code: int, path: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), path)


def test_a_taken_port_and_an_address_that_is_not_ours_are_told_apart() -> None:
    taken = CannotListenError("1.2.3.4", 80, system_error(errno.EADDRINUSE))
    assert describe_failed_start(taken, KEYS) == (
        "1.2.3.4:80 cannot be listened on (Address already in use): change haListenPort"
    )
    for error in (
        system_error(errno.EADDRNOTAVAIL),
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    ):
        elsewhere = CannotListenError("1.2.3.400", 80, error)
        assert describe_failed_start(elsewhere, KEYS).endswith(": change bindAddress")


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/a/store/config", "root"),
        ("/a/store/log/00", "log"),
        ("/a", "log"),
        ("/a/storehouse", None),
        ("/b", None),
    ],
)
def test_a_path_that_cannot_be_used_is_named_with_its_key(path: str, key: str | None) -> None:
    reason = describe_failed_start(system_error(errno.EACCES, path), KEYS)
    assert reason == f"{path}: Permission denied" + (f": change {key}" if key else "")


def test_a_directory_in_place_of_a_file_of_the_store_is_to_be_moved_away() -> None:
    reason = describe_failed_start(system_error(errno.EISDIR, "/a/store/checkpoint"), KEYS)
    assert reason == (
        "/a/store/checkpoint: Is a directory: a file belongs there, move the directory away or"
        " change root"
    )
    # What the user named himself is the user's to change.
    reason = describe_failed_start(system_error(errno.EISDIR, "/a/store"), KEYS)
    assert reason == "/a/store: Is a directory: change log"


def test_another_path_is_no_help_where_the_disk_is_full() -> None:
    reason = describe_failed_start(system_error(errno.ENOSPC, "/a/store/log/00"), KEYS)
    assert reason == "/a/store/log/00: No space left on device"


@pytest.mark.parametrize("code", [errno.ENOTDIR, errno.EEXIST])
def test_what_is_in_place_of_a_directory_of_the_store_is_to_be_moved_away(
    code: int, tmp_path: Path
) -> None:
    path = f"{tmp_path}/deletedqueues/1"
    keys = KeysToChange(paths={"root": str(tmp_path), "log": f"{tmp_path}/file/store"})
    reason = describe_failed_start(system_error(code, path), keys)
    assert reason == (
        f"{path}: {os.strerror(code)}: a directory belongs there, move away what is in its place"
        " or change root"
    )
    # A place below a file is the user's to change.
    path = f"{tmp_path}/file/store/1"
    reason = describe_failed_start(system_error(code, path), keys)
    assert reason == f"{path}: {os.strerror(code)}: change log"
