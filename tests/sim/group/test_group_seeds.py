"""Groups of controllers and brokers in trouble, by seed. More of them: tools/controller_sim.py.

After every call that the clock makes: an epoch has one master, which was in sync when it was
elected; whoever is in sync has all that producers were told SEND_OK of and all that readers could
see; nothing that readers saw is gone or another message. In the end, without trouble, all brokers
are in sync and have one log, with every acknowledged message once. Every second chunk has disks
that fail with ENOSPC, EIO and EMFILE; a group whose master loses its disk goes on with another one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sim.runs import run_seeds

SEEDS = 60
CHUNK = 15


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_promise_is_broken(first: int) -> None:
    disks_fail = first % (2 * CHUNK) == 0
    outcomes = list(run_seeds(range(first, first + CHUNK), disks_fail=disks_fail))
    assert not [outcome.broken for outcome in outcomes if outcome.broken]
    # Groups in which nothing happens would show nothing.
    assert sum(outcome.acknowledged for outcome in outcomes) > 3 * CHUNK
    assert sum(outcome.masters for outcome in outcomes) > 2 * CHUNK
    # Which errors strike is chance, and twenty groups may be spared one of them.
    assert any(outcome.struck for outcome in outcomes) == disks_fail


def test_a_seed_is_the_same_group_in_every_process() -> None:
    root = Path(__file__).parents[3]
    script = (
        "from tests.support.sim.runs import run_seeds;"
        "print(*[outcome.digest for outcome in run_seeds([3, 14, 15])])"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [outcome.digest for outcome in run_seeds([3, 14, 15])]
