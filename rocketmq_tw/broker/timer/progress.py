"""How far the timer of a 5.x broker is: `config/timercheck` in stock's form.

A master writes its own. A slave follows its master's, so that whoever takes over its store delivers
no timed message twice.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from twisted.logger import Logger

from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFiles

#: Big-endian: time and offsets, then the data version's state version, timestamp and counter.
_CHECKPOINT = Struct(">7q")
#: Stock maps a page.
_FILE_SIZE = 4096
#: A master that is further behind than this has lost its file.
_LOST_MS = 10 * 60_000

log = Logger()


class TimerCheckpoint(NamedTuple):
    """Answer to 60. `read_ms`: timed messages due before it are delivered; `master_queue_offset`:
    those of the timer's topic before it are in the wheel of the master. `log_position` and
    `queue_offset` are a broker's own."""

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        return _CHECKPOINT.pack(*self)


def decode_timer_checkpoint(data: bytes) -> TimerCheckpoint:
    """Reads the answer to 60, or the file; raises `ValueError` where it is too short."""
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
        self._followers: list[Callable[[], None]] = []

    def load(self) -> None:
        """Takes what the file has. Where it is damaged a slave has the same again soon."""
        try:
            self.checkpoint = decode_timer_checkpoint(self._files.read(self._path))
        except FileNotFoundError:
            return
        except ValueError as error:
            log.warn("{path} is passed over: {error}", path=self._path, error=error)

    def take(self, checkpoint: TimerCheckpoint) -> None:
        """It is written: the broker itself is that far."""
        self.checkpoint = checkpoint
        self._dirty = False

    def note_log_position(self, position: int) -> None:
        """Makes durable that the wheel's file has no more of the timer log than what is in front of
        a place; with 0 that all that waits is to be looked for again. For a start, when nobody
        else uses it."""
        known = self.checkpoint or TimerCheckpoint()
        offset = known.queue_offset if position else 0
        noted = known._replace(log_position=min(known.log_position, position), queue_offset=offset)
        if noted != self.checkpoint:
            self.write(noted)
            self.checkpoint = noted

    def follow(self, master: TimerCheckpoint) -> None:
        """Takes over how far a master is; its own two fields stay as they are. Both of the master's
        go together, also a little back as after a kill: what was told with one is not delivered by
        the other. One that is far behind tells nothing of what is delivered here."""
        own = self.checkpoint or TimerCheckpoint()
        if master.read_ms < own.read_ms - _LOST_MS:
            return
        followed = master._replace(log_position=own.log_position, queue_offset=own.queue_offset)
        self._dirty = self._dirty or followed != self.checkpoint
        self.checkpoint = followed
        for callback in self._followers:
            callback()

    def on_followed(self, callback: Callable[[], None]) -> None:
        """Calls `callback` after each time that a master was followed."""
        self._followers.append(callback)

    @property
    def is_dirty(self) -> bool:
        """Whether a master was followed and the file does not say so."""
        return self._dirty

    def write(self, checkpoint: TimerCheckpoint) -> None:
        """Writes the file, durably, in any thread; `take` must follow."""
        data = checkpoint.encode().ljust(_FILE_SIZE, b"\0")
        write_atomic(self._files, self._path, data)
