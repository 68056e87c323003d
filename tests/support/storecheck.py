"""Reads a store's files as stock writes them, independently of our own store.

Whatever is acknowledged must lie in the commit log, and the consume queues must say of the log
what is in it (docs/formats/commitlog.md, docs/formats/consumequeue.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.queue import FILLER_SIZE, UNIT
from rocketmq_tw.formats.record import (
    BLANK,
    BLANK_MAGIC,
    BORN_HOST_V6,
    FIXED,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rocketmq_tw.storecheck.check import check_store as check_files
from rocketmq_tw.storecheck.findings import Finding
from rocketmq_tw.storecheck.layout import Sizes, Store
from tests.support.processes import TEST_SETTINGS

_QUEUE_UNIT = flat(UNIT)
_BEGIN = flat(BLANK)
_FIXED = {flags: flat(declaration) for flags, declaration in FIXED.items()}
#: Behind size, magic, CRC, queue, flag, queue offset and physical offset.
_FLAGS_AT = 36


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
        transaction = self.sys_flag & TRANSACTION_MASK
        return transaction not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def parse_records(data: bytes) -> Iterator[Record]:
    """Records that follow each other, as in a log file or a pull's response.

    Ends at the end, at a BLANK record or at a size of 0; raises `StoreDamaged` at anything else.
    """
    position = 0
    while len(data) - position >= 8:
        size, magic = _BEGIN.unpack_from(data, position)
        if size == 0 or magic == BLANK_MAGIC:
            return
        if magic not in (MAGIC_V1, MAGIC_V2) or position + size > len(data):
            raise StoreDamaged(f"no record at byte {position}: size {size}, magic {magic:#x}")
        yield _record(data, position, size, magic)
        position += size


def _record(data: bytes, start: int, size: int, magic: int) -> Record:
    sys_flag = int.from_bytes(data[start + _FLAGS_AT : start + _FLAGS_AT + 4], "big")
    fixed = _FIXED[sys_flag & (BORN_HOST_V6 | STORE_HOST_V6)]
    fields = fixed.unpack_from(data, start)
    _, _, _, queue_id, _, offset, physical, _, _, _, _, _, host, port, _, _, length = fields
    body_at = start + fixed.size
    topic_at = body_at + length
    width = 1 if magic == MAGIC_V1 else 2
    end = topic_at + width + int.from_bytes(data[topic_at : topic_at + width], "big")
    return Record(
        position=physical,
        size=size,
        topic=data[topic_at + width : end].decode(),
        queue=queue_id,
        offset=offset,
        body=data[body_at:topic_at],
        sys_flag=sys_flag,
        stored_by=f"{ip_address(host)}:{port}",
    )


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
    return {offset: unit for offset, unit in units.items() if unit[1] != FILLER_SIZE}


def findings_of(store: Path) -> list[Finding]:
    """Everything that `rmqadmin store check` finds in the store of a broker with `TEST_SETTINGS`,
    which is not running."""
    found: list[Finding] = []
    sizes = Sizes(
        queue=int(TEST_SETTINGS["mappedFileSizeConsumeQueue"]),
        index_slots=int(TEST_SETTINGS["maxHashSlotNum"]),
        index_entries=int(TEST_SETTINGS["maxIndexNum"]),
    )
    check_files(Store(str(store), sizes), found.append)
    return found
