"""The collector leaves alone what start-up made."""

import gc
from collections.abc import Iterator

import pytest

from rocketmq_tw.services.process import collect_rarely, freeze_startup_objects
from tests.support.interpreter import IS_CPYTHON, cpython_only

other_collector = cpython_only("PyPy's collector has neither thresholds nor a permanent generation")


@pytest.fixture
def collector() -> Iterator[None]:
    before = gc.get_threshold() if IS_CPYTHON else ()
    yield
    if IS_CPYTHON:
        gc.unfreeze()
        gc.set_threshold(*before)


@other_collector
def test_what_stays_is_frozen_and_what_comes_is_collected(collector: None) -> None:
    freeze_startup_objects()
    assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1


@other_collector
def test_what_is_looked_at_in_one_go_is_bounded_until_all_is(collector: None) -> None:
    collect_rarely()
    young, middle, _old = gc.get_threshold()
    assert young * middle <= 100_000


def test_it_still_collects_where_it_cannot_be_told(collector: None) -> None:
    collect_rarely()
    freeze_startup_objects()
    assert gc.isenabled()
