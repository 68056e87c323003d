"""A broker's name and id are its own, beside stock's brokers and name servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.jars import STOCK_VERSIONS
from tests.support.ports import BrokerPorts
from tests.support.processes import START_LIMIT
from tests.support.wait import wait_until


@pytest.mark.parametrize("kind", ["4.9.7", OURS])
def test_a_start_on_a_port_that_is_taken_unregisters_nobody(kind: str, tmp_path: Path) -> None:
    ports = BrokerPorts()
    with make_name_server(kind, tmp_path / "names") as names:
        first = make_broker(OURS, "b", tmp_path / "1", [names], ports=ports)
        second = make_broker(OURS, "b", tmp_path / "2", [names], ports=ports)
        with first:
            second.launch()
            wait_until(lambda: not second.running, "the second broker to give up")
            assert "Address already in use" in second.log_text()
            assert names.addresses_of("b").get(0) == first.address


@pytest.mark.parametrize("version", STOCK_VERSIONS)
def test_a_second_broker_of_stock_is_heard_once_the_first_is_gone(
    version: str, tmp_path: Path
) -> None:
    often = {"registerNameServerPeriod": "10000"}
    with make_name_server(OURS, tmp_path / "names") as names:
        first = make_broker(OURS, "b", tmp_path / "1", [names], settings=often)
        second = make_broker(version, "b", tmp_path / "2", [names], settings=often)
        with first:
            second.launch()
            wait_until(
                lambda: "and is refused" in names.log_text(), "its registration", limit=START_LIMIT
            )
            assert names.addresses_of("b").get(0) == first.address
            first.kill()
            second.wait_ready()
            assert names.addresses_of("b") == {0: second.address}
        second.close()
