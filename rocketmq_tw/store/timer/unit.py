"""One entry of the timer log: a message, and the time that it waits for."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

#: Size, position of the slot's entry before, magic, time of writing, milliseconds from there to
#: the time waited for, the message's place and size in the commit log, hash of its topic, reserved.
_UNIT = Struct(">iqiqiqiiq")
TIMER_UNIT_SIZE = _UNIT.size
#: Where the message's place stands in an entry.
OFFSET_AT = 28
_BLANK = Struct(">iqi")
TIMER_BLANK_SIZE = _BLANK.size
#: Stock writes 0xBBCCDDEE ^ 1880681586 + 8, where the sum comes first.
_BLANK_MAGIC = (0xBBCCDDEE ^ (1880681586 + 8)) - (1 << 32)

#: Bits of a magic.
DEFAULT = 1
ROLL = 2
DELETE = 4
_MAGICS = range(16)

#: What a position is where there is none; its bytes are the place of a message that is gone.
NOWHERE = -1
VOID = NOWHERE.to_bytes(8, "big", signed=True)


class TimerUnit(NamedTuple):
    """An entry of the timer log (docs/formats/timers.md). `time_ms` is when the message is due;
    with ROLL it goes back into the timer's topic then, with DELETE it recalls another message of
    the same slot. `write_ms` is when the waiting began; `offset` and `size` say where the message
    stands in the commit log, in bytes."""

    previous: int
    magic: int
    write_ms: int
    time_ms: int
    offset: int
    size: int
    topic_hash: int

    @property
    def is_void(self) -> bool:
        """Whether it was taken out: the commit log lost its message, and may have another one in
        its place."""
        return self.offset < 0

    @property
    def rolls(self) -> bool:
        return bool(self.magic & ROLL)

    @property
    def deletes(self) -> bool:
        """Whether it takes another message back; one that rolls does so the next time."""
        return self.magic & (DELETE | ROLL) == DELETE

    @property
    def weight(self) -> int:
        """How much the entry changes its slot's count of messages."""
        return -1 if self.magic & DELETE else 1

    def encode(self) -> bytes:
        return _UNIT.pack(
            TIMER_UNIT_SIZE,
            self.previous,
            self.magic,
            self.write_ms,
            self.time_ms - self.write_ms,
            self.offset,
            self.size,
            self.topic_hash,
            0,
        )


def decode_unit(data: bytes | bytearray, position: int = 0) -> TimerUnit | None:
    """Reads the entry at `position` of `data`; None where there is none."""
    if len(data) < position + TIMER_UNIT_SIZE:
        return None
    size, previous, magic, write_ms, delay, offset, message_size, topic_hash, _ = _UNIT.unpack_from(
        data, position
    )
    if size != TIMER_UNIT_SIZE or magic not in _MAGICS:
        return None
    return TimerUnit(previous, magic, write_ms, write_ms + delay, offset, message_size, topic_hash)


def blank(size: int) -> bytes:
    """Makes the bytes that fill the last `size` bytes of a file, padded with zeros."""
    return _BLANK.pack(size, 0, _BLANK_MAGIC).ljust(size, b"\0")


def units_in_file(file_size: int) -> int:
    """Returns how many entries a file has before its blank."""
    return (file_size - TIMER_BLANK_SIZE) // TIMER_UNIT_SIZE
