"""Cutting the end off the log, as one operation of the whole broker.

What stands for messages behind the cut goes back first, durably: an offset in a file that is ahead
of its queue would pass over the messages that take those places next. Then nothing is synced while
the log is cut with its queues and its index, bit by bit, and all go on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.assembly import Assembly
from rocketmq_tw.broker.assembly.log_cut import LogCut
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.broker.writing.flush import Flusher
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.store.message_store import MessageStore

#: Records that are looked at in one step.
SLICE = 2_000

log = Logger()


class Truncation:
    """Cuts the log of `store`, one cut after the other; `parts` are asked what they have of its
    end, `in_slices` does long work bit by bit and `in_thread` what blocks."""

    def __init__(
        self,
        store: MessageStore,
        commit: Commit,
        dispatcher: Dispatcher,
        flusher: Flusher,
        parts: Assembly,
        in_slices: Callable[[Iterator[None]], Deferred[Any]],
        in_thread: InThread,
    ) -> None:
        self._store = store
        self._commit = commit
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._parts = parts
        self._in_slices = in_slices
        self._in_thread = in_thread
        self._working = DeferredLock()

    def over(self) -> Deferred[None]:
        """Fires once nothing is being cut."""
        return self._working.run(lambda: None)

    @inlineCallbacks
    def cut(self, end: int) -> Generator[Any, Any, None]:
        """Ends the log at `end`, where a record must start; durable when it fires. Nobody may
        append meanwhile. Fails where some part or the store cannot; what has gone back by then
        stays back."""
        yield self._working.acquire()
        try:
            yield from self._cut(end)
        finally:
            self._working.release()

    def _cut(self, end: int) -> Generator[Any, Any, None]:
        gone = self._store.end_offset - end
        log.info("the log is cut at {end}, {gone} bytes go", end=end, gone=gone)
        cut = LogCut(self._store, end)
        take_back = []
        for part in self._parts:
            take_back.append((yield part.truncating(cut)))
        yield self._in_slices(cut.look())
        for each in filter(None, take_back):
            yield each()
        yield self._flusher.pause()
        try:
            # It may be very many files.
            yield self._in_thread(self._store.settle_deletions)
            yield self._in_slices(self._store.truncate_to(end))
        finally:
            self._flusher.resume()
        # What stands in front of the cut had to wait for its queues.
        self._dispatcher.dispatch_later()
        # The one that there was may claim nothing any more: a crash would find all to be read.
        self._flusher.checkpoint_soon()
        for part in self._parts:
            part.truncated(end)

    @inlineCallbacks
    def end_at_whole_record(self) -> Generator[Deferred[Any], Any, None]:
        """Makes the log of a former slave one that messages can be appended to: all of it that is
        confirmed is in its queues, and a last record that is not whole is cut off. Fails where that
        cannot be."""
        store = self._store
        yield self._working.acquire()
        try:
            yield self._commit.make_durable()
            yield self._dispatcher.dispatch_all()
            end = store.dispatched_offset
            if store.dispatch_limit is not None and end < store.written_offset:
                end = yield self._whole_end(end)
            if end < store.written_offset:
                yield from self._cut(end)
        finally:
            self._working.release()

    @inlineCallbacks
    def _whole_end(self, start: int) -> Generator[Deferred[Any], Any, int]:
        """Fires with the offset behind the last whole record; one starts at `start`."""
        scan = self._store.scan(start)
        heads = iter(scan)

        def steps() -> Iterator[None]:
            while any(islice(heads, SLICE)):
                yield

        yield self._in_slices(steps())
        return scan.position
