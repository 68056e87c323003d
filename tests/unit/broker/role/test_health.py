"""Whether a broker can write, by what its looks find; whether it stands for election."""

from __future__ import annotations

from twisted.internet.task import Clock

from rocketmq_tw.broker.role.candidacy import FIRST_PAUSE, LONGEST_PAUSE, Candidacy
from rocketmq_tw.broker.role.health import GRACE_SECONDS, Health
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState


def look(health: Health, now: float, *, broken: str = "", unready: str = "", **what: str) -> None:
    health.observe(now, broken=broken, troubles=what, unready=unready)


def test_what_fails_for_a_while_keeps_a_broker_from_writing_and_at_once_from_leading() -> None:
    health, told = Health(), list[tuple[str, str]]()
    health.changed.add(lambda: told.append((health.cannot_write, health.cannot_lead)))
    look(health, 0, log="full", queues="")
    look(health, GRACE_SECONDS - 0.1, log="full", queues="")
    look(health, GRACE_SECONDS, log="full", queues="")
    look(health, GRACE_SECONDS + 1, log="full", queues="")
    look(health, GRACE_SECONDS + 2, log="", queues="")
    # One that passed does not count for the next one.
    look(health, GRACE_SECONDS + 3, log="full", queues="")
    assert told == [("", "full"), ("full", "full"), ("", ""), ("", "full")]


def test_what_ends_all_writing_counts_at_once() -> None:
    health = Health()
    look(health, 0, broken="EIO", log="")
    assert (health.cannot_write, health.cannot_lead) == ("EIO", "EIO")


def test_what_only_a_new_master_lacks_does_not_end_a_masters_time() -> None:
    health, role = Health(), RoleHolder()
    candidacy = Candidacy(Clock(), health, role)
    look(health, 0, unready="no descriptors")
    assert candidacy.refusal == "no descriptors"
    told = list[str]()
    candidacy.changed.add(lambda: told.append(candidacy.refusal))
    role.change(RoleState(Role.MASTER, 0))
    assert candidacy.refusal == ""
    look(health, 1, unready="no descriptors", broken="EIO")
    role.change(RoleState(Role.ISOLATED, 0))
    assert told == ["", "EIO"]


def test_each_failed_election_is_followed_by_a_longer_pause() -> None:
    clock = Clock()
    candidacy = Candidacy(clock, Health(), RoleHolder())
    pauses = []
    for _ in range(8):
        candidacy.failed("no room")
        began = clock.seconds()
        assert "no room" in candidacy.refusal
        while candidacy.refusal:
            clock.advance(1)
        pauses.append(clock.seconds() - began)
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (FIRST_PAUSE, LONGEST_PAUSE)
    candidacy.succeeded()
    candidacy.failed("no room")
    clock.advance(FIRST_PAUSE)
    assert not candidacy.refusal
    candidacy.stop()
    assert not clock.getDelayedCalls()
