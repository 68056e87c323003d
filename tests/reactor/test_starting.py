"""A broker that starts, on real sockets: who asks meanwhile is answered once it serves."""

from __future__ import annotations

from typing import Any

import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.broker import PARTS
from rocketmq_tw.broker.role.state import RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.load import send_request
from tests.support.ports import BrokerPorts
from tests.support.remoting import Connection


class Slow(Part):
    """Enters a role only when the test says so."""

    entering: Deferred[Any]

    def __init__(self, host: Host, writing: Writing) -> None:
        pass

    def enter(self, state: RoleState) -> Deferred[Any]:
        return self.entering


def ask(address: str) -> RemotingCommand:
    """A sender's answer; blocks."""
    with Connection(address) as connection:
        return connection.request(send_request("Topic", 0, b"early"))


@pytest_twisted.ensureDeferred
async def test_a_sender_that_comes_while_a_configured_role_is_entered_is_answered_by_it() -> None:
    from twisted.internet import reactor

    Slow.entering = Deferred()
    ports = BrokerPorts()
    broker = BrokerInMemory(
        clock=reactor,  # type: ignore[arg-type]
        address=ports.listen.address,
        started=False,
        kinds=[*PARTS, Slow],
    )
    started = broker.broker.start()
    while not broker.broker.addresses.port:
        await deferLater(reactor, 0.01)
    answers = [deferToThread(ask, port.address) for port in (ports.listen, ports.vip)]
    await deferLater(reactor, 0.2)
    assert not any(answer.called for answer in answers) and not started.called
    Slow.entering.callback(None)
    await started
    try:
        assert [(await answer).code for answer in answers] == [ResponseCode.SUCCESS] * 2
    finally:
        await broker.broker.stop()
        ports.release()


@pytest_twisted.ensureDeferred
async def test_a_broker_that_waits_for_its_role_says_that_it_starts() -> None:
    from twisted.internet import reactor

    broker = BrokerInMemory(
        clock=reactor,  # type: ignore[arg-type]
        address="127.0.0.1:0",
        broker={"enable_controller_mode": True, "controller_addr": "127.0.0.1:1"},
        started=False,
    )
    await broker.broker.start()
    try:
        answer = await deferToThread(ask, f"127.0.0.1:{broker.broker.addresses.port}")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "starting" in (answer.remark or "")
    finally:
        await broker.broker.stop()
