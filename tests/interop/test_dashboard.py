"""Each request of stock's dashboard is answered alike on ours and on stock's servers."""

from __future__ import annotations

from pathlib import Path

from tests.support.dashboard_cases import CASES
from tests.support.dashboard_site import DashboardSite
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import NEW
from tests.support.mqadmin_comparison import compare


def test_every_request_is_answered_alike(jvms: dict[str, JavaClients], tmp_path: Path) -> None:
    outcomes = compare(jvms[NEW], tmp_path, CASES, DashboardSite)
    wrong = [each for each in outcomes if not each.is_as_expected]
    assert not wrong, "\n".join(map(str, wrong))
