"""Writing how far consumers and delay levels are, never ahead of the log.

After a power loss the log may end earlier than it did. An offset in a file that stands for more
than the log still has would pass over the messages that take those places next, and over one that
was given back just before. So the log is made durable first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.store.errors import NotWritableError


class Progress(Protocol):
    """A table of offsets with a file."""

    def pending_write(self) -> Callable[[], bytes] | None:
        """What encodes the table, in any thread; None where nothing changed since."""
        ...

    def write(self, data: bytes) -> None:
        """Writes the file, in any thread."""
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
    encode = table.pending_write()
    if encode is None:
        return
    try:
        data = yield in_thread(encode)
        # Behind it: an offset that was taken meanwhile stands for what is written by now.
        if not (yield commit.flushed()):
            raise NotWritableError("the log could not be made durable")
        yield in_thread(lambda: table.write(data))
    except Exception:
        table.write_failed()
        raise
