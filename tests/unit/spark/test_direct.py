"""The direct stream's plan: which batches it can read again, without a Spark."""

import pickle
import time as clocks
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from rocketmq_tw.spark.dstreams import direct
from rocketmq_tw.spark.dstreams.direct import _Plan, offset_ranges
from rocketmq_tw.spark.options import source_options
from rocketmq_tw.spark.ranges import OffsetRange

#: The hour in which clocks in Berlin go back.
START = 1_792_886_400


class Reader:
    """Plans ten messages for each batch."""

    def __init__(self) -> None:
        self.end = 0

    def getDefaultReadLimit(self) -> None:
        return None

    def latestOffset(self, start: Any, limit: Any) -> Any:
        self.end += 10
        return self.end

    def ranges(self, start: Any, end: Any) -> list[OffsetRange]:
        return [OffsetRange("T", "b", 0, end - 10, end)]


class Rdd:
    made = 0

    def __init__(self) -> None:
        Rdd.made += 1
        self._id = Rdd.made

    def flatMap(self, fetch: Any) -> "Rdd":
        return self

    def id(self) -> int:
        return self._id


class Context:
    def parallelize(self, ranges: list[OffsetRange], parts: int) -> Rdd:
        return Rdd()


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> _Plan:
    monkeypatch.setattr(direct, "_KEPT_BATCHES", 20)
    direct._batches_of_rdds.clear()
    made = _Plan(source_options({"nameServers": "a:1", "topic": "T", "group": "g"}, streaming=True))
    made._reader = Reader()  # type: ignore[assignment]
    made._next = 0  # type: ignore[assignment]
    return made


@pytest.fixture
def pending(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The batches that Spark knows not to be done, in ms."""
    times: set[int] = set()
    monkeypatch.setattr(direct, "_pending_times", lambda: times)
    return times


def batch(plan: _Plan, number: int) -> Rdd:
    rdd: Rdd = plan.batch(datetime.fromtimestamp(START + number), Context())
    return rdd


def start(rdd: Rdd) -> int:
    return offset_ranges(rdd)[0].start


def test_batches_that_are_not_done_are_read_again_however_many(
    plan: _Plan, pending: set[int]
) -> None:
    pending |= {1000 * (START + number) for number in range(110)}
    rdds = [batch(plan, number) for number in range(110)]
    assert [start(rdd) for rdd in rdds] == [10 * number for number in range(110)]
    again = pickle.loads(pickle.dumps(plan))
    # While it starts, Spark has handed out none of them.
    pending.clear()
    for number in range(110):
        pending.add(1000 * (START + number))
        assert start(batch(again, number)) == 10 * number


def test_while_a_context_starts_nothing_is_forgotten(
    plan: _Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "_pending_times", lambda: None)
    for number in range(110):
        batch(plan, number)
    assert start(batch(plan, 0)) == 0


def test_of_those_that_are_done_the_newest_are_kept(plan: _Plan, pending: set[int]) -> None:
    pending.add(1000 * (START + 3))
    rdds = [batch(plan, number) for number in range(110)]
    assert len(plan._batches) == len(direct._batches_of_rdds) == 21
    assert start(rdds[3]) == start(batch(plan, 3)) == 30
    assert start(batch(plan, 90)) == 900


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    clocks.tzset()
    yield
    monkeypatch.undo()
    clocks.tzset()


def test_an_hour_that_comes_twice_has_new_batches(
    plan: _Plan, pending: set[int], berlin: None
) -> None:
    assert datetime.fromtimestamp(START) == datetime.fromtimestamp(START + 3600)
    assert start(batch(plan, 0)) == 0
    assert start(batch(plan, 3600)) == 10


def test_a_checkpoint_of_before_has_its_batches_by_local_time(plan: _Plan) -> None:
    made = [OffsetRange("T", "b", 0, 5, 15)]
    plan._batches[datetime.fromtimestamp(START)] = made  # type: ignore[index,assignment]
    again = pickle.loads(pickle.dumps(plan))
    assert offset_ranges(batch(again, 0)) == made
