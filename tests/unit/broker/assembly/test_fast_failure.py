"""SYSTEM_BUSY for what waited too long, where the reactor tells how long a round takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock
from zope.interface import implementer

from rocketmq_tw.broker.assembly.fast_failure import LIMITS, FastFailure
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.change import change
from rocketmq_tw.runtime.turns import IReactorTurns
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer


@implementer(IReactorTurns)
class BusyReactor(MemoryReactorClock):
    """Its rounds take as long as a test says."""

    round_seconds = 0.0

    def at_turn_end(self, call: Callable[[], None]) -> object:
        return self.callLater(0, call)

    def waited(self) -> float:
        return self.round_seconds

    def serve_late(self, seconds: float, call: Callable[[], None]) -> None:
        call()


def code_of(limits: dict[str, Any], code: RequestCode, waited: float) -> int:
    check = FastFailure(BrokerConfig(**limits), lambda: waited)
    try:
        check(RemotingCommand.request(code), FakePeer())
    except RequestError as refusal:
        return refusal.code
    return ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("code", "seconds"),
    [
        (RequestCode.SEND_MESSAGE_V2, 0.2),
        (RequestCode.SEND_BATCH_MESSAGE, 0.2),
        (RequestCode.CONSUMER_SEND_MSG_BACK, 0.2),
        (RequestCode.PULL_MESSAGE, 5.0),
        (RequestCode.POP_MESSAGE, 5.0),
        (RequestCode.LITE_PULL_MESSAGE, 5.0),
        (RequestCode.ACK_MESSAGE, 3.0),
        (RequestCode.END_TRANSACTION, 3.0),
        (RequestCode.HEART_BEAT, 31.0),
    ],
)
def test_each_kind_has_stocks_patience(code: RequestCode, seconds: float) -> None:
    assert code_of({}, code, seconds - 0.01) == ResponseCode.SUCCESS
    assert code_of({}, code, seconds + 0.01) == ResponseCode.SYSTEM_BUSY
    off = {"broker_fast_failure_enable": False}
    assert code_of(off, code, seconds + 0.01) == ResponseCode.SUCCESS


def test_limits_are_attributes() -> None:
    config = BrokerConfig()
    assert all(getattr(config, name) > 0 for name in LIMITS.values())


def test_who_administers_is_always_served() -> None:
    assert code_of({}, RequestCode.GET_BROKER_RUNTIME_INFO, 100.0) == ResponseCode.SUCCESS


def test_a_send_that_waited_is_refused_and_nothing_stored() -> None:
    reactor = BusyReactor()
    broker = BrokerInMemory(clock=reactor)
    connection = broker.network.client("10.0.0.9")
    answers: list[RemotingCommand] = []

    def send() -> RemotingCommand:
        request = broker.send_request()
        connection.request(broker.address, request, 3.0).addCallback(answers.append)
        broker.network.settle()
        return answers.pop()

    ok(send())
    reactor.round_seconds = 0.25
    busy = send()
    assert busy.code == ResponseCode.SYSTEM_BUSY
    assert busy.remark is not None and "waited for 250 ms" in busy.remark
    change(broker.config, {"waitTimeMillsInSendQueue": "1000"})
    ok(send())
    assert len(broker.consume()) == 2
