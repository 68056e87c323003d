"""Which tables may be longer after hours, and why; all others are back where they were.

See tests/sim/hours and `python -m tools.table_hours`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol

from rocketmq_tw.files import faulty, memory
from rocketmq_tw.raft.core.log import RECENT_BYTES
from tests.support.tables import Stays, grown, tables_of

#: Files in memory are no tables.
_FILES = tuple(
    kind
    for module in (faulty, memory)
    for kind in vars(module).values()
    if isinstance(kind, type) and kind.__module__ == module.__name__
)

_OF_THE_LOG = Stays("as long as the log has messages: retention removes its files")
A_DAY = Stays("a group that comes back within a day is found again")
#: What need not be back after some hours.
STAYS: Mapping[str, Stays] = {
    "DeletedTopics._all": _OF_THE_LOG,
    "DeletedTopics._latest": _OF_THE_LOG,
    "HandlePool._open": _OF_THE_LOG,
    "MessageIndex._list": _OF_THE_LOG,
    "Segments._present": _OF_THE_LOG,
    "Segments.starts": _OF_THE_LOG,
    "Segments._zeroed": _OF_THE_LOG,
    "TimerWheel._pages": Stays("pages of the wheel's file, which has its size from the start"),
    "UnsyncedHandles._files": Stays("until the next checkpoint"),
    "FilterTable._topics": A_DAY,
    "FilterTable._topics[]": A_DAY,
    "FilterTable._topics_of": A_DAY,
    "FilterTable._topics_of[]": A_DAY,
    "FilterTable._dead": A_DAY,
    "_Flow.minute": Stays("windows of six samples fill", 1_000),
    "_Flow.hour": Stays("windows of six samples fill", 1_000),
    "_Flow.day": Stays("windows of 24 samples fill", 4_000),
    "SampledCount._samples": Stays("windows of ten minutes fill", 61 * 6),
    "EntryCache._encoded": Stays("entries in their wire form, twice the table and 1,024", 1_500),
    "NewHalves.recent": Stays("half messages that are decided soon", 1_024),
    "LazyHeap._entries": Stays("up to their time, and 1,000 of each heap at most", 2_000),
    "LazyHeap._old": Stays("up to their time, and 1,000 of each heap at most", 2_000),
    "SubscriptionGroupTable.forbidden_table[]": Stays("what an administrator forbids a group"),
    "GroupTable._forbidden[]": Stays("what an administrator forbids a group"),
    "MetricsLog._told": Stays("what the last lines told, 200 figures of each server", 1_000),
    "Log._tail": Stays("entries of the Raft log that members may ask for", 3 * RECENT_BYTES // 64),
    "WriteQueues._known": Stays("the routes used last", 10_000),
    "TopicTurns._counters": Stays("topics that were sent to or received from", 2 * 10_000),
    "_Remembered._entries": Stays("the topics and groups used last", 2 * 20_000),
    "DeadLetterForwarding._is_stored": Stays("the dead letters that were stored last", 2 * 10_000),
    "DeadLetterForwarding._is_stored[]": Stays(
        "the dead letters that were stored last", 3 * 10_000
    ),
    "Positions._passed": Stays("what pops of all queues passed over last", 2 * 10_000),
    "Positions._passed[]": Stays("what pops of all queues passed over last", 5 * 10_000),
    "TopicQueues._came": Stays("topics to be sorted when somebody asks for all", 6_000),
}


class Hours(Protocol):
    """A server's world, in which an hour can pass."""

    def hour(self) -> None: ...

    def roots(self) -> Iterable[object]: ...


def tables(hours: Hours, *outside: type) -> Counter[str]:
    """How long its tables are now, but for what only objects of `outside` have."""
    return tables_of(*hours.roots(), outside=(*_FILES, *outside), but=STAYS)


def grown_in(hours: Hours, number: int, *outside: type) -> dict[str, tuple[int, int]]:
    """What is longer after so many hours than after any from the second one to the one in the
    middle: some of what a server keeps comes with the second use of it, and what is under way when
    an hour ends is not always the same."""
    hours.hour()
    most: Counter[str] = Counter()
    for _ in range(max(number // 2, 2) - 1):
        hours.hour()
        most |= tables(hours, *outside)
    for _ in range(number - max(number // 2, 2)):
        hours.hour()
    return grown(most, tables(hours, *outside), STAYS)
