"""How parts are put together: what each one uses is made before it."""

import random

import pytest

from rocketmq_tw.broker.assembly.assembly import Assembly, AssemblyError
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.broker import PARTS
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.metrics.instruments import Distribution, MetricType
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory, fired


class Ground(Part):
    def __init__(self, role: RoleHolder) -> None:
        self.role = role


class Wall(Part):
    def __init__(self, ground: Ground) -> None:
        self.ground = ground


class Roof(Part):
    def __init__(self, role: RoleHolder, wall: Wall, ground: Ground, parts: Assembly) -> None:
        self.wall, self.parts = wall, parts


class Bell(Part):
    pass


class Hen(Part):
    def __init__(self, egg: "Egg") -> None:
        """Comes from it."""


class Egg(Part):
    def __init__(self, hen: Hen) -> None:
        """And that from this."""


def test_a_part_stands_behind_what_it_uses_whatever_the_order_of_the_classes() -> None:
    kinds = [Roof, Bell, Wall, Ground]
    for seed in range(20):
        random.Random(seed).shuffle(kinds)
        role = RoleHolder()
        parts = Assembly(kinds, [role])
        order = [type(part) for part in parts]
        assert order.index(Ground) < order.index(Wall) < order.index(Roof), seed
        assert [type(part) for part in reversed(parts)] == order[::-1]
        assert parts[Roof].wall is parts[Wall] and parts[Wall].ground is parts[Ground]
        assert parts[Roof].parts is parts and parts[Ground].role is role


def test_what_is_missing_is_named() -> None:
    with pytest.raises(AssemblyError, match="Wall wants Ground as 'ground'"):
        Assembly([Wall], [RoleHolder()])
    with pytest.raises(AssemblyError, match="Ground wants RoleHolder as 'role'"):
        Assembly([Ground], [])


def test_a_circle_is_named() -> None:
    with pytest.raises(AssemblyError, match="Hen uses Egg uses Hen"):
        Assembly([Hen, Egg], [])


def test_a_broker_may_lack_a_part_that_nobody_uses() -> None:
    parts = Assembly([Bell], [])
    assert Bell in parts and Wall not in parts
    with pytest.raises(KeyError):
        parts[Wall]


def test_the_parts_of_a_broker_do_not_depend_on_their_order() -> None:
    assert list(PARTS) == sorted(PARTS, key=lambda kind: kind.__name__)
    order = [type(part) for part in BrokerInMemory().broker.parts]
    assert set(order) == set(PARTS)
    assert order.index(Writing) < order.index(Stats)


def test_metrics_and_runtime_info_come_from_the_parts() -> None:
    broker = BrokerInMemory()
    broker.send(b"one")
    figures = {metric.name: metric.value for metric in broker.broker.metrics()}
    assert figures["rocketmq_messages_in_total"] == 1
    assert figures["rocketmq_storage_size"] == broker.store.end_offset
    assert figures["rocketmq_broker_permission"] == 6


@pytest.mark.parametrize(("shift_ms", "age_ms"), [(0, 7_000), (-3_600_000, 0)])
def test_messages_have_no_age_where_the_clock_was_set_back(shift_ms: int, age_ms: int) -> None:
    broker = BrokerInMemory()
    broker.send(b"one")
    broker.clock.advance(7)
    broker.shift_ms += shift_ms
    figures = {metric.name: metric.value for metric in broker.broker.metrics()}
    assert figures["rocketmq_storage_message_reserve_time"] == age_ms


def test_figures_have_a_type_and_the_labels_of_the_broker() -> None:
    broker = BrokerInMemory()
    broker.send(b"one")
    figures = {metric.name: metric for metric in broker.broker.metrics()}
    assert figures["rocketmq_messages_in_total"].type is MetricType.COUNTER
    assert figures["rocketmq_topic_number"].type is MetricType.GAUGE
    of_broker = {"node_type": "broker", "cluster": "DefaultCluster", "node_id": "broker-a"}
    assert all(figure.labels.items() >= of_broker.items() for figure in figures.values())


def test_requests_over_the_network_are_counted_with_their_latency() -> None:
    broker = BrokerInMemory()
    asked = broker.network.client("10.0.0.9").request(
        broker.address, RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO), 3.0
    )
    broker.network.settle()
    assert fired(asked).code == ResponseCode.SUCCESS
    (figure,) = (
        metric for metric in broker.broker.metrics() if metric.name == "rocketmq_rpc_latency"
    )
    assert figure.type is MetricType.HISTOGRAM
    assert figure.labels["request_code"] == "get_broker_runtime_info"
    assert figure.labels["response_code"] == "success"
    assert (figure.labels["is_long_polling"], figure.labels["result"]) == ("false", "success")
    assert isinstance(figure.value, Distribution) and figure.value.counts[0] == 1


def test_a_pull_that_was_held_is_counted_as_one() -> None:
    broker = BrokerInMemory()
    broker.send(b"one")
    client = broker.network.client("10.0.0.9")
    pulls = [
        client.request(broker.address, broker.pull_request(offset, suspend_ms=9000), 10.0)
        for offset in (0, 1)
    ]
    broker.network.settle()
    broker.send(b"two")
    broker.network.settle()
    assert [fired(pull).code for pull in pulls] == [ResponseCode.SUCCESS] * 2
    held = sorted(
        metric.labels["is_long_polling"]
        for metric in broker.broker.metrics()
        if metric.labels.get("request_code") == "pull_message"
    )
    assert held == ["false", "true"]
