"""Decides which of the oldest files are removed, by age and by how full the disk is, and removes
them together with what points to them in queues and index. What waits is not removed by age."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import DiskUsage, IFiles
from rocketmq_tw.store.checkpointing import Checkpointing
from rocketmq_tw.store.contents import StoreContents
from rocketmq_tw.store.index import MessageIndex
from rocketmq_tw.store.interface import Disks, ILog
from rocketmq_tw.store.queues import QueueTable
from rocketmq_tw.store.still_needed import Need, StillNeeded
from rocketmq_tw.store.time_search import log_store_time

_HOUR = 3_600_000
#: Milliseconds within which a disk may take to show the room of removed files: some file systems
#: free it behind the removal, and others may have a file open for a while.
FREED_WITHIN_MS = 60_000


class Pressure(Enum):
    """How full the disk is; each level includes what the levels before it mean."""

    NONE = 0
    #: Expired files go at any hour.
    RECLAIM = 1
    #: The oldest files go even before they expire.
    FORCE = 2
    #: And nothing more is stored.
    FULL = 3


def _forced_percent(config: MessageStoreConfig) -> int:
    """Returns the percentage of a disk beyond which files are removed by force; kept in bounds as
    in stock."""
    return min(max(config.disk_space_clean_forcibly_ratio, 30), 85)


def disk_pressure(config: MessageStoreConfig, usage: DiskUsage) -> Pressure:
    """Returns the pressure that stock's three ratios see; like stock, the upper two are kept in
    bounds."""
    percent = 100 * usage.used / usage.total if usage.total > 0 else 0
    if percent > min(max(config.disk_space_warning_level_ratio, 35), 90):
        return Pressure.FULL
    if percent > _forced_percent(config):
        return Pressure.FORCE
    if percent > config.disk_max_used_space_ratio:
        return Pressure.RECLAIM
    return Pressure.NONE


def worst_pressure(config: MessageStoreConfig, disks: Iterable[DiskUsage]) -> Pressure:
    """Returns the pressure of the fullest disk: nothing can be stored where any of them is full."""
    return max((disk_pressure(config, disk) for disk in disks), key=lambda found: found.value)


def is_delete_hour(delete_when: str, now_ms: int) -> bool:
    """Returns whether the local hour is one of `deleteWhen`, as in `04` or `04;16`."""
    hour = datetime.fromtimestamp(now_ms / 1000).hour
    return any(word.strip().isdigit() and int(word) == hour for word in delete_when.split(";"))


def bytes_beyond_limit(config: MessageStoreConfig, disk: DiskUsage) -> int:
    """Returns how many bytes have to go from the disk of the log until nothing is removed by
    force."""
    return disk.used - disk.total * _forced_percent(config) // 100


class Removal(NamedTuple):
    """How many of the oldest files go: those past their time, and behind them those that go by
    force, since the disk is too full."""

    expired: int
    forced: int = 0
    #: So many that are past their time stay, since what waits stands there.
    kept: int = 0


def may_remove(
    config: MessageStoreConfig, pressure: Pressure, now_ms: int, *, at_any_hour: bool
) -> bool:
    """Returns whether any file may go now, however old it is."""
    is_time = at_any_hour or is_delete_hour(config.delete_when, now_ms)
    return is_time or pressure is not Pressure.NONE


def files_to_remove(
    config: MessageStoreConfig,
    last_writes: Sequence[int],
    pressure: Pressure,
    now_ms: int,
    *,
    at_any_hour: bool = False,
    files_beyond_limit: int = 0,
    unneeded: int | None = None,
) -> Removal:
    """`last_writes` has the time in milliseconds of the last write to each file that may go, oldest
    first. `files_beyond_limit`: so many have to go until the disk is no longer too full; no more
    are removed by force. `unneeded`: in so many of the first nothing waits, in the others something
    may; None: in all."""
    if not may_remove(config, pressure, now_ms, at_any_hour=at_any_hour):
        return Removal(0)
    may_go = last_writes[: config.delete_file_batch_max]
    reserved_since = now_ms - config.file_reserved_time * _HOUR
    expired = 0
    while expired < len(may_go) and may_go[expired] <= reserved_since:
        expired += 1
    free = expired if unneeded is None else min(expired, unneeded)
    if not config.clean_file_forcibly_enable or pressure.value < Pressure.FORCE.value:
        return Removal(free, 0, expired - free)
    most = max(min(files_beyond_limit, len(may_go)), free)
    return Removal(free, most - free, max(expired - most, 0))


class _Removed(NamedTuple):
    """Files of `size` bytes went when the disk had `used` bytes in use and the log ended at `end`;
    the disk may show their room late, until `until_ms`."""

    size: int
    used: int
    end: int
    until_ms: int


class FreedRoom:
    """Room of removed files that their disk does not show as free yet. `used` is what the disk has
    in use, in bytes, `end` where the log ends: what was stored since is no room that is missing."""

    def __init__(self) -> None:
        self._removed: deque[_Removed] = deque()

    def removed(self, size: int, used: int, end: int, now_ms: int) -> None:
        """Files of `size` bytes are removed now."""
        self._removed.append(_Removed(size, used, end, now_ms + FREED_WITHIN_MS))

    def unseen(self, used: int, end: int, now_ms: int) -> int:
        """Returns how many bytes are still to be freed."""
        removed = self._removed
        while removed and now_ms >= removed[0].until_ms:
            removed.popleft()
        if not removed:
            return 0
        first = removed[0]
        seen = first.used + max(end - first.end, 0) - used
        return max(sum([each.size for each in removed]) - max(seen, 0), 0)


#: Queues that one step looks at; in each some twenty units may be read.
_STEP = 50


class Retention:
    """Removes the oldest files of one store. `is_disk_full`, as the last look found it: nothing
    more is stored. `warn` is told in words of each removal of files that were not past their time,
    or in which something waits, and of files that stay for that."""

    def __init__(
        self,
        config: MessageStoreConfig,
        files: IFiles,
        root: str,
        contents: StoreContents,
        checkpointing: Checkpointing,
        warn: Callable[[str], None],
    ) -> None:
        self.is_disk_full = False
        #: As they were measured last.
        self.disks = Disks(DiskUsage(0, 0), DiskUsage(0, 0))
        self._pressure = Pressure.NONE
        #: The keepers of messages that wait.
        self.still_needed = StillNeeded()
        self._config = config
        self._files = files
        self._root = root
        self._log = contents.log
        self._queues = contents.queues
        self._index = contents.index
        self._checkpointing = checkpointing
        self._warn = warn
        self._freed = FreedRoom()
        #: What waits in files that stayed the last time.
        self._kept_for: list[str] = []

    def measure(self) -> Disks:
        """Returns how full the disks are; blocks, in any thread."""
        return Disks(self._files.usage(self._log.directory), self._files.usage(self._root))

    def take(self, disks: Disks) -> None:
        """Takes in what was measured."""
        self.disks = disks
        self._pressure = worst_pressure(self._config, set(disks))
        self.is_disk_full = self._pressure is Pressure.FULL

    def run(
        self, dispatched: int, now_ms: int, *, at_any_hour: bool, disks: Disks | None
    ) -> Iterator[int]:
        """Removes what may go of a log whose queues have it up to `dispatched`; see
        `IMessageStore.clean`. In steps between which the store may change."""
        self.take(self.measure() if disks is None else disks)
        removal = self._choose(dispatched, now_ms, at_any_hour, ())
        if removal.expired or removal.forced:
            needs: list[Need] = []
            for _ in self.still_needed.find(needs):
                yield 0
            # Again, since the store may have changed.
            if disks is None:
                self.take(self.measure())
            removal = self._choose(dispatched, now_ms, at_any_hour, needs)
            self._report(removal, needs)
        count = removal.expired + removal.forced
        if count:
            used = self.disks.log.used
            self._freed.removed(count * self._log.file_size, used, self._log.end_offset, now_ms)
        first_left = self._log.file_starts[count] if count else 0
        yield from _remove_oldest(
            first_left, self._log, self._queues, self._index, self._checkpointing
        )

    def _choose(
        self, dispatched: int, now_ms: int, at_any_hour: bool, needs: Collection[Need]
    ) -> Removal:
        log, config, log_disk = self._log, self._config, self.disks.log
        if not may_remove(config, self._pressure, now_ms, at_any_hour=at_any_hour):
            # Without a look at the files, for which the disk may have to be asked.
            return Removal(0)
        # What queues and index have in memory only must come from the log again after a crash.
        done = min(log.flushed_offset, dispatched, self._checkpointing.last.safe_offset)
        times = _last_writes(log, done, config.delete_file_batch_max, now_ms)
        first = min((need.offset for need in needs), default=done)
        # Its files free no room on another disk, on which the rest of the store may be.
        unseen = self._freed.unseen(log_disk.used, log.end_offset, now_ms)
        beyond = bytes_beyond_limit(config, log_disk) - unseen
        return files_to_remove(
            config,
            times,
            self._pressure,
            now_ms,
            at_any_hour=at_any_hour,
            files_beyond_limit=-(-beyond // log.file_size),
            unneeded=sum(following <= first for following in log.file_starts[1:]),
        )

    def _report(self, removal: Removal, needs: Collection[Need]) -> None:
        """Says which files go by force, what is lost with them, and for what others stay."""
        starts, count = self._log.file_starts, removal.expired + removal.forced
        if removal.forced:
            lost = [need.what for need in needs if need.offset < starts[count]]
            self._warn(
                f"the disk is fuller than {_forced_percent(self._config)} %"
                f" (diskSpaceCleanForciblyRatio): {removal.forced} files of the log,"
                f" {removal.forced * self._log.file_size >> 20} MiB, go before their time"
                " (fileReservedTime)"
                + (f"; what waits there is lost: {', '.join(lost)}" if lost else "")
            )
        kept_for: list[str] = []
        if removal.kept:
            end = starts[count + removal.kept]
            kept_for = [need.what for need in needs if need.offset < end]
            if kept_for != self._kept_for:
                self._warn(
                    f"{removal.kept} files of the log or more are past their time"
                    f" (fileReservedTime) and stay, since messages wait there:"
                    f" {', '.join(kept_for)}"
                )
        self._kept_for = kept_for


def _last_writes(log: ILog, done: int, most: int, now_ms: int) -> list[int]:
    """Returns when each of the oldest files was written last, in milliseconds since 1970, oldest
    first: of those that end at or before `done`, `most` of them at most, and never of the
    newest.

    The record behind a file tells by the clock of the master that stored it, the file itself by
    this machine's, as with stock; the later one counts: where clocks differ nothing goes early.
    What is still to come is no such time: a clock was wrong, and what was written later tells.
    """
    boundaries = list(pairwise(log.file_starts))
    times: list[int] = []
    for number, (start, following) in enumerate(boundaries):
        if following > done or len(times) == most:
            break
        moment = log_store_time(log, log.first_record(following))
        if moment < 0:
            break
        if moment > now_ms:
            later = (log_store_time(log, log.first_record(end)) for _, end in boundaries[number:])
            moment = next((told for told in later if 0 <= told <= now_ms), moment)
        written = log.modified_ms(start)
        times.append(max(moment, written) if written <= now_ms else moment)
    return times


def _remove_oldest(
    first_left: int,
    log: ILog,
    queues: QueueTable,
    index: MessageIndex | None,
    checkpointing: Checkpointing,
) -> Iterator[int]:
    """Removes the files of the log in front of the one that starts at `first_left`, and what only
    points into them, though of each queue one file at most between two checkpoints; in steps
    between which the store may change, each of which gives how many files it removed."""
    # By where it starts, since others may remove files as well.
    while len(log.file_starts) > 1 and log.file_starts[0] < first_left:
        log.remove_first()
        # One at a time, so that what is removed can be made durable in a thread before the next.
        yield 1
    removed = 0
    if index is not None:
        removed += index.remove_before(log.min_offset)
    for number, queue in enumerate(queues, 1):
        # One that was deleted meanwhile may have a successor in its place.
        if (first_left or len(queue.segments.starts) != 1) and queues.has(queue):
            safe_offset = checkpointing.last.safe_offset
            removed += queue.remove_before(log.min_offset, safe_offset, *checkpointing.rounds)
        if number % _STEP == 0:
            yield removed
            removed = 0
    yield removed
