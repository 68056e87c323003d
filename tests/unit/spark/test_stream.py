"""A stream's offsets from trigger to trigger, over a cluster of plain values."""

import pickle
from collections.abc import Callable

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rocketmq_tw.client.blocking_connection import ConnectionFailed
from rocketmq_tw.spark import stream as stream_module
from rocketmq_tw.spark.cluster import Bounds
from rocketmq_tw.spark.errors import DataLossError, OptionError
from rocketmq_tw.spark.options import source_options
from rocketmq_tw.spark.ranges import OffsetRange
from rocketmq_tw.spark.stream import StreamReader
from rocketmq_tw.spark.waiting import Backoff, Overdue
from rocketmq_tw.wire.bodies.queues import MessageQueue


class Queues:
    """What a reader asks of `SourceCluster`, out of a table."""

    def __init__(self, **bounds: tuple[int, int]) -> None:
        self.table = {_queue(name): Bounds(*pair) for name, pair in bounds.items()}
        self.silent: set[MessageQueue] = set()
        self.routes = True
        self.pattern_known = True
        self.committed: dict[MessageQueue, int] = {}

    def refresh(self) -> None:
        pass

    def queues(self) -> list[MessageQueue]:
        return sorted(self.table)

    def topics(self) -> list[str]:
        if not self.pattern_known:
            raise OptionError("no name server answers")
        return ["t"]

    def queues_of(self, topic: str) -> list[MessageQueue]:
        if not self.routes:
            raise OptionError("no name server knows it")
        return self.queues()

    def check_expression(self, queue: MessageQueue) -> None:
        pass

    def bounds(self, queue: MessageQueue) -> Bounds:
        return self.table[queue]

    def earliest(self, queue: MessageQueue) -> int:
        return self.table[queue].earliest

    def latest(self, queue: MessageQueue) -> int:
        if queue in self.silent:
            raise ConnectionFailed("b:1", "refused")
        return self.table[queue].latest

    def commit(self, queue: MessageQueue, offset: int) -> None:
        self.committed[queue] = offset


def _queue(name: str) -> MessageQueue:
    return MessageQueue(topic="t", broker_name="b", queue_id=int(name.removeprefix("q")))


def reader(queues: Queues, **options: object) -> StreamReader:
    given = {"nameServers": "a:1", "topic": "t", "startingOffsets": "earliest", **options}
    made = StreamReader(source_options(given, streaming=True))
    made._cluster = queues  # type: ignore[assignment]
    return made


def offsets(**queues: int) -> dict[str, dict[str, dict[str, int]]]:
    return {"t": {"b": {name.removeprefix("q"): offset for name, offset in queues.items()}}}


def test_a_limit_is_divided_and_progress_reported() -> None:
    stream = reader(Queues(q0=(0, 90), q1=(5, 15)), maxOffsetsPerTrigger=10)
    assert stream.getDefaultReadLimit() == ReadMaxRows(10)
    start = stream.initialOffset()
    assert start == offsets(q0=0, q1=5)
    end = stream.latestOffset(start, ReadMaxRows(10))
    assert end == offsets(q0=9, q1=6)
    assert stream.reportLatestOffset() == offsets(q0=90, q1=15)
    assert stream.latestOffset(start, ReadAllAvailable()) == offsets(q0=90, q1=15)
    assert [(part.start, part.end) for part in stream.ranges(start, end)] == [(0, 9), (5, 6)]


def test_a_new_queue_is_read_from_its_first_message() -> None:
    queues = Queues(q0=(0, 5))
    stream = reader(queues, startingOffsets="latest")
    start = stream.initialOffset()
    queues.table[_queue("q1")] = Bounds(2, 8)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == offsets(q0=5, q1=8)
    assert stream.ranges(start, end) == [OffsetRange("t", "b", 1, 2, 8)]


def test_offsets_of_static_topics_under_names_of_brokers_are_carried_over() -> None:
    """As older checkpoints have them: of each broker that hosted a logic queue, all of it."""
    logic = {
        n: MessageQueue(topic="t", broker_name="__syslo__global__", queue_id=n) for n in (0, 1)
    }
    queues = Queues()
    queues.table = {logic[0]: Bounds(0, 10_004), logic[1]: Bounds(3, 9)}
    stream = reader(queues, group="g")
    start = {"t": {"a": {"0": 4}, "b": {"0": 2}}}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"__syslo__global__": {"0": 10_004, "1": 9}}}
    parts = stream.ranges(start, end)
    assert [(part.queue, part.start, part.end) for part in parts] == [
        (logic[0], 4, 10_004),
        (logic[1], 3, 9),
    ]
    stream.commit(end)
    assert queues.committed == {logic[0]: 10_004, logic[1]: 9}


