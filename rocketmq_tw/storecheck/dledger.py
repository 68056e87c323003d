"""The log of a DLedger member: entries, each with a record (docs/formats/dledger.md)."""

from __future__ import annotations

from zlib import crc32

from rocketmq_tw.formats.dledger import (
    BLANK,
    BLANK_MAGIC,
    ENTRY_HEAD,
    INDEX_UNIT,
    MAGIC,
    chain_crc,
)
from rocketmq_tw.formats.flat import flat
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.long_file import LongFile
from rocketmq_tw.storecheck.records import LogRecord, read_record
from rocketmq_tw.storecheck.walk import Begun, PlainLog

_BEGIN = flat(BLANK)
_HEAD = flat(ENTRY_HEAD)
_UNIT = flat(INDEX_UNIT)
#: Index units that are read at once.
_UNITS = 1024


class EntryLog(PlainLog):
    """Tells how the entries of a member follow each other. Index units are compared with them."""

    front = 4 + _HEAD.size

    def __init__(self, index: LongFile, findings: Findings) -> None:
        self._index = index
        self._findings = findings
        self._units = b""
        self._first_unit = 0
        #: The last entry's index, term and chain CRC; None before the first.
        self._last: tuple[int, int, int] | None = None

    def begun(self, data: bytes, at: int, room: int) -> Begun:
        magic, size = _BEGIN.unpack_from(data, at)
        if magic == MAGIC:
            whole = _HEAD.size <= size <= room - _BEGIN.size
            return size if whole else f"an entry there would have {size} bytes"
        if magic == BLANK_MAGIC:
            whole = size == room
            return 0 if whole else f"a blank of {size} bytes does not reach the end of the file"
        return "zeros" if not size and not magic else f"its magic is {magic & 0xFFFFFFFF:08x}"

    def read(
        self, data: bytes, at: int, size: int, position: int, check_body: bool
    ) -> LogRecord | str | None:
        head = _HEAD.unpack_from(data, at)
        _, _, index, term, said, _, chain, body_crc, length = head
        if said != position:
            return f"the entry there says that it stands at {said}"
        if length != size - _HEAD.size:
            return f"entry {index} has {size} bytes, and a body of {length}"
        body_at = at + _HEAD.size
        if body_crc and crc32(data[body_at : at + size]) & 0x7FFFFFFF != body_crc:
            return f"the body of entry {index} does not match its CRC"
        last = self._last
        if last is not None and (index != last[0] + 1 or term < last[1]):
            return f"entry {index} of term {term} stands behind {last[0]} of term {last[1]}"
        if (
            chain
            and last is not None
            and last[2]
            and chain != chain_crc(last[2], index, term, position, body_crc)
        ):
            return f"entry {index} does not match the CRC of all in front of it"
        record = None
        if length:
            found = read_record(data, body_at, length, position + _HEAD.size, check_body=check_body)
            if isinstance(found, str):
                return found
            record = found
        self._last = (index, term, chain)
        self._compare_unit(index, (MAGIC, position, size, index, term))
        return record

    def restart(self) -> None:
        self._last = None

    def _compare_unit(self, index: int, expected: tuple[int, ...]) -> None:
        at = (index - self._first_unit) * _UNIT.size
        if not 0 <= at <= len(self._units) - _UNIT.size:
            self._units = self._index.read(_UNITS * _UNIT.size, index * _UNIT.size)
            self._first_unit, at = index, 0
        unit = _UNIT.unpack_from(self._units, at) if len(self._units) >= _UNIT.size else None
        if unit != expected:
            file, offset = self._index.name(index * _UNIT.size)
            self._findings.add(
                "entry-index", file, offset,
                f"the unit of entry {index} does not lead to it", Remedy.START,
            )  # fmt: skip
