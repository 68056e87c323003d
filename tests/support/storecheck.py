"""Reads a store's files as stock writes them, independently of our own store.

Whatever is acknowledged must lie in the commit log, and the consume queues must say of the log
what is in it (docs/formats/commitlog.md, docs/formats/consumequeue.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from struct import Struct
from typing import NamedTuple

MESSAGE_MAGIC = 0xDAA320A7
MESSAGE_MAGIC_V2 = 0xDAA320AB
BLANK_MAGIC = 0xCBD43194

_BORN_IPV6 = 1 << 4
_STORE_IPV6 = 1 << 5
_TRANSACTION_MASK = 3 << 2
_COMMITTED = 2 << 2
_QUEUE_UNIT = Struct(">qiq")
_HEAD = Struct(">IIIiiqqiq")


class StoreDamaged(AssertionError):
    """What the files of a store say does not agree."""


class Record(NamedTuple):
    """One message of the log; `position` and `size` are bytes of the log."""

    position: int
    size: int
    topic: str
    queue: int
    offset: int
    body: bytes
    sys_flag: int
    #: `host:port` of the broker that took the message.
    stored_by: str

    @property
    def queued(self) -> bool:
        """Whether a consume queue has it: half and rolled-back messages are in none."""
        return self.sys_flag & _TRANSACTION_MASK in (0, _COMMITTED)


def parse_records(data: bytes) -> Iterator[Record]:
    """Records that follow each other, as in a log file or a pull's response.

    Ends at the end, at a BLANK record or at a size of 0; raises `StoreDamaged` at anything else.
    """
    position = 0
    while len(data) - position >= 8:
        size = int.from_bytes(data[position : position + 4], "big")
        magic = int.from_bytes(data[position + 4 : position + 8], "big")
        if size == 0 or magic == BLANK_MAGIC:
            return
        if magic not in (MESSAGE_MAGIC, MESSAGE_MAGIC_V2) or position + size > len(data):
            raise StoreDamaged(f"no record at byte {position}: size {size}, magic {magic:#x}")
        yield _record(data, position, size, magic)
        position += size


def _record(data: bytes, start: int, size: int, magic: int) -> Record:
    _, _, _, queue, _, offset, physical, sys_flag, _ = _HEAD.unpack_from(data, start)
    position = start + _HEAD.size
    position += 20 if sys_flag & _BORN_IPV6 else 8
    position += 8
    width = 20 if sys_flag & _STORE_IPV6 else 8
    host = ip_address(data[position : position + width - 4])
    port = int.from_bytes(data[position + width - 4 : position + width], "big")
    position += width
    position += 4 + 8
    length = int.from_bytes(data[position : position + 4], "big")
    body = data[position + 4 : position + 4 + length]
    position += 4 + length
    width = 1 if magic == MESSAGE_MAGIC else 2
    length = int.from_bytes(data[position : position + width], "big")
    topic = data[position + width : position + width + length].decode()
    return Record(physical, size, topic, queue, offset, body, sys_flag, f"{host}:{port}")


def read_log(store: Path) -> Iterator[Record]:
    """Every record of the commit log; raises `StoreDamaged` where one says another position."""
    for path in sorted((store / "commitlog").iterdir()):
        position = int(path.name)
        for record in parse_records(path.read_bytes()):
            if record.position != position:
                raise StoreDamaged(f"the record at {position} says it is at {record.position}")
            yield record
            position += record.size


def check_store(store: Path, *, unconfirmed: bool = False) -> dict[tuple[str, int], list[Record]]:
    """The records of each queue, in order, where log and consume queues agree.

    Raises `StoreDamaged` where a record is in no queue, a queue has gaps, or a queue's unit leads
    nowhere. With `unconfirmed` the last records may be in no queue yet: a controller's group has
    there only what all in sync have.
    """
    queues: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for record in read_log(store):
        if record.queued:
            queues[record.topic, record.queue].append(record)
    check_queues(store, queues, unconfirmed=unconfirmed)
    return dict(queues)


def check_queues(
    store: Path, queues: dict[tuple[str, int], list[Record]], *, unconfirmed: bool = False
) -> None:
    """Raises `StoreDamaged` where the consume queues of a store are not those of its records, which
    it brings into the order of each queue. `unconfirmed` as in `check_store`."""
    seen = set()
    for (topic, queue), records in queues.items():
        units = _units(store / "consumequeue" / topic / str(queue))
        expected = {record.offset: (record.position, record.size) for record in records}
        if len(expected) != len(records):
            raise StoreDamaged(f"{topic}/{queue}: the log has an offset twice")
        if unconfirmed:
            behind = max(units, default=-1)
            expected = {offset: unit for offset, unit in expected.items() if offset <= behind}
            records[:] = [record for record in records if record.offset <= behind]
        if not records:
            continue
        if units != expected:
            wrong = sorted(units.items() ^ expected.items())[:5]
            raise StoreDamaged(
                f"{topic}/{queue}: {len(expected)} messages in the log, {len(units)} in the queue;"
                f" the first that differ (offset, (position, size)): {wrong}"
            )
        if sorted(expected) != list(range(min(expected), min(expected) + len(expected))):
            raise StoreDamaged(f"{topic}/{queue}: offsets have gaps")
        records.sort(key=lambda record: record.offset)
        seen.add((topic, str(queue)))
    for path in (store / "consumequeue").glob("*/*"):
        if (path.parent.name, path.name) not in seen and _units(path):
            raise StoreDamaged(f"{path.parent.name}/{path.name} leads to messages the log lacks")


def _units(queue: Path) -> dict[int, tuple[int, int]]:
    """offset -> (position, size) of the units of a consume queue."""
    units = {}
    for path in sorted(queue.iterdir()) if queue.is_dir() else ():
        first = int(path.name) // _QUEUE_UNIT.size
        data = path.read_bytes()
        for number, (position, size, _) in enumerate(
            _QUEUE_UNIT.iter_unpack(data[: len(data) // _QUEUE_UNIT.size * _QUEUE_UNIT.size])
        ):
            if size > 0:
                units[first + number] = (position, size)
    # Stock fills what lies before a queue's first message with units of the size of the maximum.
    return {offset: unit for offset, unit in units.items() if unit[1] != 0x7FFFFFFF}
