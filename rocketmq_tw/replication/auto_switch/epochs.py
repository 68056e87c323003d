"""The table of which master wrote which stretch of the log: pure (docs/formats/auto-switch-ha.md).

Each master of a group has an epoch, a number that only grows, and begins it where its log ends. An
epoch ends where the next one starts. Two logs that have an epoch with one start are the same up to
where the shorter of the two ends it, since one broker alone wrote it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

#: The epoch of what a log had before its group had a controller.
BEFORE_EPOCHS = 0
#: Epochs that a log without a byte keeps.
MAX_EMPTY = 100


class EpochEntry(NamedTuple):
    """One master's epoch, and the log offset where it starts."""

    epoch: int
    start: int


class Covering(NamedTuple):
    """The epoch that has an offset, and where it ends; `end` None: it goes on."""

    entry: EpochEntry
    end: int | None


class Agreement(NamedTuple):
    """Two logs are the same up to `offset`, where the epoch of `entry` ends in one of them."""

    entry: EpochEntry
    offset: int


class EpochError(ValueError):
    """An epoch that cannot follow those that the log has."""


class EpochTable:
    """The epochs of one log in order. Raises `EpochError` where epochs do not grow, or where one
    starts before the one in front of it."""

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries = tuple(entries)
        for former, latter in zip(self._entries, self._entries[1:], strict=False):
            if latter.epoch <= former.epoch or latter.start < former.start:
                raise EpochError(f"epoch {latter} cannot follow {former}")

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All epochs, the oldest first."""
        return self._entries

    @property
    def last(self) -> EpochEntry | None:
        """The newest epoch; None where there is none."""
        return self._entries[-1] if self._entries else None

    def covering(self, offset: int) -> Covering | None:
        """Returns the epoch that the byte at `offset` belongs to; None in front of the first
        epoch."""
        number = bisect_right(self._entries, offset, key=lambda entry: entry.start)
        if not number:
            return None
        end = self._entries[number].start if number < len(self._entries) else None
        return Covering(self._entries[number - 1], end)

    def begin(self, epoch: int, end: int, log_start: int) -> None:
        """A master's `epoch` begins behind its log, which has `log_start` to `end`. Raises
        `EpochError` where a later epoch is known.

        A known epoch of that number is another one, since controllers that are started anew count
        from 1 again: it goes away, as its bytes belong to the epoch in front for who does not know
        better. An epoch that starts at the log's end has no bytes and goes away: two epochs with
        one start could not be told apart by their stretches. Only where the log has no byte at all
        they stay, since a stock slave without one asks for the epoch that it knows. What lies in
        front of all epochs becomes `BEFORE_EPOCHS`.
        """
        last = self.last
        if last is not None and last.epoch > epoch:
            raise EpochError(
                f"epoch {epoch} is over: this log has {last.epoch}. Where the controllers have lost"
                ' their store, docs/controller.md says what to do: "Controllers that were started'
                ' anew"'
            )
        kept = [entry for entry in self._kept_in_front(end) if entry.epoch < epoch]
        kept.append(EpochEntry(epoch, end))
        if kept[0].start > log_start and kept[0].epoch > BEFORE_EPOCHS:
            kept.insert(0, EpochEntry(BEFORE_EPOCHS, 0))
        self._entries = tuple(kept)

    def learn(self, entry: EpochEntry) -> bool:
        """Takes the next epoch of the master's log; False where it is known. Raises `EpochError`
        where it cannot follow the last one."""
        last = self.last
        if entry == last:
            return False
        if last is not None and entry.epoch <= last.epoch:
            raise EpochError(f"the master's epoch is {entry}, this log has {last}")
        self._entries = (*self._kept_in_front(entry.start), entry)
        return True

    def restart(self, master: EpochTable) -> None:
        """Takes the epochs that the master began at 0, since this log has no byte. One that has
        bytes and is over is left out: the log may come to lack some of them."""
        began = [entry for entry in master.entries if entry.start == 0]
        if began and began[-1] != master.last:
            began.pop()
        self._entries = tuple(began)

    def adopt(self, master: EpochTable, point: int) -> None:
        """Takes the master's epochs up to `point`, to which both logs are the same, whatever epochs
        this one had. Keeps older epochs that the master has forgotten with its oldest files."""
        theirs = [entry for entry in master.entries if entry.start < point]
        if theirs:
            first = theirs[0]
            older = [
                entry
                for entry in self._entries
                if entry.epoch < first.epoch and entry.start < first.start
            ]
            self._entries = (*older, *theirs)

    def truncate_suffix_by_offset(self, offset: int) -> None:
        """Forgets the epochs that start at `offset` or behind: the log was cut there."""
        self._entries = tuple(entry for entry in self._entries if entry.start < offset)

    def truncate_prefix_by_offset(self, offset: int) -> bool:
        """Forgets the epochs that end at or before `offset`; whether there were any. The newest
        one has no end and stays."""
        ends = [entry.start for entry in self._entries[1:]]
        gone = bisect_right(ends, offset)
        self._entries = self._entries[gone:]
        return gone > 0

    def agreement(self, end: int, master: EpochTable, master_end: int) -> Agreement | None:
        """Returns up to where this log, which ends at `end`, is the master's, which ends at
        `master_end`: the newest epoch that both have with one start, and the smaller of its ends.
        Where they have none in common but know all theirs from the first byte on, they differ from
        there. None where that is not known."""
        theirs = dict(master._stretches(master_end))
        for entry, to in reversed(self._stretches(end)):
            if entry in theirs:
                return Agreement(entry, min(to, theirs[entry]))
        firsts = [table._entries[0] for table in (self, master) if table._entries]
        if len(firsts) == 2 and all(
            entry.start == 0 and entry.epoch > BEFORE_EPOCHS for entry in firsts
        ):
            return Agreement(firsts[0], 0)
        return None

    def _kept_in_front(self, start: int) -> tuple[EpochEntry, ...]:
        """Returns the epochs that stay where one follows that starts at `start`."""
        if start == 0:
            return self._entries[-MAX_EMPTY:]
        return tuple(entry for entry in self._entries if entry.start < start)

    def _stretches(self, end: int) -> list[tuple[EpochEntry, int]]:
        """Returns each epoch and where it ends; those that start behind `end` have nothing in the
        log."""
        known = [entry for entry in self._entries if entry.start <= end]
        return list(zip(known, [*(entry.start for entry in known[1:]), end], strict=False))
