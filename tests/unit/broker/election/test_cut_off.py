"""A master delivered what its slave never got; that is cut off when it follows the slave, and comes
again when it leads the next time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.election.part import ElectedRole
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.codes import RequestCode
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer
from tests.support.pops import Popper
from tests.support.sim.group import ElectedGroup


def delayed(group: ElectedGroup, broker: BrokerInMemory) -> None:
    broker.request(broker.send_request(b"d", properties={"DELAY": "2"}), FakePeer())


def popped(group: ElectedGroup, broker: BrokerInMemory) -> None:
    broker.request(broker.send_request(b"d"), FakePeer())
    group.run(0.5)
    broker.request(Popper(broker).request(invisible_time=4000), FakePeer())
    group.run(0.5)


def consumed(group: ElectedGroup) -> list[bytes]:
    return [message.body for message in group.master().consume()]


def popped_again(group: ElectedGroup) -> list[bytes]:
    found = []
    for _ in range(10):
        found += Popper(group.master()).bodies()
        group.run(1)
    return found


@pytest.mark.parametrize("behind_ms", [0, 22_000], ids=["", "the other's clock is behind"])
@pytest.mark.parametrize("reign", [0, 10])
@pytest.mark.parametrize(("begin", "bodies"), [(delayed, consumed), (popped, popped_again)])
def test_a_delivery_that_is_cut_off_comes_again(
    begin: Callable, bodies: Callable, reign: int, behind_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = ElectedGroup(all_ack_in_sync_state_set=True)
    leader = group.controllers.leader()
    assert leader is not None
    group.start(1)
    group.start(2)
    group.run_until(lambda: len(group.in_sync()) == 2)
    (first,) = group.masters()
    other = 3 - first
    group.send(first, b"first")
    group.run(1)
    begin(group, group.master())
    group.run(3)
    # It cannot tell the controllers that the slave is gone, which is in sync still.
    follower = group.master().broker[ElectedRole].follower
    assert follower is not None
    monkeypatch.setattr(follower._leader, "alter_sync_state_set", lambda *_: Deferred())
    group.kill(other)
    group.run(20)
    store = group.master().store
    assert store.end_offset > store.dispatched_offset, "delivered, not confirmed"
    group.kill(first)
    group.start(other).shift_ms = -behind_ms
    group.run_until(lambda: group.role(other) is Role.MASTER)
    group.start(first)
    group.run_until(lambda: group.masters() == [other] and len(group.in_sync()) == 2)
    group.run(reign)
    ok(
        group.controllers.ask(
            group.controllers.leader_id(),
            RequestCode.CONTROLLER_ELECT_MASTER,
            clusterName="C",
            brokerName="broker-a",
            brokerId=group.broker_id(first),
            designateElect="true",
            invokeTime="1",
        )
    )
    group.run_until(lambda: group.masters() == [first] and len(group.in_sync()) == 2)
    group.brokers[other].shift_ms = 0
    group.run(40)
    assert b"d" in bodies(group)
