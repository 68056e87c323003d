"""Messages whose properties have hardly room for what a pop and a revival add."""

from __future__ import annotations

import pytest

from rocketmq_tw.message.properties import MAX_PROPERTIES_LENGTH, join_properties
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import Popper, pass_time


@pytest.mark.parametrize("left", [0, 20, 40, 60, 80, 100, 150])
def test_they_come_again_too(left: int) -> None:
    broker = BrokerInMemory()
    ok(broker.send(b"first"))
    (first,) = broker.consume()
    usual = len(join_properties(first.properties | {"z": ""}))
    properties = {"UNIQ_KEY": "U" * 32, "z": "x" * (MAX_PROPERTIES_LENGTH - left - usual)}
    ok(broker.send(b"long", properties=properties))
    popper = Popper(broker, invisible_time=5_000)
    assert sorted(popper.bodies()) == [b"first", b"long"]
    for _ in range(2):
        pass_time(broker, 10)
        found = popper.pop()
        assert sorted(message.body for message in found) == [b"first", b"long"]
    popper.ack(*found)
    pass_time(broker, 10)
    assert popper.bodies() == []
