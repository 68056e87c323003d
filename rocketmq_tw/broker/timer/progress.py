"""How far the timer of a 5.x master is: `config/timercheck` in stock's form.

No timer runs here, so a master has what an earlier broker left in the file and changes nothing. A
slave follows its master's, so that whoever takes over its store delivers no timed message twice.
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

    def load(self) -> None:
        """Takes what the file has. Where it is damaged a slave has the same again soon."""
        try:
            self.checkpoint = decode_timer_checkpoint(self._files.read(self._path))
        except FileNotFoundError:
            return
        except ValueError as error:
            log.warn("{path} is passed over: {error}", path=self._path, error=error)

    def follow(self, master: TimerCheckpoint) -> None:
        """Takes over where a master is further; its own two fields stay as they are."""
        own = self.checkpoint or TimerCheckpoint()
        followed = master._replace(
            read_ms=max(own.read_ms, master.read_ms),
            master_queue_offset=max(own.master_queue_offset, master.master_queue_offset),
            log_position=own.log_position,
            queue_offset=own.queue_offset,
        )
        self._dirty = self._dirty or followed != self.checkpoint
        self.checkpoint = followed

    def pending_write(self) -> Callable[[], bytes] | None:
        """What gives the bytes to `write`, to be called in any thread; None where nothing changed.

        Where one of them fails, `write_failed` makes it due again.
        """
        if not self._dirty or self.checkpoint is None:
            return None
        self._dirty = False
        data = self.checkpoint.encode().ljust(_FILE_SIZE, b"\0")
        return lambda: data

    def write(self, data: bytes) -> None:
        write_atomic(self._files, self._path, data)

    def write_failed(self) -> None:
        self._dirty = True
