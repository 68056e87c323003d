"""Keeps how far the timer is: stock 5.x's `config/timercheck` (docs/formats/timers.md).

A master writes its own. A slave follows its master's, so that a broker that takes over its store
delivers no timed message twice.
"""

from __future__ import annotations

import posixpath
from struct import Struct
from typing import NamedTuple

from twisted.logger import Logger

from rocketmq_tw.files.atomic import settle, write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.runtime.listeners import Listeners

#: Big-endian: time and offsets, then the data version's state version, timestamp and counter.
_CHECKPOINT = Struct(">7q")
#: Stock maps a page.
_FILE_SIZE = 4096
#: A master that is further behind than this, and wrote its file less often, has lost it.
_LOST_MS = 10 * 60_000

log = Logger()


class TimerCheckpoint(NamedTuple):
    """The content of the file, and of the answer to request 60.

    `read_ms`: timed messages due before it (ms since 1970) are delivered. `master_queue_offset`:
    the messages of the timer's topic before it are in the master's wheel. `log_position` (bytes of
    the timer log) and `queue_offset` are the broker's own. The last three are a data version.
    """

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """Returns the seven big-endian longs."""
        return _CHECKPOINT.pack(*self)


def decode_timer_checkpoint(data: bytes) -> TimerCheckpoint:
    """Reads the answer to request 60, or the file; raises `ValueError` where it is too short."""
    if len(data) < _CHECKPOINT.size:
        raise ValueError(f"a timer checkpoint has {_CHECKPOINT.size} bytes, not {len(data)}")
    return TimerCheckpoint(*_CHECKPOINT.unpack_from(data))


class TimerProgress:
    """The checkpoint and its file."""

    def __init__(self, files: IFiles, directory: str) -> None:
        #: None until there was one.
        self.checkpoint: TimerCheckpoint | None = None
        self._files = files
        self._path = posixpath.join(directory, "timercheck")
        self._dirty = False
        #: Told after each time that a master's checkpoint was followed.
        self.followed: Listeners[()] = Listeners("a master's timer checkpoint was followed")

    def load(self) -> None:
        """Takes what the file has, if there is one. A damaged one is logged and ignored: a slave
        soon has its master's again. What it has is durable when it returns: `note_log_position`
        does not write it once more. Raises `OSError`."""
        settle(self._files, self._path)
        try:
            self.checkpoint = decode_timer_checkpoint(self._files.read(self._path))
        except FileNotFoundError:
            return
        except ValueError as error:
            log.warn("{path} is passed over: {error}", path=self._path, error=error)

    def take(self, checkpoint: TimerCheckpoint) -> None:
        """Takes over `checkpoint`, which the file has by now."""
        self.checkpoint = checkpoint
        self._dirty = False

    def note_log_position(self, position: int) -> None:
        """Makes durable that the wheel's file has no more of the timer log than its first
        `position` bytes; with 0, that all waiting messages must be looked for again. To be called
        while nothing else is written; raises `OSError`."""
        known = self.checkpoint or TimerCheckpoint()
        offset = known.queue_offset if position else 0
        noted = known._replace(log_position=min(known.log_position, position), queue_offset=offset)
        if noted != self.checkpoint:
            self.write(noted)
            self.checkpoint = noted

    def follow(self, master: TimerCheckpoint) -> None:
        """Takes over how far `master` is, and keeps the two fields that are this broker's own.

        `read_ms` and `master_queue_offset` go together, also a little back, as after a kill of the
        master: a message that the older pair lacks would else not be delivered. A master that is
        far behind is followed as well, since its clock may have been set back; but not where it
        counts the writes of its file anew, which is lost then.
        """
        own = self.checkpoint or TimerCheckpoint()
        if master.read_ms < own.read_ms - _LOST_MS and master.counter < own.counter:
            return
        followed = master._replace(log_position=own.log_position, queue_offset=own.queue_offset)
        self._dirty = self._dirty or followed != self.checkpoint
        self.checkpoint = followed
        self.followed.tell()

    def reached(self, position: TimerCheckpoint) -> None:
        """Takes over how far this broker has delivered, before the file has it: that a disk is full
        is no reason to tell others less. The two fields that say what the timer's own files have
        stay."""
        own = self.checkpoint or TimerCheckpoint()
        self.checkpoint = position._replace(
            log_position=own.log_position, queue_offset=own.queue_offset
        )
        self._dirty = True

    @property
    def is_dirty(self) -> bool:
        """Whether the checkpoint is not in the file yet."""
        return self._dirty

    def write(self, checkpoint: TimerCheckpoint) -> None:
        """Writes the file durably, in any thread; `take` must follow. Raises `OSError`."""
        data = checkpoint.encode().ljust(_FILE_SIZE, b"\0")
        write_atomic(self._files, self._path, data)
