"""Hundreds of runs of a group in trouble. More of them: tools/raft_campaign.py."""

import pytest

from tests.support.raft_cluster import SimCluster, failing_disks, simulate, slow_disks

SEEDS = 200
CHUNK = 50
#: With disks that fail.
FAILING_SEEDS = 100


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_is_broken(first: int) -> None:
    outcomes = [simulate(seed) for seed in range(first, first + CHUNK)]
    # Runs in which nothing happens would show nothing.
    assert sum(outcome.answered for outcome in outcomes) > 20 * CHUNK
    assert sum(outcome.terms for outcome in outcomes) > CHUNK


@pytest.mark.parametrize("first", range(0, FAILING_SEEDS, CHUNK))
def test_no_promise_is_broken_where_disks_fill_up_and_syncs_fail(first: int) -> None:
    seeds = range(first, first + CHUNK)
    outcomes = [simulate(seed, faults=failing_disks(seed)) for seed in seeds]
    assert sum(outcome.answered for outcome in outcomes) > 10 * CHUNK


def test_a_group_goes_on_where_storing_takes_longer_than_its_time_outs() -> None:
    outcomes = [simulate(seed, faults=slow_disks(seed)) for seed in range(CHUNK)]
    # 10 a seed where late answers count for nothing and heartbeats wait for the disk.
    assert sum(outcome.answered for outcome in outcomes) > 20 * CHUNK


def test_the_seeds_have_every_kind_of_trouble() -> None:
    clusters = [SimCluster(seed) for seed in range(SEEDS)]
    assert {len(cluster.members) for cluster in clusters} == {3, 5}
    kinds = ("loss", "duplication", "crashes", "partitions", "transfers", "snapshot_every")
    seen = {kind: sum(getattr(one.faults, kind) > 0 for one in clusters) for kind in kinds}
    seen["reordering"] = sum(one.faults.max_delay_ms > 100 for one in clusters)
    seen["slow disks"] = sum(one.faults.max_disk_ms > 50 for one in clusters)
    rates = [[member.rate for member in one.members.values()] for one in clusters]
    seen["clock rates apart"] = sum(max(some) > 1.2 * min(some) for some in rates)
    assert min(seen.values()) > SEEDS // 4, seen


@pytest.mark.parametrize("seed", [3, 14, 159, 265])
def test_a_replay_is_identical(seed: int) -> None:
    traces: list[list[str]] = [[], []]
    first, second = (simulate(seed, trace=trace) for trace in traces)
    assert first == second
    assert traces[0] == traces[1]
    assert len(traces[0]) > 100
