"""The simulation of acting masters finds what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rocketmq_tw.broker.acting.absence import Absence
from rocketmq_tw.broker.acting.part import Acting
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.sending.part import Sending
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import SendMessageResponseHeader
from tests.support.sim.acting_world import simulate
from tests.support.sim.runs import in_a_hurry

SEEDS = range(8)


def found(seeds: range = SEEDS) -> str:
    """What the first of some seeds finds; empty where none finds anything."""
    with in_a_hurry():
        for seed in seeds:
            broken = simulate(seed).broken
            if broken:
                return broken
    return ""


def test_an_acting_master_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    may_act = Acting._may_act

    def stays(acting: Acting, smallest: int | None) -> bool:
        return acting._role.state.role is Role.ACTING_MASTER or may_act(acting, smallest)

    monkeypatch.setattr(Acting, "_may_act", stays)
    assert "both deliver" in found(range(1, 9))


def test_a_master_that_does_not_see_that_it_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Absence, "_check_absence", lambda _: None)
    assert "groups put back" in found(range(16, 22))


def test_an_acting_master_that_takes_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = Sending.handlers

    header = SendMessageResponseHeader(msg_id="0" * 32, queue_id=0, queue_offset=0)

    def accept(request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(header=header)

    def takes(sending: Sending, role: Role) -> Mapping[int, Handler]:
        answers = handlers(sending, role)
        return dict.fromkeys(answers, accept) if role is Role.ACTING_MASTER else answers

    monkeypatch.setattr(Sending, "handlers", takes)
    assert "took a message" in found()
