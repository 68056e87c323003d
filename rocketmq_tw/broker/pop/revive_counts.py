"""Counts for monitoring what revival does; it goes by none of these.

Counted is what goes into the revive topic, what comes out of it, and what is revived: stock 5.3.3's
`rocketmq_pop_revive_in_message_total`, `..._out_message_total` and `..._retry_messages_total`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.metrics.instruments import Counters, Metric
from rocketmq_tw.wire.bodies.pop import AckMsg, PopCheckPoint
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Characters of a group and a topic together that may be names.
_MAX_NAMES = 1024

#: Stock's names of how a put ended; what is in none of them is an unknown error.
_STATUS: Mapping[int, str] = {
    ResponseCode.SUCCESS: "PUT_OK",
    ResponseCode.FLUSH_DISK_TIMEOUT: "FLUSH_DISK_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "FLUSH_SLAVE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "SLAVE_NOT_AVAILABLE",
    ResponseCode.SERVICE_NOT_AVAILABLE: "SERVICE_NOT_AVAILABLE",
    ResponseCode.MESSAGE_ILLEGAL: "MESSAGE_ILLEGAL",
    ResponseCode.SYSTEM_BUSY: "OS_PAGE_CACHE_BUSY",
}
_UNKNOWN = "UNKNOWN_ERROR"

R = TypeVar("R", bound=PutResult | Failure)


class _Popped(NamedTuple):
    """A group that popped of a topic, and what of it is counted; None where that says nothing."""

    group: str
    topic: str
    type: str | None = None
    queue_id: int | None = None
    status: str | None = None


class ReviveCounts:
    """Counts messages since the broker's start, by group and topic; only where that `is_monitored`,
    since it costs something for each message that is popped or acknowledged."""

    def __init__(self, *, is_monitored: bool) -> None:
        self._is_monitored = is_monitored
        self._in: Counters[_Popped] = Counters("rocketmq_pop_revive_in_message_total", _labels_of)
        self._out: Counters[_Popped] = Counters("rocketmq_pop_revive_out_message_total", _labels_of)
        self._retried: Counters[_Popped] = Counters(
            "rocketmq_pop_revive_retry_messages_total", _labels_of
        )

    def put(self, point: PopCheckPoint | AckMsg, put: Deferred[PutResult]) -> Deferred[PutResult]:
        """Counts a message of the revive topic by how `put` ends, and returns that."""
        return self._count(put, self._in, point, _type_of(point))

    def read(self, point: PopCheckPoint | AckMsg, queue_id: int) -> None:
        """Counts a message that was read from a revive queue."""
        if self._is_monitored:
            self._out.add(_Popped(*_names_of(point), _type_of(point), queue_id))

    def retried(self, point: PopCheckPoint, put: Deferred[PutResult]) -> Deferred[PutResult]:
        """Counts a message of `point` that goes to a retry topic by how `put` ends, and returns
        that."""
        return self._count(put, self._retried, point, None)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Ends the series of topics that were removed."""
        gone = frozenset(topics)
        for counts in self._all():
            counts.forget_where(lambda key: key.topic in gone)

    def forget_groups(self, groups: Iterable[str]) -> None:
        """Ends the series of groups that were removed."""
        gone = frozenset(groups)
        for counts in self._all():
            counts.forget_where(lambda key: key.group in gone)

    def metrics(self) -> Iterator[Metric]:
        """Yields what was counted, with stock's labels."""
        for counts in self._all():
            yield from counts.metrics()

    def _count(
        self,
        put: Deferred[PutResult],
        counts: Counters[_Popped],
        point: PopCheckPoint | AckMsg,
        type_: str | None,
    ) -> Deferred[PutResult]:
        return put.addBoth(_count_put, counts, point, type_) if self._is_monitored else put

    def _all(self) -> tuple[Counters[_Popped], ...]:
        return self._in, self._out, self._retried


def _count_put(
    result: R,
    counts: Counters[_Popped],
    point: PopCheckPoint | AckMsg,
    type_: str | None,
) -> R:
    code: int | None = None
    if isinstance(result, PutResult):
        code = result.code
    elif isinstance(result.value, RequestError):
        code = result.value.code
    status = _UNKNOWN if code is None else _STATUS.get(code, _UNKNOWN)
    counts.add(_Popped(*_names_of(point), type_, None, status))
    return result


def _type_of(point: PopCheckPoint | AckMsg) -> str:
    return "ACK" if isinstance(point, AckMsg) else "CK"


def _names_of(point: PopCheckPoint | AckMsg) -> tuple[str, str]:
    """Returns group and topic; empty ones where they are too long to be names. Anybody may send to
    the revive topic."""
    group, topic = point.group or "", point.topic or ""
    return (group, topic) if len(group) + len(topic) <= _MAX_NAMES else ("", "")


def _labels_of(key: _Popped | None) -> Mapping[str, str]:
    if key is None:
        return {}
    labels = {"consumer_group": key.group, "topic": key.topic}
    if key.type is not None:
        labels["revive_message_type"] = key.type
    if key.queue_id is not None:
        labels["queue_id"] = str(key.queue_id)
    if key.status is not None:
        labels["put_status"] = key.status
    return labels
