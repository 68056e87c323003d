"""A store as a large broker has it: its log in sparse files, a consume queue for each queue.

Every record is a real one, and each file of the log but the last ends with a blank behind a few
of them, so that what goes through the log goes through few records and all files.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.formats.record import BLANK_MAGIC
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.store.checkpoint import Checkpoint, write_checkpoint
from rocketmq_tw.store.queue_units import UNIT

LOG_FILE = 1 << 30
QUEUE_FILE = 300_000 * 20
#: Hours; the messages of the oldest files of the log are past it, where there are any.
KEPT_HOURS = 72
_BLANK = struct.Struct(">ii")
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Scale:
    """How much there is. Each queue has `messages` messages, and each group has an offset in each
    queue of `topics / groups` topics."""

    queues: int = 100_000
    topics: int = 5_000
    connections: int = 10_000
    groups: int = 1_000
    log_files: int = 200
    #: These of them are past their time.
    old_files: int = 10
    messages: int = 2
    #: Of a name server; each of them has all topics.
    brokers: int = 40

    @property
    def queues_each(self) -> int:
        """Queues of a topic."""
        return max(self.queues // self.topics, 1)

    def topic_names(self) -> list[str]:
        return [f"big-topic-{number:05}" for number in range(self.topics)]

    def group_names(self) -> list[str]:
        return [f"big-group-{number:05}" for number in range(self.groups)]


def make_store(root: Path, scale: Scale, queue_file: int = QUEUE_FILE) -> None:
    """Makes the store, as a clean stop left it, with topics, groups and consumer offsets."""
    log = root / "commitlog"
    log.mkdir(parents=True)
    units: dict[tuple[str, int], list[bytes]] = {}
    now = int(time.time() * 1000)
    records = _records(scale)
    total = scale.queues_each * scale.topics * scale.messages
    end = timestamp = 0
    for number in range(scale.log_files):
        is_last = number == scale.log_files - 1
        age = (KEPT_HOURS + 1) * _HOUR_MS if number <= scale.old_files else 60_000
        start = position = number * LOG_FILE
        data = bytearray()
        for _ in range(total // scale.log_files + (total % scale.log_files if is_last else 0)):
            message = next(records)
            message.physical_offset = position
            message.store_timestamp = message.born_timestamp = timestamp = now - age
            record = encode_record(message)
            data += record
            unit = UNIT.pack(position, len(record), 0)
            units.setdefault((message.topic, message.queue_id), []).append(unit)
            position += len(record)
        end = position
        if not is_last:
            data += _BLANK.pack(start + LOG_FILE - position, BLANK_MAGIC)
        path = log / f"{start:020}"
        _write_sparse(path, bytes(data), LOG_FILE)
        os.utime(path, (timestamp / 1000, timestamp / 1000))
    for (topic, queue_id), found in units.items():
        directory = root / "consumequeue" / topic / str(queue_id)
        directory.mkdir(parents=True)
        _write_sparse(directory / f"{0:020}", b"".join(found), queue_file)
    checkpoint = Checkpoint(
        physic_msg_timestamp=timestamp,
        logics_msg_timestamp=timestamp,
        confirm_phy_offset=end,
        safe_offset=end,
        queues=len(units),
        units=total,
    )
    write_checkpoint(PosixFiles(), str(root / "checkpoint"), checkpoint)
    _write_tables(root / "config", scale)


def _records(scale: Scale) -> Iterator[StoredMessage]:
    """The messages in the order of the log: once around all queues, then again."""
    for offset in range(scale.messages):
        for topic in scale.topic_names():
            for queue_id in range(scale.queues_each):
                yield StoredMessage(
                    topic=topic, queue_id=queue_id, body=b"x" * 128, queue_offset=offset
                )


def _write_sparse(path: Path, data: bytes, size: int) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size)


_VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}


def _topics(scale: Scale) -> dict[str, object]:
    table = {
        name: {
            "attributes": {},
            "order": False,
            "perm": 6,
            "readQueueNums": scale.queues_each,
            "topicFilterType": "SINGLE_TAG",
            "topicName": name,
            "topicSysFlag": 0,
            "writeQueueNums": scale.queues_each,
        }
        for name in scale.topic_names()
    }
    return {"dataVersion": _VERSION, "topicConfigTable": table}


def registration(scale: Scale) -> bytes:
    """The body with which a broker registers all topics."""
    table = {"topicConfigSerializeWrapper": _topics(scale), "filterServerList": []}
    return json.dumps(table).encode()


def _write_tables(config: Path, scale: Scale) -> None:
    config.mkdir()
    groups = {name: {"groupName": name} for name in scale.group_names()}
    offsets = {
        f"{topic}@big-group-{number % scale.groups:05}": {
            str(queue_id): 1 for queue_id in range(scale.queues_each)
        }
        for number, topic in enumerate(scale.topic_names())
    }
    for name, table in (
        ("topics", _topics(scale)),
        ("subscriptionGroup", {"dataVersion": _VERSION, "subscriptionGroupTable": groups}),
        ("consumerOffset", {"dataVersion": _VERSION, "offsetTable": offsets}),
    ):
        (config / f"{name}.json").write_text(json.dumps(table))
