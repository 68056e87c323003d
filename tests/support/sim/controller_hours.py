"""Hours of controllers: groups of brokers come, change their master and go; controllers are started
again."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from tests.support.sim.controllers import CLUSTER, PEERS, AskingBroker, Controllers

#: Groups of brokers in one hour.
GROUPS = 4


class ControllerHours:
    """`hour` lets groups come and go."""

    def __init__(self) -> None:
        # Without snapshots the log has all that there ever was.
        self.controllers = Controllers(controller_snapshot_interval=40)
        self._numbers = count(1)
        self.lasting = [AskingBroker(self.controllers, each, "stays") for each in (1, 2)]
        self.controllers.leader()
        for broker in self.lasting:
            broker.come_up()

    def roots(self) -> Iterable[object]:
        """The controllers that run."""
        return list(self.controllers.running.values())

    def hour(self) -> None:
        """Brokers come up, are elected, die or are silent; their groups are cleaned."""
        controllers, number = self.controllers, next(self._numbers)
        leader = controllers.leader_id()
        brokers = [
            AskingBroker(controllers, broker_id, f"g{number}-{each}")
            for each in range(1, GROUPS + 1)
            for broker_id in (1, 2)
        ]
        for broker in brokers:
            broker.come_up()
        for broker in brokers:
            self._elect(broker)
        for broker in self.lasting:
            broker.beat()
            self._elect(broker)
        controllers.run(30)
        for each, broker in enumerate(brokers):
            if each % 3:
                broker.die()
        # One of the controllers is started again; others go on.
        other = next(member for member in PEERS if member != leader)
        controllers.stop(other)
        controllers.run(10)
        controllers.start(other)
        controllers.run(20)
        for broker in brokers:
            broker.die()
        controllers.run(10)
        for name in dict.fromkeys(broker.name for broker in brokers):
            answer = controllers.ask(
                controllers.leader_id(),
                RequestCode.CLEAN_BROKER_DATA,
                brokerName=name,
                clusterName=CLUSTER,
                isCleanLivingBroker="true",
            )
            assert answer.code == ResponseCode.SUCCESS, answer
        controllers.run(60)
        # As Prometheus does, more often than the log.
        for controller in controllers.running.values():
            list(controller.metrics())

    def _elect(self, broker: AskingBroker) -> None:
        self.controllers.ask(
            self.controllers.leader_id(),
            RequestCode.CONTROLLER_ELECT_MASTER,
            brokerName=broker.name,
            clusterName=CLUSTER,
            brokerId=str(broker.broker_id),
        )
