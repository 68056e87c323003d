"""A thousand runs of a group in trouble. More of them: tools/raft_campaign.py."""

import pytest

from rocketmq_tw.testing.raft_cluster import simulate

SEEDS = 1000
CHUNK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_is_broken(first: int) -> None:
    outcomes = [simulate(seed) for seed in range(first, first + CHUNK)]
    # Runs in which nothing happens would show nothing.
    assert sum(outcome.answered for outcome in outcomes) > 20 * CHUNK
    assert sum(outcome.terms for outcome in outcomes) > CHUNK


@pytest.mark.parametrize("seed", [3, 14, 159, 265])
def test_a_replay_is_identical(seed: int) -> None:
    traces: list[list[str]] = [[], []]
    first, second = (simulate(seed, trace=trace) for trace in traces)
    assert first == second
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100
