"""Tables that are written to their files at intervals, not at each change, and never ahead of the
log: consumer offsets, delay levels, and others that tell how far something is.

After a power loss the log may end earlier than it did. An offset in a file that stands for more
than the log still has would pass over the messages that take those places next, and over one that
was given back just before. So the log is made durable first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.store.errors import NotWritableError


class WriteBehindTable(ABC):
    """A table that knows whether it changed since it was last written.

    `write_file` gets the file's new content, in any thread, and raises `OSError`. A subclass sets
    `_dirty` with each change.
    """

    def __init__(self, write_file: Callable[[bytes], None]) -> None:
        self._write_file = write_file
        self._dirty = False
        self._saving = Serial()

    @abstractmethod
    def _encoder(self) -> Callable[[], bytes]:
        """Returns what makes the file's bytes, in any thread, also while the table changes."""

    def pending_write(self) -> Callable[[], bytes] | None:
        """Returns what makes the bytes to `write`, in any thread; None where nothing changed. Where
        making or writing them fails, `write_soon` makes it due again."""
        if not self._dirty:
            return None
        self._dirty = False
        return self._encoder()

    def write(self, data: bytes) -> None:
        """Writes the file, in any thread; raises `OSError`."""
        self._write_file(data)

    def write_soon(self) -> None:
        """Makes a write due, whether or not the table changed."""
        self._dirty = True

    def save(
        self, in_thread: InThread, flush_log: Callable[[], Deferred[bool]] | None = None
    ) -> Deferred[None]:
        """Writes the file, if the table changed, after what `flush_log` waits for, which fires with
        whether the log is durable. Fails where either cannot be; the next call tries again. Saves
        wait for each other: what an earlier one writes never comes behind a later one's."""
        return self._saving.run(self._save, in_thread, flush_log)

    @inlineCallbacks
    def _save(
        self, in_thread: InThread, flush_log: Callable[[], Deferred[bool]] | None
    ) -> Generator[Deferred[Any], Any, None]:
        encode = self.pending_write()
        if encode is None:
            return
        try:
            data = yield in_thread(encode)
            # After encoding: an offset that was taken meanwhile stands for what is in the log now.
            if flush_log is not None and not (yield flush_log()):
                raise NotWritableError("the log could not be made durable")
            yield in_thread(lambda: self.write(data))
        except Exception:
            self.write_soon()
            raise


def write_progress(table: WriteBehindTable, commit: Commit, in_thread: InThread) -> Deferred[None]:
    """Writes `table`, if it changed, once all that is in the log by now is durable; fails where
    either cannot be, and the next call tries again."""
    return table.save(in_thread, commit.flushed)
