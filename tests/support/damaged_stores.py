"""A store on the disk with something of each kind, and damages of it, each with what the check
calls it."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.formats.checkpoint import CHECKPOINT
from rocketmq_tw.formats.queue import UNIT
from rocketmq_tw.formats.record import FIXED, PLACE_AT
from rocketmq_tw.formats.timer import LOG_ENTRY
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.storecheck.layout import Sizes
from tests.support.stores import START_MS, ManualClock, make_message, put, small_config

#: The index of `small_config`, whose files do not show it.
SIZES = Sizes(queue=200, index_slots=16, index_entries=40)
MESSAGES = 100
FIRST, SECOND = f"{0:020}", f"{4096:020}"
QUEUE = f"consumequeue/Topic/0/{0:020}"


def make_store(root: Path, queue_of: Callable[[int], int] = lambda number: number % 3) -> None:
    """Makes a store of some log files, three queues and several index files, that was closed.
    `queue_of` tells the queue of a message."""
    store = open_again(root)
    put(
        store,
        *(
            make_message(
                b"body %d" % number, queue_id=queue_of(number), tags="a", keys=f"k{number} both"
            )
            for number in range(MESSAGES)
        ),
    )
    store.close()
    config = root / "config"
    config.mkdir()
    topics = {"topicConfigTable": {"Topic": {"topicName": "Topic"}}}
    (config / "topics.json").write_text(json.dumps(topics))
    (config / "consumerOffset.json").write_text('{"offsetTable":{"Topic@group":{0:7,1:20}}}')


def open_again(root: Path) -> MessageStore:
    """Loads the store as a broker would."""
    config = small_config(store_path_root_dir=str(root), max_message_size=1024)
    store = MessageStore(config, PosixFiles(), ManualClock(START_MS + 1000))
    store.load()
    return store


def change(path: Path, at: int, data: bytes) -> None:
    """Overwrites bytes of a file, from its end where `at` is negative."""
    with path.open("r+b") as file:
        file.seek(at, 2 if at < 0 else 0)
        file.write(data)


def log_end(root: Path) -> int:
    """Where the log ends."""
    return int(CHECKPOINT.parse((root / "checkpoint").read_bytes()).ours.safe_offset)


def _log_file(root: Path, offset: int) -> tuple[Path, int]:
    start = offset - offset % 4096
    return root / "commitlog" / f"{start:020}", offset - start


def _tear_end(root: Path) -> None:
    path, at = _log_file(root, log_end(root))
    change(path, at, b"\0\0\0\x65\xda\xa3\x20\xa7 half of a record")


def _spoil_body(root: Path) -> None:
    change(root / "commitlog" / SECOND, 90, b"?")


def _spoil_magic(root: Path) -> None:
    change(root / "commitlog" / SECOND, 4, b"\0\0\0\0")


def _spoil_topic(root: Path) -> None:
    path = root / "commitlog" / SECOND
    change(path, path.read_bytes().index(b"Topic"), b"../..")


def record_of(root: Path, number: int) -> tuple[Path, int]:
    """Returns the file of the record of a message, and where it begins there."""
    body = b"body %d" % number
    for path in sorted((root / "commitlog").iterdir()):
        at = path.read_bytes().find(body + b"\x05Topic")
        if at >= 0:
            return path, at - FIXED[0].sizeof()
    raise AssertionError(f"there is no message {number}")


def _spoil_place(root: Path, at: int, data: bytes) -> None:
    path, start = record_of(root, 50)
    change(path, start + PLACE_AT + at, data)


def _lose_log_file(root: Path) -> None:
    (root / "commitlog" / SECOND).unlink()


def _lose_end(root: Path) -> None:
    names = sorted((root / "commitlog").iterdir())
    names[-1].write_bytes(bytes(4096))


def _index_file(root: Path) -> Path:
    return min((root / "index").iterdir())


def _spoil_slot(root: Path) -> None:
    path = _index_file(root)
    data = path.read_bytes()
    slot = next(slot for slot in range(16) if any(data[40 + 4 * slot : 44 + 4 * slot]))
    change(path, 40 + 4 * slot, b"\0\0\0\0")


def _spoil_epochs(root: Path) -> None:
    (root / "epochFileCheckpoint.bak").write_text("2\n0\n1-0\n2-4096\n")
    (root / "epochFileCheckpoint").write_text("3\n17\n1-0\n2-4096\n3-5000\n")


def _spoil_offsets(root: Path) -> None:
    offsets = root / "config/consumerOffset.json"
    offsets.rename(f"{offsets}.bak")
    offsets.write_text('{"offsetTable":')


def _add_strange_queue(root: Path) -> None:
    queue = root / "consumequeue/Other/0"
    queue.mkdir(parents=True)
    (queue / FIRST).write_bytes(_unit(0, 9, 97).ljust(200, b"\0"))


def _add_timer_log(root: Path) -> None:
    entry = LOG_ENTRY.build(
        {
            "size": LOG_ENTRY.sizeof(),
            "previous": -1,
            "magic": 1,
            "wait_start": START_MS,
            "wait_ms": 5,
            "physical_offset": 3,
            "record_size": 101,
            "topic_hash": 0,
            "reserved": 0,
        }
    )
    (root / "timerlog").mkdir()
    (root / "timerlog" / FIRST).write_bytes(entry.ljust(4096, b"\0"))


def _unit(position: int, size: int, code: int) -> bytes:
    built: bytes = UNIT.build({"position": position, "size": size, "tags_code": code})
    return built


class Damage(NamedTuple):
    """`kinds` are found in the store after `do`; `repairable`: no whole record follows it in the
    log, so that nothing else is lost by a repair."""

    name: str
    do: Callable[[Path], object]
    kinds: set[str]
    repairable: bool = True


DAMAGES = [
    Damage("a torn end of the log", _tear_end, {"log-torn"}),
    Damage("a body that changed", _spoil_body, {"log-damage"}, False),
    Damage("a magic that changed", _spoil_magic, {"log-damage"}, False),
    Damage("a log file that is lost", _lose_log_file, {"log-damage", "file-missing"}, False),
    Damage("an end that is lost", _lose_end, {"checkpoint-ahead"}, False),
    Damage(
        "a last log file that is lost",
        lambda root: max((root / "commitlog").iterdir()).unlink(),
        {"checkpoint-ahead"},
        False,
    ),
    Damage(
        "a unit that leads elsewhere",
        lambda root: change(root / QUEUE, 40, _unit(4, 99, 0)),
        {"unit-wrong"},
    ),
    Damage(
        "a unit that is zeros", lambda root: change(root / QUEUE, 40, bytes(20)), {"unit-missing"}
    ),
    Damage("a queue offset that changed", lambda root: _spoil_place(root, 15, b"\xef"),
           {"record-place"}),
    Damage("a first queue offset that changed", lambda root: change(
        root / "commitlog" / FIRST, PLACE_AT + 15, b"\xef"), {"record-place"}),
    Damage("a queue that changed", lambda root: _spoil_place(root, 3, b"\xff"), {"record-place"}),
    Damage("a queue that cannot be", lambda root: _spoil_place(root, 0, b"\xff"),
           {"record-place"}),
    Damage("a queue that became another one", lambda root: _spoil_place(root, 3, b"\x00"),
           {"record-place"}),
    Damage("a code that is not its tag's", lambda root: change(root / QUEUE, 59, b"?"),
           {"unit-code"}),
    Damage(
        "a unit behind the end",
        lambda root: change(
            root / "consumequeue/Topic/0" / f"{600:020}", 80, _unit(log_end(root), 101, 97)
        ),
        {"unit-astray"},
    ),
    Damage(
        "a queue of messages that are not there",
        _add_strange_queue,
        {"unit-astray"},
    ),
    Damage(
        "a queue that is lost",
        lambda root: shutil.rmtree(root / "consumequeue/Topic/1"),
        {"unit-missing"},
    ),
    Damage(
        "a queue file of another size",
        lambda root: (root / QUEUE).write_bytes((root / QUEUE).read_bytes()[:150]),
        {"file-size"},
    ),
    Damage("an index that is lost", lambda root: shutil.rmtree(root / "index"), {"index-gone"}),
    Damage(
        "an index file that is lost", lambda root: max((root / "index").iterdir()).unlink(),
        {"index-missing"},
    ),
    Damage(
        "an entry of the index that leads elsewhere",
        lambda root: change(_index_file(root), 40 + 64 + 20 + 4, struct.pack(">q", 1)),
        {"index-astray"},
    ),
    Damage("a checkpoint with a negative time",
           lambda root: change(root / "checkpoint", 8, b"\xff" * 8), {"checkpoint"}),
    Damage("a checkpoint with a time that cannot be",
           lambda root: change(root / "checkpoint", 16, b"\x7f"), {"checkpoint"}),
    Damage("a checkpoint with a log offset that cannot be",
           lambda root: change(root / "checkpoint", 32, b"\x80"), {"checkpoint"}),
    Damage("a checkpoint of any bytes", lambda root: (root / "checkpoint").write_bytes(
        Random(7).randbytes(4096)), {"checkpoint"}),
    Damage("a slot that lost its entries", _spoil_slot, {"index-slot"}),
    Damage(
        "an index file of another size", lambda root: _index_file(root).write_bytes(b"short"),
        {"index-size"},
    ),
    Damage(
        "a group ahead of its queue",
        lambda root: (root / "config/consumerOffset.json").write_text(
            '{"offsetTable":{"Topic@group":{0:35}}}'
        ),
        {"offset-ahead"},
    ),
    Damage(
        "an epoch behind the log",
        lambda root: (root / "epochFileCheckpoint").write_text("2\n0\n1-0\n2-999999\n"),
        {"epochs"},
    ),
    Damage("epochs that are damaged, with a copy", _spoil_epochs, {"epochs"}),
    Damage("offsets that are damaged, with a copy", _spoil_offsets, {"table"}),
    Damage(
        "topics that are missing, with a copy",
        lambda root: (root / "config/topics.json").rename(root / "config/topics.json.bak"),
        {"table"},
    ),
]  # fmt: skip


#: Damages of what a repair leaves to the broker or the operator.
OTHER_DAMAGES = [
    Damage(
        "delays ahead of their queue",
        lambda root: (
            shutil.copytree(root / "consumequeue/Topic", root / "consumequeue/SCHEDULE_TOPIC_XXXX"),
            (root / "config/delayOffset.json").write_text('{"offsetTable":{1:99}}'),
        ),
        {"offset-ahead", "unit-astray"},
    ),
    Damage(
        "an expired queue without its file",
        lambda root: (root / "config/consumerOffset.json").write_text(
            '{"offsetTable":{"Topic@group":{5:20}}}'
        ),
        {"queue-gone"},
    ),
    Damage(
        "an expired queue of delays without its file",
        lambda root: (root / "config/delayOffset.json").write_text('{"offsetTable":{1:99}}'),
        {"queue-gone"},
    ),
    Damage(
        "topics that cannot be read",
        lambda root: (root / "config/topics.json").write_text('{"topicConfigTable":'),
        {"table"},
    ),
    Damage(
        "a topic that is not known",
        lambda root: (root / "config/topics.json").write_text('{"topicConfigTable":{}}'),
        {"topic-unknown"},
    ),
    Damage("a record with another topic", _spoil_topic, {"queue-name"}),
    Damage(
        "epochs that are damaged",
        lambda root: (root / "epochFileCheckpoint").write_text("1\n17\n1-0\n"),
        {"epochs"},
    ),
    Damage(
        "a timer log that leads to no record",
        _add_timer_log,
        {"timer-astray", "wheel"},
    ),
    Damage(
        "a wheel of another size",
        lambda root: (root / "timerwheel").write_bytes(bytes(64)),
        {"wheel"},
    ),
]
