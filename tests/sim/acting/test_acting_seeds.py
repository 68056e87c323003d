"""Groups whose slaves act for their masters, in trouble that seeds decide.

More of them: `python -m tools.acting_sim`.
"""

from __future__ import annotations

import itertools

import pytest

from rocketmq_tw.wire import command
from tests.support.sim.acting_world import simulate
from tests.support.sim.runs import in_a_hurry


def test_a_seed_is_the_same_group_whatever_the_process_did_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first: list[str] = []
    then: list[str] = []
    with in_a_hurry():
        simulate(4, first)
        # Numbers with more digits change where the bytes of a request are split.
        monkeypatch.setattr(command, "_next_opaque", itertools.count(100_000).__next__)
        simulate(4, then)
    assert first == then


@pytest.mark.parametrize("seed", range(4))
def test_groups_keep_their_promises(seed: int) -> None:
    with in_a_hurry():
        outcome = simulate(seed)
    assert not outcome.broken
    assert outcome.acknowledged
