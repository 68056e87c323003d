"""Refusals of a proposal whose first answer was lost."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred, fail

from rocketmq_tw.replication.auto_switch.frames import SlaveHandshake, SlaveReport
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import SyncStateSet
from tests.support.switched_ends import Master

UNKNOWN = ResponseCode.CONTROLLER_INVALID_REPLICAS
NOT_ALIVE = ResponseCode.CONTROLLER_BROKER_NOT_ALIVE


class Doubtful(Master):
    """Slave 2 has all; the first answer to its proposal is lost, the others are `code`."""

    def __init__(self, code: int) -> None:
        super().__init__(all_ack=True)
        self._code = code
        self.slave, _ = self.link()
        self.slave.dataReceived(SlaveHandshake(2).encode() + SlaveReport(250).encode())

    def propose(self, members: frozenset[int]) -> Deferred[SyncStateSet]:
        self.asked.append(members)
        if len(self.asked) == 1:
            return fail(ConnectionError("lost"))
        return fail(RequestError(self._code, "no"))

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            self.service._tick()


@pytest.mark.parametrize(("code", "waited_for"), [(UNKNOWN, set()), (NOT_ALIVE, {2})])
def test_who_is_not_alive_may_be_taken_later(code: int, waited_for: set[int]) -> None:
    master = Doubtful(code)
    master.run(2)
    assert master.service.states.waited_for == waited_for
    assert master.renounced == 0


def test_nobody_is_waited_for_in_vain() -> None:
    master = Doubtful(NOT_ALIVE)
    master.slave.connectionLost(None)
    master.run(5)
    assert master.renounced >= 1


def test_a_stranger_under_that_id_keeps_others_out_for_a_while_only() -> None:
    master = Doubtful(NOT_ALIVE)
    master.run(9)
    assert master.renounced == 0
    master.run(4)
    assert master.renounced == 1
    master.service.apply(SyncStateSet(frozenset({1}), 2))
    assert not master.service.states.waited_for
