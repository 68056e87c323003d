"""Removes files of the store that are past their retention, while the reactor waits for no disk.

How full the disks are is measured in a thread, and each file of the log that went is made durable
there before the next one goes. Which files go: `store/retention.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.runtime.interludes import in_slices_with
from rocketmq_tw.runtime.slices import InSlices
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.store.interface import Disks
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.place import PlaceFound


class Cleaning:
    """Removes the files of one store; `now_ms` gives milliseconds since 1970."""

    def __init__(
        self,
        store: MessageStore,
        now_ms: Callable[[], int],
        in_thread: InThread,
        in_slices: InSlices,
    ) -> None:
        self._store = store
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._in_slices = in_slices

    @inlineCallbacks
    def run(self, *, at_any_hour: bool = False) -> Generator[Deferred[Any], Any, int]:
        """Removes what may go now, see `IMessageStore.clean`; fires with the number of files. Fails
        with what that raises."""
        store = self._store
        if store.gone:
            return 0
        look = store.place.prepare()

        def measure() -> tuple[PlaceFound, Disks]:
            # Files are removed by their names: not of what has been put in the store's place.
            return look(), store.retention.measure()

        found, disks = yield self._in_thread(measure)
        store.place.take(found)
        removals = store.clean(self._now_ms(), at_any_hour=at_any_hour, disks=disks)
        removed = 0

        def steps() -> Iterator[None]:
            nonlocal removed
            for number in removals:
                removed += number
                yield

        yield in_slices_with(
            steps(),
            lambda: store.has_unsynced_removals,
            store.sync_removals,
            self._in_slices,
            self._in_thread,
        )
        return removed
