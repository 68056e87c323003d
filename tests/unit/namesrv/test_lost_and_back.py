"""A master that is lost and back while its many topics still change."""

from __future__ import annotations

from functools import partial

from twisted.internet.task import Clock

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv.brokers import Registration
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.permissions import READ, WRITE

#: Some steps of any work on all of them.
TOPICS = [f"T{number}" for number in range(5_000)]


class Group:
    """A master and a slave of broker `a`, which take part in Slave Acting Master."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._in_slices = Slices(self.clock)
        unwatched = partial(self._in_slices.unwatched, purpose="topics of a broker")
        self.table = RouteTable(NamesrvConfig(support_acting_master=True), in_slices=unwatched)
        for broker_id in (0, 1):
            self.register(broker_id)
        self.settle()

    def register(self, broker_id: int, connection: str = "first") -> None:
        new = Registration(
            cluster="c",
            broker_name="a",
            broker_id=broker_id,
            address=f"10.0.0.{broker_id}:10911",
            acting_master=True,
            owner=(broker_id, connection),
            topics=TopicConfigTable(
                topic_config_table={
                    topic: TopicConfig(topic_name=topic, perm=READ | WRITE) for topic in TOPICS
                },
                data_version=DataVersion(counter=1),
            ),
        )
        self._in_slices(self.table.register(new, 0)[1])

    def settle(self) -> None:
        self.clock.pump([0] * 200)

    def permissions(self) -> set[int]:
        """Those of the topics."""
        return {self.table.queues.of_topic(topic)["a"].perm for topic in TOPICS}


def test_a_master_that_is_back_at_once_may_be_written_to() -> None:
    group = Group()
    assert group.permissions() == {READ | WRITE}
    assert list(group.table.lose((0, "first")))
    group.register(0, "second")
    group.settle()
    assert group.permissions() == {READ | WRITE}


def test_one_that_is_lost_again_may_not() -> None:
    group = Group()
    for connection in ("first", "second"):
        assert list(group.table.lose((0, connection)))
        if connection == "first":
            group.register(0, "second")
    group.settle()
    assert group.permissions() == {READ}
