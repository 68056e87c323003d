"""A moment of `tools/proxy_campaign.py`: proxies, a broker and name servers that are killed."""

from pathlib import Path

from tools import proxy_campaign
from tools.proxy_campaign import BROKER, LOCAL, NAME_SERVER, PROXY


def test_what_a_killed_proxy_said_holds(tmp_path: Path) -> None:
    outcome = proxy_campaign.run(tmp_path, 3, events=[PROXY, PROXY, NAME_SERVER])
    assert outcome.faults == []
    assert outcome.sent > 20


def test_nothing_is_lost_where_a_broker_behind_proxies_is_killed(tmp_path: Path) -> None:
    outcome = proxy_campaign.run(tmp_path, 1, events=[BROKER])
    assert outcome.faults == []


def test_a_broker_that_dies_with_its_proxy_is_passed_over(tmp_path: Path) -> None:
    outcome = proxy_campaign.run(tmp_path, 1, events=[LOCAL])
    assert outcome.faults == []
