"""Writing how far consumers and delay levels are, never ahead of the log.

After a power loss the log may end earlier than it did. An offset in a file that stands for more
than the log still has would pass over the messages that take those places next, and over one that
was given back just before. So the log is made durable first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.interfaces import InThread
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.store.errors import NotWritableError


class Progress(Protocol):
    """A table of offsets with a file."""

    def pending_write(self) -> Callable[[], None] | None:
        """The write of what the table has now; None where nothing changed."""
        ...

    def write_failed(self) -> None:
        """The write is due again."""
        ...


@inlineCallbacks
def write_progress(
    table: Progress, commit: Commit, in_thread: InThread
) -> Generator[Deferred[Any], Any, None]:
    """Writes `table`, if it changed, once all that is in the log by now is durable; fails where
    either cannot be, and the next call tries again."""
    write = table.pending_write()
    if write is None:
        return
    try:
        if not (yield commit.flushed()):
            raise NotWritableError("the log could not be made durable")
        yield in_thread(write)
    except Exception:
        table.write_failed()
        raise
