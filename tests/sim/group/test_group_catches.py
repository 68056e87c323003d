"""Rules of controllers and brokers, each broken on purpose: the simulation of whole groups finds
it. Rules about late proposals: test_late_words.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred, inlineCallbacks, succeed

from rocketmq_tw.broker.replicas.replicated_log import SwitchedLog
from rocketmq_tw.broker.role.candidacy import Candidacy
from rocketmq_tw.controller.core import decisions, requests
from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.events import encode_event
from rocketmq_tw.controller.core.live_brokers import LiveBrokers
from rocketmq_tw.controller.core.state import ControllerState, Group, SyncState
from rocketmq_tw.controller.decider import Decider
from rocketmq_tw.controller.requests import ControllerRequests
from rocketmq_tw.raft.core.codes import RaftRole
from rocketmq_tw.replication.auto_switch.client import AutoSwitchHAClient
from rocketmq_tw.replication.auto_switch.service import AutoSwitchHAService
from rocketmq_tw.replication.auto_switch.sync_states import SyncStates
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import ResponseCode
from tests.sim.group.test_late_words import joined, until
from tests.support.sim.checks import Broken
from tests.support.sim.runs import in_a_hurry, run_seeds

SEEDS = 60
STORIES = 8

Patch = Callable[[pytest.MonkeyPatch], None]


# The controllers


def elects_whoever_lives(patch: pytest.MonkeyPatch) -> None:
    elect = decisions.elect_master

    def unclean(state: Any, request: Any, life: Any, *, unclean: bool = False) -> Decision:
        return elect(state, request, life, unclean=True)

    patch.setattr(requests.decisions, "elect_master", unclean)


def keeps_the_set_at_an_election(patch: pytest.MonkeyPatch) -> None:
    set_members = SyncState.set_members

    def kept(sync: SyncState, members: frozenset[int]) -> None:
        is_election = len(members) == 1 and members == {sync.master} and len(sync.members) > 1
        set_members(sync, sync.members if is_election else members)

    patch.setattr(SyncState, "set_members", kept)


def elects_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    def set_master(sync: SyncState, broker_id: int | None) -> None:
        sync.master_epoch += 1 if sync.master is None or broker_id is None else 0
        sync.master = broker_id

    patch.setattr(SyncState, "set_master", set_master)


def accepts(patch: pytest.MonkeyPatch, *codes: int) -> None:
    """Sets that are to be refused with one of these codes are taken."""
    refused_set = decisions._refused_set

    def refused(
        group: Group, request: Any, epoch: int, wanted: frozenset[int], life: Any
    ) -> tuple[int, str] | None:
        found = refused_set(group, request, epoch, wanted, life)
        return None if found is not None and found[0] in codes else found

    patch.setattr(decisions, "_refused_set", refused)


def takes_sets_of_former_masters(patch: pytest.MonkeyPatch) -> None:
    accepts(
        patch, ResponseCode.CONTROLLER_INVALID_MASTER, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
    )
    patch.setattr(ControllerRequests, "is_from_master", lambda *_: True)


def decides_before_its_log_is_applied(patch: pytest.MonkeyPatch) -> None:
    def role_changed(decider: Decider, role: RaftRole, term: int) -> None:
        decider._ready_term = term if role is RaftRole.LEADER else None

    async def decide(decider: Decider, make: Any) -> Decision:
        decision: Decision = make(decider.machine.state, decider._life)
        if decision.events:
            await decider._append([encode_event(event) for event in decision.events])
        return decision

    patch.setattr(Decider, "_role_changed", role_changed)
    patch.setattr(Decider, "_decide", decide)


def decides_out_of_turn(patch: pytest.MonkeyPatch) -> None:
    def decide(decider: Decider, name: str, make: Any, host: str) -> Deferred[Decision]:
        return Deferred.fromCoroutine(decider._decide(make))

    patch.setattr(Decider, "_in_turn", decide)
    patch.setattr(Decider, "_append_empty", Decider._confirm)


def answers_before_it_is_decided(patch: pytest.MonkeyPatch) -> None:
    async def append(decider: Decider, bodies: Iterable[bytes]) -> None:
        for proposed in decider._node.propose(bodies):
            proposed.addErrback(lambda _: None)

    patch.setattr(Decider, "_append", append)


def gives_an_id_twice(patch: pytest.MonkeyPatch) -> None:
    apply = decisions.apply_broker_id

    def anybody(state: ControllerState, request: Any) -> Decision:
        decision = apply(state, request)
        refused = decision.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        return msgspec.structs.replace(decision, code=0) if refused else decision

    patch.setattr(requests.decisions, "apply_broker_id", anybody)
    # The one who has it keeps others from it while it is alive.
    patch.setattr(LiveBrokers, "address", lambda live, *key: "")


# The brokers


def answers_before_its_slaves_have_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AutoSwitchHAService, "_required", lambda self: 1)


def confirms_what_it_has_alone(patch: pytest.MonkeyPatch) -> None:
    def advance(self: AutoSwitchHAService) -> None:
        if self._log.end_offset > self.confirmed:
            self.confirmed = self._log.end_offset
            self._switched.confirm(self.confirmed)

    patch.setattr(AutoSwitchHAService, "_advance", advance)


def changes_the_set_before_the_controller_does(patch: pytest.MonkeyPatch) -> None:
    ask = AutoSwitchHAService._ask

    def at_once(self: AutoSwitchHAService, members: frozenset[int]) -> None:
        self.states.applied = self.states.applied._replace(members=members)
        ask(self, members)

    patch.setattr(AutoSwitchHAService, "_ask", at_once)


def dispatches_what_is_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    append = SwitchedLog.append

    def hasty(self: SwitchedLog, offset: int, data: bytes) -> Deferred[int]:
        def appended(end: int) -> int:
            self.confirm(end)
            return end

        return append(self, offset, data).addCallback(appended)

    patch.setattr(SwitchedLog, "append", hasty)


def keeps_what_the_master_does_not_have(patch: pytest.MonkeyPatch) -> None:
    @inlineCallbacks
    def common(self: Any, master: Any, end: int) -> Generator[Any, Any, int]:
        yield succeed(None)
        return min(end, master.end)

    patch.setattr(AutoSwitchHAClient, "_common", common)


def lets_slaves_join_too_soon(patch: pytest.MonkeyPatch) -> None:
    reported = SyncStates.reported

    def hasty(states: SyncStates, *args: Any, promised_end: int, **named: Any) -> None:
        reported(states, *args, promised_end=0, **named)

    patch.setattr(SyncStates, "reported", hasty)


PROMISE = "is in sync|makes promises|others|readers saw|there are"
#: Each rule that is broken, and what comes of it.
RULES: dict[Patch, str] = {
    elects_whoever_lives: "from outside",
    keeps_the_set_at_an_election: f"{PROMISE}|come together",
    elects_without_a_new_epoch: "two masters",
    takes_sets_of_former_masters: "is not in sync|has not all",
    decides_before_its_log_is_applied: "given twice|from outside|two masters|elected was",
    decides_out_of_turn: "given twice|two masters|come together|elected was",
    answers_before_it_is_decided: "elected was",
    gives_an_id_twice: "given twice",
    answers_before_its_slaves_have_it: PROMISE,
    confirms_what_it_has_alone: PROMISE,
    changes_the_set_before_the_controller_does: f"{PROMISE}|come together",
    dispatches_what_is_not_confirmed: PROMISE,
    keeps_what_the_master_does_not_have: PROMISE,
    lets_slaves_join_too_soon: PROMISE,
}
#: The seed that is tried first, where the first of all finds nothing: one that found it once.
FOUND_BY: dict[Patch, int] = {
    elects_whoever_lives: 5,
    elects_without_a_new_epoch: 1,
    takes_sets_of_former_masters: 15,
    decides_out_of_turn: 4,
    gives_an_id_twice: 1,
    changes_the_set_before_the_controller_does: 7,
    keeps_what_the_master_does_not_have: 15,
    lets_slaves_join_too_soon: 6,
}


def a_new_leader_is_asked_at_once(seed: int) -> None:
    """One leaves the SyncStateSet; the controller that decided so is gone at once, and so is the
    master; the next leader is asked for an election before it can know what was committed."""
    world = joined(seed)
    first, second = world.brokers[:2]
    until(world, lambda: len(world.latest.members) == 2)
    world.run(1.0)
    second.end()
    world.checks.ended(second, power=False)
    until(world, lambda: len(world.latest.members) == 1)
    (leader,) = [one for one in world.controllers if one.leads]
    leader.end()
    first.end()
    world.checks.ended(first, power=False)
    world.start_broker(second)
    until(world, lambda: any(one.leads for one in world.controllers))
    one, other = [one.host for one in world.controllers if one.is_running]
    world.network.cut |= {(one, other), (other, one)}
    world.run(1.5)
    world.network.heal()
    world.run(5)
    world.recover()


def test_a_leader_decides_nothing_before_its_log_is_applied() -> None:
    with in_a_hurry():
        for seed in range(STORIES):
            a_new_leader_is_asked_at_once(seed)


def broken_promises(rule: Patch) -> Iterator[str]:
    """What is found with a broken rule, seed by seed."""
    if rule is not decides_before_its_log_is_applied:
        seeds = (FOUND_BY.get(rule, 0), *range(SEEDS))
        yield from (outcome.broken for outcome in run_seeds(seeds))
        return
    # By chance alone it takes hundreds of seeds.
    with in_a_hurry():
        for seed in range(STORIES):
            try:
                a_new_leader_is_asked_at_once(seed)
            except Broken as broken:
                yield str(broken)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_broken_rule_is_found(rule: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    rule(monkeypatch)
    found = next(filter(None, broken_promises(rule)), "")
    assert re.search(RULES[rule], found) and found, found


def test_a_broker_that_leads_on_without_its_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Candidacy, "refusal", "")
    monkeypatch.setattr(Candidacy, "failed", lambda candidacy, why: None)
    # As in FOUND_BY.
    outcomes = run_seeds((1003, *range(1000, 1000 + SEEDS)), disks_fail=True)
    assert any("does not go on" in outcome.broken for outcome in outcomes)
