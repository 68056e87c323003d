"""What the end of the log, before it is cut, says to be settled is settled no more."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.tables.offsets import OffsetTable
from rocketmq_tw.broker.transactions.halves import QUEUE, SYSTEM_GROUP, settled_offsets
from rocketmq_tw.message.names import HALF_TOPIC, OP_HALF_TOPIC
from rocketmq_tw.message.record import decode_records

#: Read at once.
BLOCK = 256
BLOCK_BYTES = 1 << 20


def take_back(store: IMessageStore, offsets: OffsetTable, end: int) -> Iterator[None]:
    """Takes stock's group back to the first half message that an op message behind `end` names, in
    steps that each read a block."""
    offset = store.queue_end_at(OP_HALF_TOPIC, QUEUE, end)
    if offset is None:
        return
    first: int | None = None
    while offset < store.max_queue_offset(OP_HALF_TOPIC, QUEUE):
        read = store.read_queue(OP_HALF_TOPIC, QUEUE, offset, BLOCK, BLOCK_BYTES)
        for op in decode_records(read.data):
            for named in settled_offsets(op):
                first = named if first is None else min(first, named)
        if read.next_offset <= offset:
            break
        offset = read.next_offset
        yield
    if first is None:
        return
    _back_to(offsets, HALF_TOPIC, max(first, store.min_queue_offset(HALF_TOPIC, QUEUE)))
    units = store.queue_units(HALF_TOPIC, QUEUE, first, 1)
    if units:
        behind = store.queue_end_at(OP_HALF_TOPIC, QUEUE, units[0].position)
        if behind is not None:
            _back_to(offsets, OP_HALF_TOPIC, behind)


def _back_to(offsets: OffsetTable, topic: str, offset: int) -> None:
    known = offsets.of(SYSTEM_GROUP, topic).get(QUEUE)
    if known is not None and offset < known:
        offsets.commit(SYSTEM_GROUP, topic, QUEUE, offset, "the broker")
