"""Checks, before each link, whether a slave's log is a stretch of its master's.

The classic HA protocol carries offsets only (docs/formats/ha.md): a slave that was a master, or
whose master lost its log's end, would append behind bytes that its master does not have, and
nothing would show it. So the newest whole record of the slave's log, in any queue or in none, is
compared with what the master has at the same offset.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import takewhile
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.replicas.master_calls import MasterCalls
from rocketmq_tw.replication.auto_switch.client import RecordComparison
from rocketmq_tw.replication.links.ends import LinkError
from rocketmq_tw.runtime.slices import InSlices, every
from rocketmq_tw.store.interface import IMessageStore

_ADVICE = (
    "nothing was changed. Stop this broker, move its store away and start it empty; or, where it"
    " has messages that must not be lost, make it the master (docs/replication.md)"
)


#: In a group with controllers, where the rest of the store says who the broker is.
CONTROLLED_ADVICE = (
    "nothing was changed. Stop this broker, move its store away but for brokerIdentity, and start"
    " it: it copies all that the master has; where it has messages that must not be lost, read"
    ' docs/controller.md first, "A broker that follows no master"'
)


@inlineCallbacks
def newest_record(
    store: IMessageStore, file_size: int, in_slices: InSlices, end: int
) -> Generator[Deferred[Any], Any, int]:
    """Fires with where the newest whole record in front of `end` starts; -1 where there is none.

    The queues know most of the way, and at most a file's worth of records is read: of a topic that
    was deleted the queues know nothing.
    """
    if end <= store.min_physical_offset:
        return -1
    last_file = (end - 1) // file_size * file_size
    queued = store.last_record_offset if store.last_record_offset < end else -1
    start = max(queued, last_file, store.min_physical_offset)
    newest = queued
    records = takewhile(lambda head: head.physical_offset < end, store.records(start))

    def look_on() -> Iterator[None]:
        nonlocal newest
        for number, head in enumerate(records):
            newest = head.physical_offset
            if every(number):
                yield

    yield in_slices(look_on())
    return newest


class LogMatching:
    """Compares the log of `store`, whose files have `file_size` bytes, with a master's."""

    def __init__(
        self, calls: MasterCalls, store: IMessageStore, file_size: int, in_slices: InSlices
    ) -> None:
        self._calls = calls
        self._store = store
        self._file_size = file_size
        self._in_slices = in_slices

    @inlineCallbacks
    def check(self, address: str) -> Generator[Deferred[Any], Any, None]:
        """Asks the master at `address`; fails with `LinkError` that says what to do where the logs
        are not one. An empty store may follow any master whose files have its size."""
        yield self._check_file_size(address)
        end = self._store.written_offset
        if end == 0:
            return
        log = yield self._calls.log_range(address)
        if end > log.end:
            raise LinkError(
                f"this log ends at {end}, the master's at {log.end} before it; {_ADVICE}"
            )
        if end < log.start:
            raise LinkError(
                f"this log ends at {end}, the master's starts only at {log.start}: what lies"
                f" between is gone; {_ADVICE}"
            )
        offset = yield self._newest_before(end)
        if offset < log.start:
            return
        own = self._store.record_at(offset)
        theirs = yield self._calls.record(address, offset)
        if own is not None and own != theirs:
            raise LinkError(f"the master has another message at {offset} than this log; {_ADVICE}")

    @inlineCallbacks
    def compare_before(
        self, address: str, point: int
    ) -> Generator[Deferred[Any], Any, RecordComparison]:
        """Compares the newest record in front of the offset `point` with the master's record, which
        it asks for at `address`. Fails with `LinkError` that says what to do where the master's log
        starts behind `point`, so that nothing of it can follow."""
        yield self._check_file_size(address)
        log = yield self._calls.log_range(address)
        if 0 < point < log.start:
            raise LinkError(
                f"this log would go on at {point}, the master's starts only at {log.start}: what"
                f" lies between is gone; {CONTROLLED_ADVICE}"
            )
        offset = yield self._newest_before(point)
        own = None if offset < log.start else self._store.record_at(offset)
        if own is None:
            return RecordComparison(differs=False)
        theirs = yield self._calls.record(address, offset)
        if own != theirs:
            return RecordComparison(differs=True)
        return RecordComparison(differs=False, same_until=offset + len(own))

    def _newest_before(self, end: int) -> Deferred[int]:
        return newest_record(self._store, self._file_size, self._in_slices, end)

    @inlineCallbacks
    def _check_file_size(self, address: str) -> Generator[Deferred[Any], Any, None]:
        theirs = yield self._calls.file_size(address)
        if theirs is not None and theirs != self._file_size:
            raise LinkError(
                f"mappedFileSizeCommitLog is {self._file_size} here and {theirs} at the master:"
                " make it the same (docs/replication.md)"
            )
