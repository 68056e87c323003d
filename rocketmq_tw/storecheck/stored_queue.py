"""The files of one queue: its units, and their extras in `consumequeue_ext`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from rocketmq_tw.formats.flat import flat
from rocketmq_tw.formats.queue import EXTRA_HEAD, FIRST_ADDRESS, UNIT
from rocketmq_tw.storecheck.findings import Findings, Remedy
from rocketmq_tw.storecheck.layout import Sizes
from rocketmq_tw.storecheck.long_file import LongFile

_UNIT = flat(UNIT)
_SIZE = _UNIT.size
_EXTRA = flat(EXTRA_HEAD)
#: Units, and bytes of extras, that are read at once.
_WINDOW_UNITS = 256
_EXTRAS_WINDOW = 8192

#: Log offset of a record, its bytes, and the tags code or the address of an extra.
RawUnit = tuple[int, int, int]


class Windows:
    """The queues that have what they read last: `most` of them at most, for there may be a great
    many queues."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._queues: OrderedDict[StoredQueue, None] = OrderedDict()

    def keep(self, queue: StoredQueue) -> None:
        """Notes that a queue has read; the one that did so longest ago forgets its windows."""
        self._queues[queue] = None
        self._queues.move_to_end(queue)
        if len(self._queues) > self._most:
            former, _ = self._queues.popitem(last=False)
            former.forget_windows()


class StoredQueue:
    """A queue of the store at `root`, by queue offsets."""

    def __init__(
        self,
        root: str,
        topic: str,
        queue_id: int,
        sizes: Sizes,
        windows: Windows | None = None,
    ) -> None:
        self.name = f"{topic}/{queue_id}"
        self._root = root
        self._sizes = sizes
        self._windows = windows or Windows()
        self._units = LongFile(root, f"consumequeue/{self.name}", sizes.queue)
        self._window = b""
        self._window_first = 0
        self._extras: LongFile | None = None
        self._extras_window = b""
        self._extras_first = 0

    @property
    def is_there(self) -> bool:
        """Whether the queue has files."""
        return bool(self._units.starts)

    @property
    def begin(self) -> int:
        """Where the first file begins; 0 without files."""
        return self._units.min_offset // _SIZE

    @property
    def files_end(self) -> int:
        """Behind the last file; there may be zeros in front of it."""
        return self._units.files_end // _SIZE

    @property
    def end(self) -> int:
        """Behind the last unit that is not zeros; what is behind it is not looked at."""
        low = self.begin
        starts = [start for start in self._units.starts if self._is_written(start // _SIZE)]
        if not starts:
            return low
        low = starts[-1] // _SIZE
        high = (starts[-1] + self._units.file_size) // _SIZE
        while low + 1 < high:
            middle = (low + high) // 2
            if self._is_written(middle):
                low = middle
            else:
                high = middle
        return high if self._is_written(low) else low

    def _is_written(self, offset: int) -> bool:
        unit = self.unit_at(offset)
        return unit is not None and bool(unit[1])

    def unit_at(self, offset: int) -> RawUnit | None:
        """Returns the unit of a queue offset; None where no file has it."""
        data = self._units.read(_SIZE, offset * _SIZE)
        unit: RawUnit | None = _UNIT.unpack(data) if len(data) == _SIZE else None
        return unit

    def next_unit(self, offset: int) -> RawUnit | None:
        """Does the same as `unit_at`, and reads further ones with it, which are asked for next."""
        at = (offset - self._window_first) * _SIZE
        if not 0 <= at <= len(self._window) - _SIZE:
            self._window = self._units.read(_WINDOW_UNITS * _SIZE, offset * _SIZE)
            self._window_first, at = offset, 0
            self._windows.keep(self)
            if len(self._window) < _SIZE:
                return None
        unit: RawUnit = _UNIT.unpack_from(self._window, at)
        return unit

    def units(self, first: int, end: int) -> Iterator[tuple[int, RawUnit]]:
        """Yields queue offsets with the units that files have."""
        while first < end:
            data = self._units.read(min(end - first, 4096) * _SIZE, first * _SIZE)
            count = len(data) // _SIZE
            if not count:
                # A file is missing, or too short.
                later = (start for start in self._units.starts if start > first * _SIZE)
                first = -(-next(later, end * _SIZE) // _SIZE)
                continue
            for number, unit in enumerate(_UNIT.iter_unpack(data[: count * _SIZE])):
                yield first + number, unit
            first += count

    def offset_of(self, position: int, size: int) -> int | None:
        """Returns the queue offset whose unit leads to a record; None where none does. Units are in
        the order of the log."""
        low, high = self.begin, self.files_end
        while low < high:
            middle = (low + high) // 2
            unit = self.unit_at(middle)
            if unit is not None and unit[:2] == (position, size):
                return middle
            if unit is None or not unit[1] or unit[0] > position:
                high = middle
            else:
                low = middle + 1
        return None

    def place_of(self, offset: int) -> tuple[str, int]:
        """Returns the file below the store in which a unit is, and the byte there."""
        return self._units.name(offset * _SIZE)

    def extra_code(self, address: int, store_timestamp: int) -> int | None:
        """Returns the tags code of the extra at an address; None where there is none of a record
        that was stored at that time."""
        extras = self._extra_files
        at = address - FIRST_ADDRESS
        place = at - self._extras_first
        if not 0 <= place <= len(self._extras_window) - _EXTRA.size:
            self._extras_window = extras.read(_EXTRAS_WINDOW, at)
            self._extras_first, place = at, 0
        if len(self._extras_window) - place >= _EXTRA.size:
            size, code, stored, bits = _EXTRA.unpack_from(self._extras_window, place)
            if size == _EXTRA.size + bits and bits >= 0 and stored == store_timestamp:
                return int(code)
        return None

    def place_of_extra(self, address: int) -> tuple[str, int]:
        """Returns the file below the store in which an extra should be, and the byte there."""
        return self._extra_files.name(address - FIRST_ADDRESS)

    @property
    def _extra_files(self) -> LongFile:
        if self._extras is None:
            directory = f"consumequeue_ext/{self.name}"
            self._extras = LongFile(self._root, directory, self._sizes.extension)
        return self._extras

    def forget_windows(self) -> None:
        """Gives the memory back that what was read last takes."""
        self._window = self._extras_window = b""

    def check_names(self, findings: Findings) -> None:
        """Reports names that no file of a queue has."""
        self._units.check_names(findings)

    def check_files(self, findings: Findings) -> None:
        """Reports files of a wrong size or place, and missing ones."""
        self._units.check_files(findings, long=Remedy.REPAIR)
