"""A proposal that reaches the controllers after the next process of its sender has asked, or whose
answer never comes: the rules that keep promises then, each broken on purpose as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_tw.broker.election.following import ControllerFollower
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.controller.core import decisions
from rocketmq_tw.replication.auto_switch import service
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.sim.brokers import BrokerProcess
from tests.support.sim.checks import Broken
from tests.support.sim.runs import in_a_hurry
from tests.support.sim.world import World


def until(
    world: World, condition: Callable[[], bool], step: float = 0.0005, limit: float = 60.0
) -> None:
    give_up = world.clock.seconds() + limit
    while not condition():
        if world.clock.seconds() > give_up:
            raise Broken("it does not happen")
        world.run(step)


def joined(seed: int) -> World:
    """Someone asks that another one joins the SyncStateSet, in which it is alone so far."""
    world = World(seed)
    first, second = world.brokers[:2]
    for controller in world.controllers:
        controller.start()
    world.start_broker(first)
    until(world, lambda: first.state.role is Role.MASTER, 0.1)
    world.start_broker(second)
    until(world, lambda: first.is_asking)
    return world


def lose_controllers(world: World, broker: BrokerProcess) -> None:
    """A broker loses its connections to the controllers."""
    for end in world.network.ends(broker.host):
        if end.getPeer().host.startswith("10.1."):
            end.break_off()


def asker_is_killed(seed: int) -> None:
    """It is there again before what it asked for comes."""
    world = joined(seed)
    first, second = world.brokers[:2]
    world.network.weather.late = lambda: 2.0  # type: ignore[method-assign]
    first.end()
    world.checks.ended(first, power=False)
    world.start_broker(first)
    until(world, lambda: any(one.state.role is Role.MASTER for one in (first, second)), 0.001)
    for _ in range(40):
        world.send()
        world.run(0.1)
    world.recover()


def answer_is_lost(seed: int) -> None:
    """The controllers have the set, and its master does not know."""
    world = joined(seed)
    first, second = world.brokers[:2]
    until(world, lambda: len(world.latest.members) == 2)
    lose_controllers(world, first)
    world.network.cut |= {(second.host, first.host)}
    for _ in range(20):
        world.send()
        world.run(0.1)
    world.recover()


def first_question_is_late(seed: int) -> World:
    """What was asked for is asked again, on another connection, and refused: the one to join is
    not alive. The first question comes seconds later."""
    world = joined(seed)
    first, second = world.brokers[:2]
    world.network.weather.late = lambda: 7.0  # type: ignore[method-assign]
    lose_controllers(world, first)
    world.network.weather.late = lambda: 0.0  # type: ignore[method-assign]
    second.end()
    world.checks.ended(second, power=False)
    world.run(1.2)
    world.network.cut |= {(first.host, second.host), (second.host, first.host)}
    return world


def send_for(world: World, seconds: int) -> None:
    for _ in range(seconds * 10):
        world.send()
        world.run(0.1)


def refusal_overtakes(seed: int) -> None:
    """It lives again, out of its master's reach, when the first question comes."""
    world = first_question_is_late(seed)
    world.start_broker(world.brokers[1])
    send_for(world, 10)
    world.recover()


def refusal_overtakes_and_nobody_comes(seed: int) -> None:
    """It stays away until then; who is alone gets on meanwhile."""
    world = first_question_is_late(seed)
    send_for(world, 5)
    if not world.checks.acknowledged:
        raise Broken("a lone master takes nothing")
    world.start_broker(world.brokers[1])
    send_for(world, 4)
    world.recover()


def holds_word(world: World, broker: BrokerProcess, word: bytes) -> bool:
    """Whether a request with `word` is on its way from the broker."""
    return any(
        word in bytes(data) for end in world.network.ends(broker.host) for data in end.unsent
    )


def deposition_is_late(seed: int) -> None:
    """A process ends the epoch of the one before it, twice, since no answer came to the first
    time; that comes when it has been elected."""
    world = World(seed)
    first = world.brokers[0]
    for controller in world.controllers:
        controller.start()
    world.start_broker(first)
    until(world, lambda: first.state.role is Role.MASTER, 0.1)
    world.network.weather.late = lambda: 2.0  # type: ignore[method-assign]
    first.end()
    world.checks.ended(first, power=False)
    world.start_broker(first)
    until(world, lambda: holds_word(world, first, b'"designateElect":"true"'))
    world.network.weather.late = lambda: 12.0  # type: ignore[method-assign]
    lose_controllers(world, first)
    world.network.weather.late = lambda: 0.0  # type: ignore[method-assign]
    # The end of the former process is heard by then, too.
    world.run(4)
    until(world, lambda: world.latest.master == 1, 0.1)
    epoch = world.latest.master_epoch
    send_for(world, 15)
    if world.latest.master_epoch != epoch:
        raise Broken(f"epoch {epoch} was ended by who meant the one before")
    world.recover()


STORIES = [
    asker_is_killed,
    answer_is_lost,
    refusal_overtakes,
    refusal_overtakes_and_nobody_comes,
]


def test_promises_are_kept() -> None:
    with in_a_hurry():
        for seed in range(3):
            for story in [*STORIES, deposition_is_late]:
                story(seed)


def test_a_deposition_that_names_no_epoch_ends_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As stock's controllers take it."""
    monkeypatch.setattr(decisions, "_is_over", lambda *_: False)
    with pytest.raises(Broken, match="was ended by who meant the one before"), in_a_hurry():
        for seed in range(3):
            deposition_is_late(seed)


def goes_on_in_the_epoch_of_a_former_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ControllerFollower, "_is_former_self", lambda *_: False)


def takes_sets_of_old_epochs(patch: pytest.MonkeyPatch) -> None:
    refused_set = decisions._refused_set
    old = (
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
    )

    def refused(*asked: Any) -> tuple[int, str] | None:
        found = refused_set(*asked)
        return None if found is not None and found[0] in old else found

    patch.setattr(decisions, "_refused_set", refused)


def takes_any_refusal_for_the_end_of_a_proposal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(service, "NOT_TAKEN", frozenset(ResponseCode))


def takes_a_refusal_for_that_of_all_questions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(service, "NOT_YET", None)


def waits_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(service, "UNKNOWN_MS", 1 << 40)


@pytest.mark.parametrize(
    "rule",
    [
        goes_on_in_the_epoch_of_a_former_process,
        takes_sets_of_old_epochs,
        takes_any_refusal_for_the_end_of_a_proposal,
        takes_a_refusal_for_that_of_all_questions,
        waits_for_ever,
    ],
    ids=lambda rule: rule.__name__,
)
def test_a_broken_rule_is_found(
    rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(monkeypatch)
    with pytest.raises(Broken, match=r"is in sync|takes nothing|makes promises"), in_a_hurry():
        for seed in range(8):
            for story in STORIES:
                story(seed)