def test_available_now_stops_at_what_was_there() -> None:
    queues = Queues(q0=(0, 10))
    stream = reader(queues)
    stream.prepareForTriggerAvailableNow()
    queues.table = {_queue("q0"): Bounds(0, 99), _queue("q1"): Bounds(0, 3)}
    first = stream.latestOffset(offsets(q0=0), ReadMaxRows(6))
    assert first == offsets(q0=6)
    second = stream.latestOffset(first, ReadMaxRows(6))
    assert second == offsets(q0=10)
    assert stream.latestOffset(second, ReadMaxRows(6)) == second


class Waiting:
    """Pauses of no time; `on_pause` happens in each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_pause: Callable[[], None] = lambda: None
        self.now = 0.0
        monkeypatch.setattr(
            stream_module, "Backoff", lambda limit: Backoff(limit, lambda: self.now, self._sleep)
        )

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_pause()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    return Waiting(monkeypatch)


def test_available_now_takes_a_queue_that_shrank_for_a_loss(waiting: Waiting) -> None:
    stream = reader(Queues(q0=(0, 20)))
    stream.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="ends at 20 and was read up to 50 before"):
        stream.latestOffset(offsets(q0=50), ReadAllAvailable())
    assert 50 < waiting.now <= 60


def test_available_now_waits_for_a_replica_that_is_behind(waiting: Waiting) -> None:
    queues = Queues(q0=(0, 900), q1=(0, 7))
    stream = reader(queues)
    stream.prepareForTriggerAvailableNow()

    def catch_up() -> None:
        queues.table = {_queue("q0"): Bounds(0, 1010), _queue("q1"): Bounds(0, 99)}

    waiting.on_pause = catch_up
    start = offsets(q0=1000, q1=2)
    end = stream.latestOffset(start, ReadMaxRows(4))
    assert stream.ranges(start, end) == [
        OffsetRange("t", "b", 0, 1000, 1003),
        OffsetRange("t", "b", 1, 2, 3),
    ]
    assert stream.latestOffset(end, ReadAllAvailable()) == offsets(q0=1010, q1=7)


def test_available_now_reads_a_topic_made_anew_where_that_is_allowed(waiting: Waiting) -> None:
    stream = reader(Queues(q0=(0, 20)), failOnDataLoss=False)
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(offsets(q0=50), ReadAllAvailable())
    assert stream.ranges(offsets(q0=50), end) == [OffsetRange("t", "b", 0, 0, 20)]


def test_available_now_waits_for_a_broker_that_starts(waiting: Waiting) -> None:
    queues = Queues(q0=(0, 10))
    queues.silent.add(_queue("q0"))
    waiting.on_pause = queues.silent.clear
    stream = reader(queues)
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset(offsets(q0=4), ReadAllAvailable()) == offsets(q0=10)


def test_a_silent_queue_keeps_its_place_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    queues = Queues(q0=(0, 10), q1=(0, 10))
    queues.silent.add(_queue("q1"))
    stream = reader(queues)
    now = [0.0]
    stream._overdue = Overdue(60, lambda: now[0])
    for _ in range(3):
        assert stream.latestOffset(offsets(q0=0, q1=4), ReadAllAvailable()) == offsets(q0=10, q1=4)
    assert [record.getMessage()[:26] for record in caplog.records] == ["queue 1 of t on b keeps it"]
    now[0] = 61.0
    with pytest.raises(ConnectionFailed):
        stream.latestOffset(offsets(q0=0, q1=4), ReadAllAvailable())


def test_a_topic_without_a_route_keeps_its_place_for_a_while() -> None:
    queues = Queues(q0=(0, 10))
    queues.routes = False
    stream = reader(queues)
    now = [0.0]
    stream._overdue = Overdue(60, lambda: now[0])
    assert stream.latestOffset(offsets(q0=4), ReadAllAvailable()) == offsets(q0=4)
    now[0] = 61.0
    with pytest.raises(OptionError):
        stream.latestOffset(offsets(q0=4), ReadAllAvailable())
    queues.routes = True
    assert stream.latestOffset(offsets(q0=4), ReadAllAvailable()) == offsets(q0=10)


def test_a_queue_that_no_route_names_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    queues = Queues(q0=(0, 10), q1=(0, 10))
    stream = reader(queues)
    start = offsets(q0=10, q1=4)
    gone = queues.table.pop(_queue("q1"))
    for _ in range(2):
        assert stream.latestOffset(start, ReadAllAvailable()) == start
    assert [record.getMessage()[:36] for record in caplog.records] == [
        "queue 1 of t on b: no route names it"
    ]
    queues.table[_queue("q1")] = gone
    assert stream.latestOffset(start, ReadAllAvailable()) == offsets(q0=10, q1=10)
    del queues.table[_queue("q1")]
    stream.prepareForTriggerAvailableNow()
    assert stream.latestOffset(start, ReadAllAvailable()) == start
    assert len(caplog.records) == 2


def test_a_topic_without_a_route_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    queues = Queues(q0=(0, 10))
    queues.routes = False
    stream = reader(queues)
    assert stream.latestOffset(offsets(q0=4), ReadAllAvailable()) == offsets(q0=4)
    assert [record.getMessage()[:21] for record in caplog.records] == ["t keeps its place for"]


def test_a_pattern_without_an_answer_counts_from_its_last_one() -> None:
    queues = Queues(q0=(0, 10))
    stream = reader(queues)
    now = [0.0]
    stream._overdue = Overdue(60, lambda: now[0])
    for now[0] in (0.0, 1000.0):
        queues.pattern_known = False
        assert stream.latestOffset(offsets(q0=4), ReadAllAvailable()) == offsets(q0=4)
        queues.pattern_known = True
        assert stream.latestOffset(offsets(q0=4), ReadAllAvailable()) == offsets(q0=10)


def test_a_queue_that_shrank_is_a_loss_once_it_stays_so() -> None:
    stream = reader(Queues(q0=(0, 10)))
    now = [0.0]
    stream._overdue = Overdue(60, lambda: now[0])
    assert stream.latestOffset(offsets(q0=12), ReadAllAvailable()) == offsets(q0=12)
    now[0] = 61.0
    with pytest.raises(DataLossError, match="read up to 12 before"):
        stream.latestOffset(offsets(q0=12), ReadAllAvailable())


def test_a_replica_has_the_whole_time_to_catch_up() -> None:
    queues = Queues(q0=(0, 10))
    stream = reader(queues)
    now = [0.0]
    stream._overdue = Overdue(60, lambda: now[0])
    queues.silent.add(_queue("q0"))
    assert stream.latestOffset(offsets(q0=12), ReadAllAvailable()) == offsets(q0=12)
    queues.silent.clear()
    for now[0] in (55.0, 115.0):
        assert stream.latestOffset(offsets(q0=12), ReadAllAvailable()) == offsets(q0=12)
    now[0] = 116.0
    with pytest.raises(DataLossError):
        stream.latestOffset(offsets(q0=12), ReadAllAvailable())


@pytest.mark.parametrize(
    ("first", "begins"),
    [(0, 0), (3, 10)],
    ids=["the topic was made anew", "what is there was read before"],
)
def test_a_loss_that_is_allowed_goes_on_with_what_is_there(
    first: int, begins: int, caplog: pytest.LogCaptureFixture
) -> None:
    stream = reader(Queues(q0=(first, 10), q1=(0, 5)), failOnDataLoss=False)
    stream._overdue = Overdue(-1)
    start = offsets(q0=12, q1=5)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == offsets(q0=10, q1=5)
    expected = [OffsetRange("t", "b", 0, begins, 10)] if begins < 10 else []
    assert stream.ranges(start, end) == expected
    assert "ends at 10 and was read up to 12" in caplog.text


def test_a_topic_made_anew_is_read_within_the_limit() -> None:
    stream = reader(Queues(q0=(0, 10)), failOnDataLoss=False)
    stream._overdue = Overdue(-1)
    start = offsets(q0=12)
    middle = stream.latestOffset(start, ReadMaxRows(4))
    assert stream.ranges(start, middle) == [OffsetRange("t", "b", 0, 0, 4)]
    end = stream.latestOffset(middle, ReadMaxRows(9))
    assert stream.ranges(middle, end) == [OffsetRange("t", "b", 0, 4, 10)]


@pytest.mark.parametrize(("group", "told"), [({"group": "g"}, 7), ({}, None)])
def test_the_group_is_told_how_far_it_is(group: dict[str, str], told: int | None) -> None:
    queues = Queues(q0=(0, 10))
    stream = reader(queues, **group)
    stream.commit(offsets(q0=7))
    assert queues.committed.get(_queue("q0")) == told


def test_it_travels_without_its_connections() -> None:
    stream = reader(Queues(q0=(0, 10)))
    assert pickle.loads(pickle.dumps(stream))._cluster is None
