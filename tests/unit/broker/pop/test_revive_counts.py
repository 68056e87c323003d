"""What monitoring is told of the revive topic."""

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from rocketmq_tw.broker.pop.revive_counts import ReviveCounts
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.metrics import instruments
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAckMsg, PopCheckPoint
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

POINT = PopCheckPoint(topic="T", group="G")
IN = "rocketmq_pop_revive_in_message_total"
OUT = "rocketmq_pop_revive_out_message_total"


def told(counts: ReviveCounts) -> list[tuple[str, object, dict[str, str]]]:
    return [(each.name, each.value, dict(each.labels)) for each in counts.metrics()]


def ended(code: ResponseCode) -> Deferred[PutResult]:
    return succeed(PutResult(code, Appended(0, 0, 0, 0, "")))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, "PUT_OK"),
        (ResponseCode.FLUSH_DISK_TIMEOUT, "FLUSH_DISK_TIMEOUT"),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, "FLUSH_SLAVE_TIMEOUT"),
        (ResponseCode.SLAVE_NOT_AVAILABLE, "SLAVE_NOT_AVAILABLE"),
        (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
    ],
)
def test_a_put_counts_by_stocks_name_of_how_it_ended(code: ResponseCode, status: str) -> None:
    counts = ReviveCounts(is_monitored=True)
    results: list[PutResult] = []
    counts.put(POINT, ended(code)).addCallback(results.append)
    assert [result.code for result in results] == [code]
    labels = {"consumer_group": "G", "topic": "T", "put_status": status}
    assert told(counts) == [(IN, 1, labels | {"revive_message_type": "CK"})]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "a slave"), "SERVICE_NOT_AVAILABLE"),
        (RequestError(ResponseCode.MESSAGE_ILLEGAL, "too long"), "MESSAGE_ILLEGAL"),
        (RequestError(ResponseCode.SYSTEM_BUSY, "later"), "OS_PAGE_CACHE_BUSY"),
        (RuntimeError("a disk"), "UNKNOWN_ERROR"),
    ],
)
def test_a_put_that_fails_counts_and_fails(error: Exception, status: str) -> None:
    counts = ReviveCounts(is_monitored=True)
    failures: list[Failure] = []
    counts.retried(POINT, fail(error)).addErrback(failures.append)
    assert [failure.value for failure in failures] == [error]
    labels = {"consumer_group": "G", "topic": "T", "put_status": status}
    assert told(counts) == [("rocketmq_pop_revive_retry_messages_total", 1, labels)]


def test_what_is_read_counts_by_queue_and_type() -> None:
    counts = ReviveCounts(is_monitored=True)
    counts.read(POINT, 3)
    counts.read(AckMsg(topic="T", group="G"), 3)
    counts.read(BatchAckMsg(topic="T", group="G"), 3)
    labels = {"consumer_group": "G", "topic": "T", "queue_id": "3"}
    assert told(counts) == [
        (OUT, 1, labels | {"revive_message_type": "CK"}),
        (OUT, 2, labels | {"revive_message_type": "ACK"}),
    ]


def test_names_that_peers_invent_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "MAX_SERIES", 2)
    counts = ReviveCounts(is_monitored=True)
    for topic in ("x" * 1024, "a", "b", "c"):
        counts.read(PopCheckPoint(topic=topic, group="G"), 0)
    assert [(value, labels.get("topic")) for _name, value, labels in told(counts)] == [
        (1, ""),
        (1, "a"),
        (2, None),
    ]


def test_the_series_of_a_group_end_with_it() -> None:
    counts = ReviveCounts(is_monitored=True)
    counts.read(POINT, 0)
    counts.forget_groups(["G"])
    assert told(counts) == []
