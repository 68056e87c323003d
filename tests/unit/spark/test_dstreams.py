"""What DStreams are made of: blocks, ranges, open messages, confirmations."""

import pickle
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.spark.dstreams.blocks import encode_block
from rocketmq_tw.spark.dstreams.control import (
    ControlError,
    decode_confirmation,
    encode_confirmation,
)
from rocketmq_tw.spark.dstreams.records import Record, covered, merged
from rocketmq_tw.spark.dstreams.unconfirmed import Unconfirmed
from rocketmq_tw.spark.ranges import OffsetRange
from rocketmq_tw.wire.bodies.queues import MessageQueue


def record(offset: int, queue: int = 0) -> Record:
    return Record("t", "b", queue, offset, b"x", None, [], {}, f"id{offset}", 1, 2, 0)


def part(start: int, end: int, queue: int = 0) -> OffsetRange:
    return OffsetRange("t", "b", queue, start, end)


def test_a_block_is_a_java_byte_array_with_pickled_records() -> None:
    block = encode_block([record(1), record(2)])
    (length,) = struct.unpack_from(">i", block)
    assert length == len(block) - 4
    # As java.io.ObjectOutputStream writes a byte[].
    assert block[4:27].hex() == "aced0005757200025b42acf317f8060854e00200007870"
    (size,) = struct.unpack_from(">i", block, 27)
    assert pickle.loads(block[31:]) == [tuple(record(1)), tuple(record(2))]
    assert size == len(block) - 31


@given(st.sets(st.integers(0, 60)))
def test_ranges_cover_the_offsets_and_nothing_else(offsets: set[int]) -> None:
    ranges = covered(record(offset) for offset in offsets)
    assert sorted(n for r in ranges for n in range(r.start, r.end)) == sorted(offsets)
    assert all(one.end < two.start for one, two in pairwise(ranges))


def test_ranges_that_meet_become_one() -> None:
    assert merged([part(5, 9), part(0, 5), part(3, 6), part(0, 2, 1)]) == [
        part(0, 9),
        part(0, 2, 1),
    ]


def test_open_messages_wait_for_their_confirmation() -> None:
    held, done = Unconfirmed(), []
    for offset in range(5):
        queue = MessageQueue(topic="t", broker_name="b", queue_id=0)
        held.add(queue, record(offset), lambda offset=offset: done.append(offset))
    assert held.confirm([part(1, 3), part(0, 9, queue=1)]) == 2
    assert done == [1, 2]
    assert [r.queue_offset for r in held.records()] == [0, 3, 4]
    assert held.confirm([part(0, 10**12)]) == 3
    assert held.confirm([part(0, 10**12)]) == 0
    assert len(held) == 0


def test_a_confirmation_both_ways() -> None:
    line = encode_confirmation([part(0, 5)], "hush")
    assert decode_confirmation(line, "hush").ranges() == [part(0, 5)]


@pytest.mark.parametrize(
    "line", [b"", b"[]", b'{"confirm": [["t", "b", 0, 1]]}', b'{"secret": "wrong"}', b'{"x": 1}']
)
def test_what_is_no_confirmation_is_refused(line: bytes) -> None:
    with pytest.raises(ControlError):
        decode_confirmation(line, "hush")
