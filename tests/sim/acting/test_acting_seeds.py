"""Groups whose slaves act for their masters, in trouble that seeds decide.

More of them: `python -m tools.acting_sim`.
"""

from __future__ import annotations

import pytest

from tests.support.sim.acting_world import simulate
from tests.support.sim.runs import in_a_hurry


@pytest.mark.parametrize("seed", range(4))
def test_groups_keep_their_promises(seed: int) -> None:
    with in_a_hurry():
        outcome = simulate(seed)
    assert not outcome.broken
    assert outcome.acknowledged
