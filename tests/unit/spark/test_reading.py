"""A range in a worker: what it does where messages are gone, and where a broker stays away."""

from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_tw.client.blocking import ConnectionFailed
from rocketmq_tw.client.message import PulledBytes, PullStatus
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.spark import reading
from rocketmq_tw.spark.columns import SCHEMA, arrow_schema
from rocketmq_tw.spark.errors import DataLossError
from rocketmq_tw.spark.options import SourceOptions, source_options
from rocketmq_tw.spark.ranges import OffsetRange
from rocketmq_tw.spark.waiting import Backoff

PART = OffsetRange("t", "b", 0, 10, 20)


class FakeClient:
    """A queue with the messages at `offsets`; `failures` are raised first, one a pull."""

    def __init__(self, offsets: list[int], failures: int = 0) -> None:
        self.offsets = offsets
        self.failures = failures
        self.forgotten = 0

    def forget_routes(self) -> None:
        self.forgotten += 1

    def pull_bytes(self, queue: Any, offset: int, count: int, **filters: str) -> PulledBytes:
        if self.failures:
            self.failures -= 1
            raise ConnectionFailed("127.0.0.1:1", "gone")
        lowest, highest = self.offsets[0], self.offsets[-1] + 1
        if not lowest <= offset < highest:
            return PulledBytes(PullStatus.OFFSET_ILLEGAL, b"", lowest, lowest, highest)
        found = [at for at in self.offsets if at >= offset][: min(count, 4)]
        records = b"".join(
            encode_record(StoredMessage(topic="t", queue_id=0, queue_offset=at, body=b"%d" % at))
            for at in found
        )
        return PulledBytes(PullStatus.FOUND, records, found[-1] + 1, lowest, highest)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()

    def backoff(limit: float) -> Backoff:
        return Backoff(limit, made, made.sleep)

    monkeypatch.setattr(reading, "Backoff", backoff)
    return made


def read(monkeypatch: pytest.MonkeyPatch, client: FakeClient, **options: object) -> list[int]:
    monkeypatch.setattr(reading, "worker_client", lambda *of: client)
    batches: Iterator[Any] = reading.read_range(asked(**options), PART, arrow_schema(SCHEMA))
    return [offset for batch in batches for offset in batch.column("queueOffset").to_pylist()]


def asked(**options: object) -> SourceOptions:
    return source_options({"nameServers": "127.0.0.1:9876", "topic": "t", **options})


def test_a_range_is_read_pull_by_pull_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, FakeClient(list(range(40)))) == list(range(10, 20))


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (list(range(13, 40)), "its oldest offset is 13, not 10"),
        (list(range(17)), "it ends at 17, before 17"),
        ([*range(12), *range(15, 40)], "3 of 10 messages are gone"),
    ],
    ids=["retention", "a replica that is behind", "a hole"],
)
def test_what_is_gone_is_an_error_unless_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, there: list[int], said: str
) -> None:
    with pytest.raises(DataLossError, match=said):
        read(monkeypatch, FakeClient(there))
    left = [offset for offset in there if 10 <= offset < 20]
    assert read(monkeypatch, FakeClient(there), failOnDataLoss=False) == left


def test_a_broker_that_is_away_for_a_while_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    client = FakeClient(list(range(40)), failures=5)
    assert read(monkeypatch, client) == list(range(10, 20))
    assert client.forgotten == 5
    assert 0 < clock.now < 60


def test_a_broker_that_stays_away_is_an_error(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    with pytest.raises(ConnectionFailed):
        read(monkeypatch, FakeClient([0], failures=1000), brokerDownTimeoutMs=5000)
    assert clock.now <= 5
