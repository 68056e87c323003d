"""Entries of the timer log, in the bytes that stock 5.3.3 writes."""

import pytest

from rocketmq_tw.store.timer.unit import (
    DELETE,
    ROLL,
    TIMER_BLANK_SIZE,
    TIMER_UNIT_SIZE,
    TimerUnit,
    blank,
    decode_unit,
    units_in_file,
)

UNIT = TimerUnit(
    previous=52,
    magic=1,
    write_ms=1_700_000_000_000,
    time_ms=1_700_000_005_000,
    offset=4096,
    size=300,
    topic_hash=-7,
)
BYTES = bytes.fromhex(
    "00000034 0000000000000034 00000001 0000018bcfe56800 00001388"
    " 0000000000001000 0000012c fffffff9 0000000000000000"
)


def test_an_entry_has_stocks_bytes() -> None:
    assert TIMER_UNIT_SIZE == 52
    assert UNIT.encode() == BYTES
    assert decode_unit(b"x" + BYTES, 1) == UNIT


@pytest.mark.parametrize(
    "data",
    [bytes(52), BYTES[:51], b"\0\0\0\x35" + BYTES[4:], BYTES[:12] + b"\0\0\0\x10" + BYTES[16:]],
    ids=["zeros", "short", "another size", "another magic"],
)
def test_what_is_no_entry(data: bytes) -> None:
    assert decode_unit(data) is None


def test_the_end_of_a_file() -> None:
    assert blank(20) == bytes.fromhex("00000014 0000000000000000 cbd43194 00000000")
    assert decode_unit(blank(TIMER_BLANK_SIZE).ljust(52, b"\0")) is None
    # A last entry is followed by room for a blank.
    assert units_in_file(2 * TIMER_UNIT_SIZE + TIMER_BLANK_SIZE) == 2
    assert units_in_file(2 * TIMER_UNIT_SIZE + TIMER_BLANK_SIZE - 1) == 1


def test_what_a_magic_says() -> None:
    taken_back = UNIT._replace(magic=1 | DELETE)
    rolled = UNIT._replace(magic=1 | ROLL | DELETE)
    assert (UNIT.deletes, UNIT.rolls, UNIT.weight) == (False, False, 1)
    assert (taken_back.deletes, taken_back.rolls, taken_back.weight) == (True, False, -1)
    assert (rolled.deletes, rolled.rolls, rolled.weight) == (False, True, -1)
