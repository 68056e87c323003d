"""Seeded schedules of a group that changes its master, over the real auto-switch links.

After every step: what was acknowledged with `allAckInSyncStateSet` is in the log of whoever is
elected, and what some reader could see is never cut off or another message elsewhere. At the end,
with the faults gone, all logs are equal and all three brokers are in sync.
"""

from __future__ import annotations

import pytest

from tests.support.sim.switched import run

SEEDS = 500


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_no_change_of_master_loses_what_was_acknowledged_or_seen(first: int) -> None:
    for seed in range(first, first + 50):
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed} breaks: {error!r}") from error


def test_a_seed_replays_identically() -> None:
    for seed in range(10):
        assert run(seed).trace == run(seed).trace
