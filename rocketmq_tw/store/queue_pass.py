"""A read of a queue that looks at each unit, since a filter asks about it or since units or records
are not as usual."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, compress

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message.properties import PropertiesMatch
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.interface import (
    GetStatus,
    MessageFilter,
    QueueRead,
    TagMatch,
)
from rocketmq_tw.store.queue_extension import QueueExtension, UnitExtra, is_address
from rocketmq_tw.store.queue_records import QueueRecords, ReadLimits
from rocketmq_tw.store.queue_units import (
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    columns_of,
    matching_units,
    size_limit_of,
)
from rocketmq_tw.store.records import properties_of_records

#: Units whose tags are looked at in one go, at first and at most.
_FIRST_UNITS, _MOST_UNITS = 64, 512
#: Messages whose properties are looked at in one go.
_MOST_AT_ONCE = 256
#: Bytes of properties that one read asks a usual filter about, and so many times fewer of a slower
#: one: above what the messages of a usual read have.
_ASKED_BYTES = 2 << 20


def _where_known(match: TagMatch) -> TagMatch:
    """Returns a test that also lets units through whose extra is lost: their tag is not known, so
    they may match."""
    return lambda tags_code: match(tags_code) or is_address(tags_code)


class QueuePass:
    """One read of one queue, of which each unit is looked at."""

    def __init__(
        self,
        config: MessageStoreConfig,
        records: QueueRecords,
        limits: ReadLimits,
        queue: ConsumeQueue,
        offset: int,
        wanted: MessageFilter,
        correct: Callable[[int, int], int],
    ) -> None:
        """`correct` returns the next offset where a read finds nothing at its first argument and
        the queue may go on at its second."""
        self._config = config
        self._log = records.log
        self._records = records
        self._correct = correct
        self._limits = limits
        self._queue = queue
        self._offset = offset
        self._tag_match: TagMatch | None = wanted.by_unit
        self._extra_match = None
        if queue.extension is not None:
            self._extra_match = wanted.by_extra
            if wanted.by_unit is not None:
                self._tag_match = _where_known(wanted.by_unit)
        #: Extras of the units at hand, where they were asked for.
        self._extras: list[UnitExtra | None] = []
        self._properties_match = wanted.by_properties
        #: Stock looks at this many bytes of units at most, so that a rare tag still makes progress;
        #: more only for a read that may take more messages.
        units = self._config.max_filter_message_size // UNIT_SIZE // wanted.weight
        self._scan_units = max(units, self._limits.most_records)
        self._askable = _ASKED_BYTES // wanted.weight
        self._found: list[tuple[int, int]] = []
        self._bytes = 0
        self._status = GetStatus.NO_MATCHED_MESSAGE
        self._next = offset
        self._last_position = 0
        self._asked = False

    def run(self) -> QueueRead:
        """Returns what was found."""
        queue, offset, match = self._queue, self._offset, self._properties_match
        files = 0
        while (
            not self._found
            and self._next < queue.max_offset
            and files < self._config.travel_cq_file_num_when_get_message
        ):
            files += 1
            left = self._scan_units - (self._next - offset)
            if left <= 0:
                break
            units = queue.read(self._next, left)
            if not units:
                self._status = GetStatus.OFFSET_FOUND_NULL
                per_file = queue.segments.file_size // UNIT_SIZE
                self._next = self._correct(
                    self._next, self._next - self._next % per_file + per_file
                )
                break
            if queue.extension is not None and (self._tag_match or self._extra_match):
                units = self._with_tags(units, queue.extension)
            if not (self._take(units) if match is None else self._take_matching(units, match)):
                break
        data = self._collect()
        status = self._status
        if self._found:
            status = GetStatus.FOUND
        behind = self._log.end_offset - self._last_position
        return QueueRead(
            status,
            data,
            len(self._found),
            self._next,
            queue.min_offset,
            queue.max_offset,
            behind > self._limits.in_memory_bytes,
        )

    def _with_tags(self, units: bytes, extension: QueueExtension) -> bytes:
        """Returns the units with the hash codes of tags in place of addresses; finds what these
        lead to."""
        positions, sizes, codes = columns_of(units)
        self._extras = extension.find(codes)
        columns = zip(positions, sizes, codes, self._extras, strict=True)
        return b"".join(
            [
                UNIT.pack(position, size, extra.tags_code if extra else code)
                for position, size, code, extra in columns
            ]
        )

    def _take(self, units: bytes) -> bool:
        """Goes through units; False where the read is full."""
        match = self._tag_match
        if match is None:
            return self._take_each(units)
        # Few at first: where many match, these are all that is read.
        start, count = 0, _FIRST_UNITS
        while start < len(units):
            end = start + count * UNIT_SIZE
            is_open = self._take_by_tag(units[start:end], match)
            if is_open is None:
                return self._take_each(units[start:])
            if not is_open:
                return False
            start, count = end, min(2 * count, _MOST_UNITS)
        return True

    def _take_by_tag(self, units: bytes, match: TagMatch) -> bool | None:
        """Returns what `_take_each` gives, without a look at each unit for itself, for the usual
        read by tags: what matches is there, and neither the bytes nor the age of a record end the
        read. None, and nothing taken, where that is not so."""
        log, found = self._log, self._found
        count = len(units) // UNIT_SIZE
        numbers = matching_units(units, match)
        if not numbers and not found:
            self._seen(units, count)
            self._status = GetStatus.NO_MATCHED_MESSAGE
            return True
        # Each record of a queue stands behind the one before.
        first, last = (
            UNIT.unpack_from(units, number * UNIT_SIZE)[0]
            for number in (0 if found else numbers[0], count - 1)
        )
        of_all = self._limits.of_all(log.end_offset, first, last)
        if of_all is None:
            return None
        most_bytes, most_count = of_all
        # The first record always fits.
        room = most_count - len(found) if found else max(most_count, 1)
        if room <= 0:
            return False
        is_full = len(numbers) >= room
        del numbers[room:]
        taken = [UNIT.unpack_from(units, number * UNIT_SIZE)[:2] for number in numbers]
        size = sum([each for _, each in taken])
        if self._bytes + size + size_limit_of(units) > most_bytes:
            return None
        if taken and min(taken)[0] < log.min_offset:
            return None
        found += taken
        self._bytes += size
        self._seen(units, numbers[-1] + 1 if is_full else count)
        return not is_full

    def _seen(self, units: bytes, count: int) -> None:
        """Notes that the first `count` of these units are dealt with."""
        self._next += count
        self._last_position, _, _ = UNIT.unpack_from(units, (count - 1) * UNIT_SIZE)

    def _take_each(self, units: bytes) -> bool:
        """Goes through units one by one; False where the read is full."""
        log, limits = self._log, self._limits
        tag_match = self._tag_match
        found = self._found
        end, memory = log.end_offset, limits.in_memory_bytes
        min_physical = log.min_offset
        in_memory, on_disk = limits.in_memory, limits.on_disk
        for position, size, tags_code in UNIT.iter_unpack(units):
            if found:
                # The first record always fits.
                most_bytes, most_count = in_memory if end - position <= memory else on_disk
                if len(found) >= most_count or self._bytes + size > most_bytes:
                    return False
            self._last_position = position
            self._next += 1
            if tag_match is not None and not tag_match(tags_code):
                if not found:
                    self._status = GetStatus.NO_MATCHED_MESSAGE
                continue
            if position < min_physical or size == FILLER_SIZE:
                if not found:
                    self._status = GetStatus.MESSAGE_WAS_REMOVING
                continue
            found.append((position, size))
            self._bytes += size
        return True

    def _take_matching(self, units: bytes, match: PropertiesMatch) -> bool:
        """Returns `_take` for messages whose properties match. Those that do not match cost no more
        than being asked."""
        log, limits, found = self._log, self._limits, self._found
        end, offset = log.end_offset, self._next
        numbers, positions, sizes = self._candidates(*columns_of(units))
        at_once = limits.in_memory[1]
        place = 0
        while place < len(numbers):
            # Few at first: where all match, these are all that is read.
            some = slice(place, place + at_once)
            properties = self._affordable(properties_of_records(log, positions[some], sizes[some]))
            if not properties:
                self._next = offset + numbers[place]
                return False
            for number in compress(range(place, len(numbers)), map(match, properties)):
                position, size = positions[number], sizes[number]
                in_memory = end - position <= limits.in_memory_bytes
                most_bytes, most_count = limits.in_memory if in_memory else limits.on_disk
                if found and self._bytes + size > most_bytes:
                    self._next = offset + numbers[number]
                    return False
                self._last_position = position
                found.append((position, size))
                self._bytes += size
                if len(found) >= most_count:
                    self._next = offset + numbers[number] + 1
                    return False
            place += len(properties)
            self._last_position = positions[place - 1]
            at_once = min(2 * at_once, _MOST_AT_ONCE)
        self._next = offset + len(units) // UNIT_SIZE
        if not found:
            removed = not numbers and self._tag_match is None and self._extra_match is None
            self._status = (
                GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
            )
        return True

    def _affordable(self, properties: list[bytes]) -> list[bytes]:
        """Returns those that may still be asked about: at least one of a read, so that it gets
        on."""
        size = sum(map(len, properties))
        if size > self._askable:
            fitting = bisect_right(list(accumulate(map(len, properties))), self._askable)
            if not fitting and not self._asked:
                fitting = 1
            del properties[fitting:]
            # Less than the next one needs.
            size = self._askable
        self._askable -= size
        self._asked = True
        return properties

    def _candidates(
        self, positions: Sequence[int], sizes: Sequence[int], codes: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Returns the numbers of the units, counted from 0, that have a record with a tag that may
        match, and where these are and how large."""
        numbers: Sequence[int] = range(len(positions))
        low, by_tag = self._log.min_offset, self._tag_match
        by_extra, extras = self._extra_match, self._extras
        if by_extra is not None:
            numbers = [
                number
                for number, (extra, position) in enumerate(zip(extras, positions, strict=True))
                if extra is None or by_extra(extra, position)
            ]
        elif by_tag is None and min(positions) >= low and FILLER_SIZE not in sizes:
            return numbers, positions, sizes
        numbers = [
            number
            for number in numbers
            if positions[number] >= low
            and sizes[number] != FILLER_SIZE
            and (by_tag is None or by_tag(codes[number]))
        ]
        return numbers, [positions[n] for n in numbers], [sizes[n] for n in numbers]

    def _collect(self) -> bytes:
        """Returns the records found, joined; damaged ones are taken out of `_found`."""
        found, self._found = self._found, []
        fresh_bytes = self._limits.fresh_bytes
        if found:
            positions, sizes = zip(*found, strict=True)
            data = self._records.joined(positions, sizes, fresh_bytes)
            if data is not None:
                self._found = found
                return data
        parts = []
        for position, size in found:
            record = self._records.one(position, size, fresh_bytes)
            if record is not None:
                self._found.append((position, size))
                parts.append(record)
            elif not self._found:
                self._status = GetStatus.MESSAGE_WAS_REMOVING
        return b"".join(parts)
