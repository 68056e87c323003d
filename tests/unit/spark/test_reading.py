"""A range in a worker: what it does where messages are gone, and where a broker stays away."""

from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_tw.client.blocking_connection import ConnectionFailed
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


class MovedClient(FakeClient):
    """A logic queue: three messages from 0 on, and behind a move three from 100 on, of which the
    first `gone` are there no more. Its physical queues are others."""

    def __init__(self, gone: int = 0) -> None:
        super().__init__([])
        self._gone = gone

    def pull_bytes(self, queue: Any, offset: int, count: int, **filters: str) -> PulledBytes:
        delta, first, end = (0, 0, 3) if offset < 100 else (100, 100 + self._gone, 103)
        if offset < first or 3 <= offset < 100:
            following = max(first, 100)
            return PulledBytes(
                PullStatus.NO_MATCHED_MESSAGE, b"", following, following, 103, 0, 100
            )
        found = range(offset, min(end, offset + count))
        records = b"".join(
            encode_record(StoredMessage(topic="t", queue_id=7, queue_offset=at - delta, body=b"x"))
            for at in found
        )
        return PulledBytes(PullStatus.FOUND, records, found[-1] + 1, first, 103, 0, delta)


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        (0, 103, [0, 1, 2, 100, 101, 102]),
        (1, 102, [1, 2, 100, 101]),
        (3, 100, []),
        (40, 101, [100]),
        (2, 50, [2]),
    ],
)
def test_offsets_that_a_move_left_out_are_no_loss(
    monkeypatch: pytest.MonkeyPatch, start: int, end: int, offsets: list[int]
) -> None:
    monkeypatch.setattr(reading, "worker_client", lambda *of: MovedClient())
    part = OffsetRange("t", "__syslo__global__", 4, start, end)
    batches = list(reading.read_range(asked(), part, arrow_schema(SCHEMA)))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["queueOffset"] for row in rows] == offsets
    assert {row["queueId"] for row in rows} <= {4}


def test_what_is_gone_behind_a_move_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "worker_client", lambda *of: MovedClient(gone=1))
    part = OffsetRange("t", "__syslo__global__", 4, 100, 103)
    with pytest.raises(DataLossError, match="1 of 3 messages are gone"):
        list(reading.read_range(asked(), part, arrow_schema(SCHEMA)))
