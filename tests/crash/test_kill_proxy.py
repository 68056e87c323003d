"""A moment of `tools/proxy_campaign.py`: proxies, a broker and name servers that are
killed, or move."""

from pathlib import Path

from tests.support.proxy_load import RENEWED
from tools import proxy_campaign
from tools.proxy_campaign import (
    BROKER,
    BROKER_MOVES,
    LOCAL,
    MASTER,
    NAME_SERVER,
    NAME_SERVER_MOVES,
    PROXY,
)


def test_what_a_killed_proxy_said_holds(tmp_path: Path) -> None:
    events = [PROXY, PROXY, NAME_SERVER, NAME_SERVER_MOVES]
    outcome = proxy_campaign.run(tmp_path, 4, events=events)
    assert outcome.faults == []
    assert outcome.sent > 20
    assert outcome.moved > 0


def test_what_a_killed_proxy_had_renewed_is_not_lost(tmp_path: Path) -> None:
    kept = RENEWED + 5.0
    outcome = proxy_campaign.run(tmp_path, 1, longest_kept=kept, patience=1, pause=0.05)
    assert outcome.faults == []
    assert outcome.renewed > 0


def test_nothing_is_lost_where_brokers_behind_proxies_are_killed_and_move(tmp_path: Path) -> None:
    outcome = proxy_campaign.run(tmp_path, 2, events=[BROKER, BROKER_MOVES])
    assert outcome.faults == []


def test_a_broker_that_dies_with_its_proxy_is_passed_over(tmp_path: Path) -> None:
    outcome = proxy_campaign.run(tmp_path, 1, events=[LOCAL])
    assert outcome.faults == []


def test_nothing_is_lost_where_a_slave_becomes_the_master(tmp_path: Path) -> None:
    outcome = proxy_campaign.run(tmp_path, 1, events=[MASTER])
    assert outcome.faults == []
