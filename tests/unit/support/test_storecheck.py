"""The check that the kill tests rely on notices what it is there to notice."""

import struct
from pathlib import Path

import pytest

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.store.message_store import MessageStore
from tests.support.storecheck import StoreDamaged, check_store
from tests.support.stores import ManualClock, make_message, put, small_config


@pytest.fixture
def root(tmp_path: Path) -> Path:
    config = small_config(store_path_root_dir=str(tmp_path))
    store = MessageStore(config, PosixFiles(), ManualClock())
    store.load()
    put(store, *(make_message(b"body %d" % number) for number in range(30)))
    store.close()
    return tmp_path


def overwrite(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def first_file(folder: Path) -> Path:
    return sorted(folder.iterdir())[0]


def test_a_sound_store_is_returned(root: Path) -> None:
    assert len(check_store(root)["Topic", 0]) == 30


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        (struct.pack(">qiq", 0, 0, 0), "messages in the log"),
        (struct.pack(">qiq", 4, 99, 0), "first that differ"),
    ],
)
def test_a_queue_that_disagrees_is_reported(root: Path, unit: bytes, why: str) -> None:
    overwrite(first_file(root / "consumequeue" / "Topic" / "0"), 40, unit)
    with pytest.raises(StoreDamaged, match=why):
        check_store(root)


def test_a_queue_without_messages_in_the_log_is_reported(root: Path) -> None:
    other = root / "consumequeue" / "Other" / "0"
    other.mkdir(parents=True)
    (other / f"{0:020}").write_bytes(struct.pack(">qiq", 0, 100, 0))
    with pytest.raises(StoreDamaged, match="Other/0"):
        check_store(root)


def test_a_damaged_log_is_reported(root: Path) -> None:
    overwrite(first_file(root / "commitlog"), 4, b"\0\0\0\0")
    with pytest.raises(StoreDamaged, match="no record at byte 0"):
        check_store(root)
