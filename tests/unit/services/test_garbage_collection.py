"""The collector leaves alone what start-up made."""

import gc
from collections.abc import Iterator

import pytest

from rocketmq_tw.services.process import collect_rarely, freeze_startup_objects


@pytest.fixture
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_what_stays_is_frozen_and_what_comes_is_collected(collector: None) -> None:
    freeze_startup_objects()
    assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1


def test_what_is_looked_at_in_one_go_is_bounded_until_all_is(collector: None) -> None:
    collect_rarely()
    young, middle, _old = gc.get_threshold()
    assert young * middle <= 100_000
