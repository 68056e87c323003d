"""What a broker calls itself."""

import pytest

from rocketmq_tw.broker.cluster.addresses import announced_host, resolve
from rocketmq_tw.config.properties import ConfigError


def test_an_address_stands_for_itself() -> None:
    assert resolve("10.1.2.3") == announced_host("10.1.2.3") == "10.1.2.3"
    assert resolve("::1") == "::1"
    assert announced_host("broker.example") == "broker.example"


def test_a_host_that_nobody_knows_is_named_with_the_keys_to_change() -> None:
    # No label may be so long, so that no name server of the network is asked.
    host = "x" * 64
    with pytest.raises(ConfigError, match=f"the host {host} is not known .* brokerIP1"):
        resolve(host)
