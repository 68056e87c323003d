"""Under controllers a slave says its id, and is believed where that broker is registered."""

from __future__ import annotations

import pytest
from twisted.internet.protocol import Factory, Protocol
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.replication.auto_switch.frames import (
    EpochTransfer,
    MasterReader,
    SlaveHandshake,
    SlaveReport,
)
from tests.support.sim.group import ElectedGroup

STRANGER = "10.66.0.1"


class EagerSlave(Protocol):
    """Claims an id and acknowledges all that it is sent."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.end = 0
        self.lost = False
        self._reader = MasterReader()

    def connectionMade(self) -> None:
        self.write(SlaveHandshake(self.broker_id, False, False).encode())

    def dataReceived(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if isinstance(frame, EpochTransfer):
                self.end = max(self.end, frame.end)
        self.write(SlaveReport(self.end).encode())

    def write(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[union-attr]

    def connectionLost(self, *_: object) -> None:
        self.lost = True


def group_of_two(**keys: object) -> ElectedGroup:
    settings = {"in_sync_replicas": 2, "slave_timeout": 1000, **keys}
    group = ElectedGroup(**settings)
    group.controllers.leader()
    group.start(1)
    group.run_until(lambda: group.masters() == [1])
    group.start(2)
    group.run_until(lambda: len(group.in_sync()) == 2)
    return group


def connect(group: ElectedGroup, broker_id: int) -> EagerSlave:
    made: list[EagerSlave] = []
    ha = group.brokers[1].broker.addresses.ha
    factory = Factory.forProtocol(lambda: EagerSlave(broker_id))
    group.network.connect(STRANGER, ha, factory).addCallback(made.append)
    group.run(1)
    return made[0]


def shown(group: ElectedGroup) -> dict[str, bool]:
    links = group.brokers[1].broker[Replicas].master
    assert links is not None
    infos = links.runtime_info().ha_connection_info
    return {info.addr.partition(":")[0]: info.in_sync for info in infos}


@pytest.mark.parametrize("claimed", [2, 9])
def test_a_stranger_is_no_second_copy_and_ousts_no_slave(claimed: int) -> None:
    group = group_of_two()
    with capturedLogs() as logs:
        connect(group, claimed)
    lines = [line for event in logs if f"{STRANGER}:" in (line := formatEvent(event))]
    assert any(f"with id {claimed} is no registered member" in line for line in lines), lines
    assert shown(group) == {"10.0.0.2": True, STRANGER: False}
    group.send(1, b"copied")
    group.run_until(lambda: group.acknowledged == [b"copied"])
    group.processes[2].pause()
    group.send(1, b"held")
    group.run(5)
    assert group.acknowledged == [b"copied"], "only a stranger has the other one"


def test_with_all_in_sync_a_stranger_speaks_for_nobody() -> None:
    group = group_of_two(all_ack_in_sync_state_set=True)
    group.processes[2].pause()
    connect(group, 2)
    group.send(1, b"held")
    group.run(2)
    assert group.acknowledged == []


def test_a_slave_that_comes_back_is_itself() -> None:
    group = group_of_two()
    connect(group, 2)
    group.kill(2)
    group.run(3)
    group.start(2)
    group.run_until(lambda: shown(group).get("10.0.0.2", False))
    group.send(1, b"copied")
    group.run_until(lambda: group.acknowledged == [b"copied"])
