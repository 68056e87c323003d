"""Controller mode as processes, ours and stock's: what is acknowledged outlives kills and pauses.

tools/controller_campaign.py does more of it, with cut links too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.controllers import STOCK_VERSION
from tests.support.java_client import JavaClients
from tests.support.outage_cell import Round, kinds, make_rounds, run_cell
from tests.support.outages import Outage

#: Of each outage one of the master and one of the controller that leads.
BOTH = make_rounds({Outage.KILL: 2, Outage.PAUSE: 2}, seed=1)
#: Stock's servers take their time to come back.
KILLS = [Round(Outage.KILL, True, True), Round(Outage.KILL, False, True)]


@pytest.mark.parametrize(
    ("controllers", "brokers", "rounds"),
    [
        ("ours", "ours", BOTH),
        pytest.param("ours", "mixed", KILLS, marks=pytest.mark.more),
        pytest.param("mixed", "ours", KILLS, marks=pytest.mark.more),
        ("mixed", "mixed", KILLS),
        ("stock", "ours", KILLS),
    ],
)
def test_nothing_acknowledged_is_lost_or_doubled(
    controllers: str,
    brokers: str,
    rounds: list[Round],
    jvms: dict[str, JavaClients],
    tmp_path: Path,
) -> None:
    """Cells with brokers of stock's only are in test_controllers.py, and stock's controllers with
    brokers of both in test_auto_switch.py."""
    run_cell(
        tmp_path,
        kinds(controllers, controllers=True),
        kinds(brokers, controllers=False),
        jvms[STOCK_VERSION],
        rounds,
    )
