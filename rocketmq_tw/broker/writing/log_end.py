"""The end of the log: where its last whole record ends, and how it is cut with its queues.

Rules: docs/durability.md, "Errors of the disk".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from zope.interface import implementer

from rocketmq_tw.broker.assembly.truncation import ILogEnd
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.broker.writing.flush import Flusher
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.store.message_store import MessageStore

#: Records that are looked at in one step.
_STEP = 2_000


@implementer(ILogEnd)
class LogEnd:
    """The end of the log of `store`, for `Truncation`."""

    def __init__(
        self,
        store: MessageStore,
        commit: Commit,
        dispatcher: Dispatcher,
        flusher: Flusher,
        in_slices: Slices,
        in_thread: InThread,
    ) -> None:
        self.store = store
        self._commit = commit
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._in_slices = in_slices
        self._in_thread = in_thread

    @inlineCallbacks
    def whole_end(self) -> Generator[Deferred[Any], Any, int]:
        """See `ILogEnd`."""
        store = self.store
        yield self._commit.make_durable()
        yield self._dispatcher.dispatch_all()
        end = store.dispatched_offset
        if store.dispatch_limit is None or end >= store.written_offset:
            return end
        scan = store.scan(end)
        heads = iter(scan)

        def steps() -> Iterator[None]:
            while any(islice(heads, _STEP)):
                yield

        yield self._in_slices(steps())
        return scan.position

    @inlineCallbacks
    def cut(self, end: int) -> Generator[Deferred[Any], Any, None]:
        """See `ILogEnd`. Nothing is synced while the log is cut, bit by bit."""
        yield self._flusher.pause()
        try:
            # It may be very many files.
            yield self._in_thread(self.store.settle_deletions)
            yield self._in_slices(self.store.truncate_to(end))
        finally:
            self._flusher.resume()
        # What stands in front of the cut had to wait for its queues.
        self._dispatcher.dispatch_later()
        # The former checkpoint must claim nothing more: after a crash all is read again.
        self._flusher.checkpoint_soon()
