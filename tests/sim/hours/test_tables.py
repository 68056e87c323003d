"""Eight hours of clients, groups, topics, brokers, pops, timers, transactions and connections that
come and go: every table of a server is back where it was, but for those that say why."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.broker import Broker
from tests.support.sim.broker_hours import BrokerHours
from tests.support.sim.controller_hours import ControllerHours
from tests.support.sim.hours import A_DAY, STAYS, grown_in, tables
from tests.support.sim.proxy_hours import ProxyHours


def test_a_brokers_tables_are_back() -> None:
    hours = BrokerHours()
    assert grown_in(hours, 8) == {}
    before = tables(hours)
    hours.day()
    after = tables(hours)
    of_a_day = [label for label, stays in STAYS.items() if stays is A_DAY]
    # What is left are the groups that are there.
    assert {label for label in of_a_day if before[label] > 2}
    assert {label: after[label] for label in of_a_day if after[label] > 2} == {}


@pytest.mark.parametrize(("is_local", "number"), [(False, 8), (True, 6)])
def test_the_tables_of_a_proxy_and_a_name_server_are_back(is_local: bool, number: int) -> None:
    assert grown_in(ProxyHours(is_local=is_local), number, Broker) == {}


def test_controllers_tables_are_back() -> None:
    assert grown_in(ControllerHours(), 8) == {}
