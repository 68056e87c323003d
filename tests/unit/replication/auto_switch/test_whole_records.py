"""Frames of a backlog end behind a record, so that no slave is left with a part of one."""

from __future__ import annotations

import itertools

import pytest

from rocketmq_tw.message.layout import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, SIZE_AND_MAGIC
from rocketmq_tw.replication.auto_switch.ends import AutoSwitchMasterLink
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable
from rocketmq_tw.replication.auto_switch.frames import (
    MAX_BODY,
    MasterReader,
    SlaveHandshake,
    SlaveReport,
)
from rocketmq_tw.replication.links.settings import HASettings

BATCH = 64


def record(size: int, magic: int = MAGIC_V1) -> bytes:
    return SIZE_AND_MAGIC.pack(size, magic).ljust(size, b"x")


def ends_of_frames(log: bytes, *, start: int = 0, epochs: tuple[int, ...] = (0,)) -> list[int]:
    """Where the frames end that a slave gets which has the log up to `start`."""
    link = AutoSwitchMasterLink(
        lambda offset, size: log[offset : offset + size],
        lambda: EpochTable(EpochEntry(number, at) for number, at in enumerate(epochs, 1)),
        lambda: 0,
        HASettings(file_size=1 << 20, batch_size=BATCH, heartbeat_ms=1000, housekeeping_ms=1000),
        now_ms=0,
    )
    link.receive(SlaveHandshake(2).encode(), 0, len(log), 0)
    link.next_transfer(len(log), 0)
    link.receive(SlaveReport(start).encode(), 0, len(log), 0)
    sent = list(iter(lambda: link.next_transfer(len(log), 0), None))
    frames = MasterReader().feed(b"".join(filter(None, sent)))
    assert b"".join(frame.data for frame in frames) == log[start:]
    return [frame.end for frame in frames]


def test_frames_end_behind_records() -> None:
    log = record(30) + record(20, MAGIC_V2) + record(40) + record(24, BLANK_MAGIC) + record(50)
    assert ends_of_frames(log) == [50, 114, 164]


def test_a_record_beyond_a_batch_is_one_frame() -> None:
    assert ends_of_frames(record(20) + record(500) + record(20)) == [20, 520, 540]


def test_a_record_that_no_frame_has_room_for_comes_in_pieces() -> None:
    size = MAX_BODY + 10
    ends = ends_of_frames(record(30) + record(size) + record(40) + record(40))
    assert ends[0] == 30
    assert ends[-3:] == [30 + size, 70 + size, 110 + size]
    assert all(after - before <= BATCH for before, after in itertools.pairwise(ends))


def test_frames_end_with_their_epoch() -> None:
    log = record(20) + record(30) + record(20) + record(50)
    assert ends_of_frames(log, epochs=(0, 50)) == [50, 70, 120]


@pytest.mark.parametrize("start", [1, 10, 29])
def test_a_slave_that_has_a_part_of_a_record_gets_the_rest(start: int) -> None:
    ends = ends_of_frames(record(30) + record(40) + record(90), start=start)
    assert ends[-1] == 160
