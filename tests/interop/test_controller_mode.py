"""Controller mode as processes, ours and stock's: what is acknowledged outlives kills and pauses.

tools/controller_campaign.py does more of it, with cut links too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.controllers import STOCK_VERSION
from tests.support.java_client import JavaClients
from tests.support.outage_cell import kinds, make_rounds, run_cell
from tests.support.outages import Outage


@pytest.mark.parametrize(
    ("controllers", "brokers"),
    [("ours", "ours"), ("ours", "mixed"), ("mixed", "ours"), ("stock", "ours")],
)
def test_nothing_acknowledged_is_lost_or_doubled(
    controllers: str, brokers: str, jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    """Of each outage one of the master and one of the controller that leads."""
    run_cell(
        tmp_path,
        kinds(controllers, controllers=True),
        kinds(brokers, controllers=False),
        jvms[STOCK_VERSION],
        make_rounds({Outage.KILL: 2, Outage.PAUSE: 2}, seed=1),
    )
