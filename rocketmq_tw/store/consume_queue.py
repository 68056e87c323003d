"""A consume queue: where in the log each message of one queue stands.

Units of 20 bytes, numbered by the queue offset: log offset (8), size (4), tag hash code (8).
Format: docs/formats/consumequeue.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from rocketmq_tw.message.layout import MIN_RECORD_SIZE
from rocketmq_tw.store.handles import HandlePool, Unsynced
from rocketmq_tw.store.queue_extension import QueueExtension, UnitExtra, is_address
from rocketmq_tw.store.queue_units import (
    FILLER,
    FILLER_SIZE,
    UNIT,
    UNIT_SIZE,
    Unit,
    end_of_kept,
)
from rocketmq_tw.store.segments import Segments, ShortFiles
from rocketmq_tw.store.unwritten import QueueTotals, Unwritten

#: Among so many of its last units, or its first, a queue looks for one that has an extra.
_LOOKED_AT = 256


@attrs.frozen
class QueueFiles:
    """What the queues of one store share: their open files, the `file_size` in bytes, and the books
    on what is not in the files, or not durable there."""

    pool: HandlePool
    file_size: int
    unsynced: Unsynced
    unwritten: Unwritten
    totals: QueueTotals
    #: Makes the directory of a queue that is about to get its first file.
    make_directory: Callable[[ConsumeQueue], None]


class ConsumeQueue:
    """Offsets count units. `max_offset` is what readers see, `next_offset` what the next message
    gets: messages between them are in the log but not dispatched yet.

    Of what readers see, the last units may be in memory only; a cut has them written first. They
    belong into the last file, unless writing failed: `failure` says why then, until it goes again.
    """

    def __init__(
        self,
        files: QueueFiles,
        directory: str,
        topic: str,
        queue_id: int,
        extension: QueueExtension | None = None,
    ) -> None:
        self.failure = ""
        #: Where extras of units are; None where the store has none.
        self.extension = extension
        #: Whether the extra of the last unit that has one is lost.
        self.is_torn = False
        self.topic = topic
        self.queue_id = queue_id
        self.segments = Segments(files.pool, directory, files.file_size, files.unsynced)
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        #: The log's end as far as this queue knows it; -1 while it is empty.
        self.max_physical = -1
        #: How many checkpoints were prepared when a file was removed; what a former process removed
        #: is durable with the first checkpoint.
        self._removed_at = self._extension_removed_at = 0
        #: How many files had been removed then.
        self._removals = self._extension_removals = 0
        self._units_per_file = files.file_size // UNIT_SIZE
        #: Units that wait for `write_pending`.
        self.pending: list[bytes] = []
        self._unwritten = files.unwritten
        self._totals = files.totals
        self._has_files = False
        self._make_directory = files.make_directory
        #: The last units in front of `max_offset` that the file has not, see `Unwritten`.
        self._tail: list[bytes] = []

    def put(self, queue_offset: int, position: int, size: int, tags_code: int) -> bool:
        """Buffers a unit; False where the queue has that offset already, or cannot have it."""
        expected = self.max_offset + len(self.pending)
        if queue_offset != expected:
            if not self.may_have(queue_offset, position):
                return False
            if expected == self._first_offset() and not self.pending:
                self._begin(queue_offset)
            elif queue_offset < expected:
                return False
            else:
                # Messages were lost. Their fillers keep the positions in ascending order.
                lost = UNIT.pack(max(self.max_physical, 0), FILLER_SIZE, 0)
                self.pending.extend([lost] * (queue_offset - expected))
        self.pending.append(UNIT.pack(position, size, tags_code))
        self.max_physical = position + size
        return True

    def put_extended(
        self, queue_offset: int, position: int, size: int, extra: Callable[[], UnitExtra]
    ) -> bool:
        """Buffers a unit as `put` does, with the message's extra in the queue's extension."""
        assert self.extension is not None
        if not self.put(queue_offset, position, size, 0):
            return False
        self.pending[-1] = UNIT.pack(position, size, self.extension.add(extra()))
        return True

    def put_batch(
        self,
        queue_offset: int,
        positions: Sequence[int],
        sizes: Sequence[int],
        tags_codes: Sequence[int],
    ) -> bool:
        """Buffers the units of messages with consecutive queue offsets; False where these are not
        the ones that come next, and each has to be `put`."""
        if queue_offset != self.max_offset + len(self.pending):
            return False
        # Not with `map`, whose calls PyPy does not compile.
        self.pending += [
            UNIT.pack(position, size, tags_code)
            for position, size, tags_code in zip(positions, sizes, tags_codes, strict=True)
        ]
        self.max_physical = positions[-1] + sizes[-1]
        return True

    def may_have(self, queue_offset: int, position: int) -> bool:
        """Returns whether the message at `position` of the log can have that queue offset: the log
        behind the queue's last message has room for all that are missing in front of it."""
        expected = self.max_offset + len(self.pending)
        if queue_offset <= expected or expected == self._first_offset():
            return queue_offset >= 0
        room = position - max(self.max_physical, 0)
        return (queue_offset - expected) * MIN_RECORD_SIZE <= room

    def write_pending(self) -> None:
        """Shows the buffered units to readers. They are written, or stay in memory if they fit in
        the queue's last file or cannot be written."""
        units = self.pending
        if not units:
            return
        self.pending = []
        if self.extension is not None:
            self.extension.keep()
        end = self.max_offset + len(units)
        self._tail += units
        self._unwritten.add(self, len(units))
        self._totals.units += len(units)
        self.max_offset = end
        self.next_offset = max(self.next_offset, end)
        if not self.failure and (not self.segments.starts or end * UNIT_SIZE > self.segments.end):
            self.try_to_write_out()

    def try_to_write_out(self) -> None:
        """Writes the units that are in memory only, or keeps them there and says so in
        `failure`."""
        try:
            self.write_out()
        except OSError as error:
            self.failure = self._unwritten.failures[self] = str(error)

    def write_out(self) -> None:
        """Writes the units that are in memory only; where that raises `OSError` they stay there."""
        if self.extension is not None:
            # First, so that a unit in a file leads somewhere.
            self.extension.write_out()
        if self._tail and not self.segments.starts:
            self._make_directory(self)
        try:
            while self._tail:
                offset = self.max_offset - len(self._tail)
                part = self._tail[: self._units_per_file - offset % self._units_per_file]
                self.segments.write([b"".join(part)], offset * UNIT_SIZE)
                self._unwritten.discard(self, len(part), are_last=len(part) == len(self._tail))
                del self._tail[: len(part)]
        finally:
            self._count_files()
        self.failure = ""

    def forget(self) -> None:
        """Marks the queue as removed: those that still use the object change no files any more."""
        if self._tail:
            self._unwritten.discard(self, len(self._tail), are_last=True)
            self._tail = []
        self._totals.units -= self.max_offset
        self._totals.with_files -= self._has_files
        self._totals = QueueTotals()

    def _end_becomes(self, offset: int) -> None:
        self._totals.units += offset - self.max_offset
        self.max_offset = offset

    def _count_files(self) -> None:
        has_files = bool(self.segments.starts)
        if has_files is not self._has_files:
            self._totals.with_files += has_files - self._has_files
            self._has_files = has_files

    def drop_pending(self) -> None:
        """Forgets what is buffered: a write failed and dispatch will bring it again."""
        self.pending = []
        if self.extension is not None:
            self.extension.drop_pending()

    def read(self, offset: int, count: int) -> bytes:
        """Returns up to `count` units from `offset`, whole ones, not past the end of their
        file."""
        count = min(count, self.max_offset - offset)
        if count <= 0 or offset < 0:
            return b""
        in_file = self.max_offset - len(self._tail) - offset
        if in_file <= 0:
            return b"".join(self._tail[-in_file : count - in_file])
        data = self.segments.pread(min(count, in_file) * UNIT_SIZE, offset * UNIT_SIZE)
        if len(data) % UNIT_SIZE:
            # Somebody has cut the file off.
            return data[: len(data) // UNIT_SIZE * UNIT_SIZE]
        if count > in_file and len(data) == in_file * UNIT_SIZE:
            data += b"".join(self._tail[: count - in_file])
        return data

    def unit(self, offset: int) -> Unit | None:
        """Returns the unit at `offset`; None where none is readable."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        data = self.read(offset, 1)
        return Unit._make(UNIT.unpack(data)) if len(data) == UNIT_SIZE else None

    @property
    def first_position(self) -> int:
        """Where in the log the first message stands that it knows, there or not; -1 without one."""
        for offset in (self._first_offset(), self.min_offset):
            for unit in map(Unit._make, UNIT.iter_unpack(self.read(offset, 1))):
                if unit.is_written and not unit.is_filler:
                    return unit.position
        return -1

    def load(self, *, clean: bool) -> bool:
        """Lists the files and finds the end; returns whether a file had to be repaired. `clean`:
        all that is there is durable."""
        repaired = self.segments.load(
            "mappedFileSizeConsumeQueue", short=ShortFiles.EXTEND, drop_behind_gap=True
        )
        self._count_files()
        if self.extension is not None:
            self.extension.load()
        self._cut_where(lambda unit: unit.is_written, synced=clean)
        return repaired

    def end_at(self, position: int) -> int:
        """Returns the queue offset at which the queue would end if the log ended at `position`."""
        low, high = self.min_offset, self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.unit(middle)
            if unit is not None and unit.is_written and unit.position < position:
                low = middle + 1
            else:
                high = middle
        return low

    def cut_where(self, keep: Callable[[Unit], bool]) -> None:
        """Ends the queue at the first unit that `keep` refuses; what it keeps is a prefix.

        Where it is not, the queue may end too late, but never too early.
        """
        self._cut_where(keep)

    def _cut_where(self, keep: Callable[[Unit], bool], *, synced: bool = False) -> None:
        self.write_out()
        end = self.segments.end // UNIT_SIZE
        self._end_becomes(end)
        kept = end_of_kept(self.read, self._first_offset(), end, keep)
        self._end_at(kept, synced=synced)

    def cut_behind(self, position: int) -> None:
        """Drops the units of records that stand at `position` of the log or behind it."""
        self.cut_where(lambda unit: unit.is_written and unit.position < position)

    def cut_in_front(self, position: int, min_physical: int) -> None:
        """Ends the queue at the first unit that is not of a record at `position` of the log or
        behind it: another queue of that name left it over. Nothing remains where none is, but of
        one without units that may have lost its own: the log begins at `min_physical`."""
        may_be_its_own = self.max_physical < 0 and position < min_physical
        # One by one: where a power loss took some writes, what is left need not be a prefix.
        end = self._first_offset()
        while units := self.read(end, self._units_per_file):
            for start, size, _ in UNIT.iter_unpack(units):
                if start < position or size == FILLER_SIZE or size <= 0:
                    break
                end += 1
            else:
                continue
            break
        if end < self.max_offset:
            self.cut_at(end)
        if self.max_physical < 0 and not may_be_its_own:
            self._clear()

    def clear_stray_files(self) -> None:
        """Lets a queue without units begin at 0, which must not have lost messages by age: a power
        loss took its first files and left later ones."""
        if self.max_physical < 0 and self._first_offset():
            self._clear()

    def _clear(self) -> None:
        self.segments.clear()
        self._count_files()
        self._end_at(0)

    def cut_at(self, offset: int) -> None:
        """Ends the queue at a queue offset."""
        self._end_at(max(offset, self._first_offset()))

    def _end_at(self, end: int, *, synced: bool = False) -> None:
        """Ends the queue there, with zeros behind, so that no old unit counts as written again."""
        self.write_out()
        self.segments.cut(end * UNIT_SIZE, durable=False, keep_first=True, synced=synced)
        self._end_becomes(end)
        self.next_offset = end
        self.pending = []
        self.max_physical = -1
        self.is_torn = False
        last = self.max_offset - 1
        if self.max_offset > self._first_offset():
            unit = Unit._make(UNIT.unpack(self.read(last, 1)))
            if not unit.is_filler:
                self.max_physical = unit.position + unit.size
            self.is_torn = self.extension is None and is_address(unit.tags_code)
        self.min_offset = min(max(self.min_offset, self._first_offset()), self.max_offset)
        if self.extension is not None:
            self._cut_extension(self.extension)

    def _cut_extension(self, extension: QueueExtension) -> None:
        """Ends the extension behind the last unit's extra, if one of the last units has one."""
        first, end = self._first_offset(), self.max_offset
        if end == first:
            extension.clear()
            return
        last, at = None, max(first, end - _LOOKED_AT)
        while at < end and (units := self.read(at, end - at)):
            found = self._address(reversed(list(UNIT.iter_unpack(units))))
            last = last if found is None else found
            at += len(units) // UNIT_SIZE
        if last is None:
            extension.end_somewhere()
        else:
            self.is_torn = not extension.end_behind(last)

    @staticmethod
    def _address(units: Iterable[tuple[int, int, int]]) -> int | None:
        """Returns the address of the first extra among the units."""
        return next((code for _, _, code in units if is_address(code)), None)

    def correct_min_offset(self, min_physical: int) -> None:
        """Moves `min_offset` to the first unit whose message the log still has."""
        low, high = max(self.min_offset, self._first_offset()), self.max_offset
        while low < high:
            middle = (low + high) // 2
            position, size, _ = UNIT.unpack(self.read(middle, 1))
            if position < min_physical or (position == 0 and size == FILLER_SIZE):
                low = middle + 1
            else:
                high = middle
        self.min_offset = low

    def remove_before(self, min_physical: int, safe_offset: int, prepared: int, synced: int) -> int:
        """Removes files whose messages are all gone from the log; returns their number.

        Only where the next file is on stable storage, as it is if it begins in front of the
        checkpoint's `safe_offset`: a queue without files would not know its end. And only one
        file until that is durable, as it is with a checkpoint prepared later (see `Rounds`): a
        power loss among several could leave a gap.
        """
        removed = 0
        if len(self.segments.starts) > 1 and synced > self._removed_at:
            last = self.segments.starts[1] // UNIT_SIZE - 1
            position, _, _ = UNIT.unpack(self.read(last, 1))
            following, _, _ = UNIT.unpack(self.read(last + 1, 1))
            if position < min_physical and following < safe_offset:
                # With that checkpoint: a sync of its own would be one for each queue.
                self.segments.removals_are_durable(self._removals)
                self.segments.remove_first()
                self._removed_at, self._removals = prepared, self.segments.removals
                removed = 1
        self.correct_min_offset(min_physical)
        if self.extension is not None and synced > self._extension_removed_at:
            removed += self._shorten_extension(self.extension, prepared)
        return removed

    def _shorten_extension(self, extension: QueueExtension, prepared: int) -> bool:
        """Removes its first file if only messages had extras there that are gone."""
        units = list(UNIT.iter_unpack(self.read(self.min_offset, _LOOKED_AT)))
        first = self._address(units)
        segments = extension.segments
        segments.removals_are_durable(self._extension_removals)
        if (first is None and units) or not extension.remove_first_before(first):
            return False
        self._extension_removed_at, self._extension_removals = prepared, segments.removals
        return True

    def _first_offset(self) -> int:
        return self.segments.starts[0] // UNIT_SIZE if self.segments.starts else 0

    def _begin(self, offset: int) -> None:
        """Lets an empty queue begin at any offset; its file is filled up to there as stock does."""
        first = offset - offset % self._units_per_file
        self.segments.clear()
        self._count_files()
        if self.extension is not None:
            self.extension.clear()
        self._end_becomes(first)
        self.min_offset = self.next_offset = offset
        self.pending.extend([FILLER] * (offset - first))
