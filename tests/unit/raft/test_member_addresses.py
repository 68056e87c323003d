"""A member's word counts from its own address."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from rocketmq_tw.net.networks import Networks
from rocketmq_tw.raft.bodies import DLedgerRequestCode
from rocketmq_tw.raft.member_addresses import MEMBER_LOOK_UP_SECONDS, MemberAddresses
from rocketmq_tw.wire.command import RemotingCommand

PEERS = {"n0": "10.0.0.1:40911", "n1": "10.0.0.2:40911", "n2": "[fd00::3]:40911"}
UNKNOWN_MEMBER = 401


class Threads:
    """Runs at once; `names` are what is looked up."""

    def __init__(self, **names: list[str]) -> None:
        self.names = names
        self.asked: list[str] = []

    def __call__(self, job: Any) -> Deferred[Any]:
        try:
            return succeed(job())
        except OSError as error:
            return fail(error)

    def getaddrinfo(self, host: str, *_: object, **__: object) -> list[Any]:
        self.asked.append(host)
        if host not in self.names:
            raise OSError(f"{host} is not known")
        return [(0, 0, 0, "", (address, 0)) for address in self.names[host]]


def members(networks: str = "", peers: dict[str, str] = PEERS) -> MemberAddresses:
    return MemberAddresses(Clock(), peers, Threads(), Networks(networks))


@pytest.mark.parametrize(
    ("member", "address", "may"),
    [
        ("n0", "10.0.0.1:50000", True),
        ("n0", "10.0.0.2:50000", False),
        ("n0", "[::ffff:10.0.0.1]:50000", True),
        ("n2", "[fd00:0::3]:50000", True),
        ("n0", "127.0.0.1:50000", False),
        ("x9", "10.0.0.9:50000", True),
    ],
)
def test_the_address_of_the_member(member: str, address: str, may: bool) -> None:
    assert members().may_speak(member, address) is may


def test_members_on_one_machine_reach_each_other_over_any_loopback_address() -> None:
    here = members(peers={"n0": "127.0.1.1:40911", "n1": "[::1]:40912"})
    assert here.may_speak("n0", "127.0.0.1:50000") and here.may_speak("n1", "127.0.0.1:50000")
    assert not here.may_speak("n0", "10.0.0.1:50000")


def test_networks_are_believed_for_all_members() -> None:
    behind = members("192.168.0.0/16")
    assert behind.may_speak("n0", "192.168.7.1:50000")
    assert not behind.may_speak("n0", "172.16.0.1:50000")


def test_a_name_is_looked_up_again_where_somebody_else_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, threads = Clock(), Threads(one=["10.0.0.1"])
    monkeypatch.setattr(socket, "getaddrinfo", threads.getaddrinfo)
    named = MemberAddresses(clock, {"n0": "one:40911", "n1": "two:40911"}, threads)
    # The first word of a member is not heard, the next one is.
    assert not named.may_speak("n0", "10.0.0.1:50000")
    assert named.may_speak("n0", "10.0.0.1:50001")
    # It moves; a flood looks it up once in a while.
    threads.names["one"] = ["10.0.0.7", "fd00::7"]
    for _ in range(1000):
        assert not named.may_speak("n0", "10.0.0.7:50000")
    clock.advance(MEMBER_LOOK_UP_SECONDS)
    for _ in range(1000):
        named.may_speak("n0", "10.0.0.8:50000")
    assert named.may_speak("n0", "10.0.0.7:50000") and named.may_speak("n0", "[fd00::7]:50000")
    assert not named.may_speak("n0", "10.0.0.1:50000")
    assert threads.asked == ["one"] * 2
    assert not named.may_speak("n1", "10.0.0.2:50000")
    assert threads.asked[2:] == ["two"]


@pytest.mark.parametrize(
    "code", [DLedgerRequestCode.HEART_BEAT, DLedgerRequestCode.VOTE, DLedgerRequestCode.PUSH]
)
def test_a_stranger_with_terms_far_ahead_stops_nothing(
    group: Any, code: DLedgerRequestCode
) -> None:
    """Once a second, in the name of each member: eleven of twelve decisions failed of that."""
    leader = group.elect()
    term = group.nodes[leader].core.term
    stranger = group.network.client("10.0.0.9")
    for number in range(12):
        for target, address in group.addresses.items():
            for member in {"n0", "n1", "n2"} - {target}:
                body = {
                    "group": "g",
                    "remoteId": target,
                    "localId": member,
                    "leaderId": member,
                    "term": term + 100 + number,
                    "ledgerEndIndex": 1 << 40,
                    "ledgerEndTerm": term + 99,
                    "type": "APPEND",
                }
                answers: list[RemotingCommand] = []
                request = RemotingCommand.request(code, body=json.dumps(body).encode())
                stranger.request(address, request, 3.0).addCallback(answers.append)
                group.run_until(lambda answers=answers: answers, limit=1.0)
                assert json.loads(answers[0].body)["code"] == UNKNOWN_MEMBER
        done: list[Any] = []
        group.nodes[leader].propose([b"x"])[0].addCallback(done.append)
        group.run_until(lambda done=done: done, limit=1.0)
        group.run(1.0)
    assert group.leader() is group.nodes[leader] and group.nodes[leader].core.term == term


def test_a_stranger_hands_nobody_the_leadership(group: Any) -> None:
    """It names no sender, and speaks for the leader all the same."""
    leader = group.elect()
    term = group.nodes[leader].core.term
    stranger = group.network.client("10.0.0.9")
    for target in {"n0", "n1", "n2"} - {leader}:
        body = {
            "group": "g",
            "remoteId": target,
            "transferId": leader,
            "transfereeId": target,
            "term": term,
            "takeLeadershipLedgerIndex": 0,
        }
        answers: list[RemotingCommand] = []
        code = DLedgerRequestCode.LEADERSHIP_TRANSFER
        request = RemotingCommand.request(code, body=json.dumps(body).encode())
        stranger.request(group.addresses[target], request, 3.0).addCallback(answers.append)
        group.run_until(lambda answers=answers: answers, limit=2.0)
        assert json.loads(answers[0].body)["code"] == UNKNOWN_MEMBER
    group.run(1.0)
    assert group.leader() is group.nodes[leader] and group.nodes[leader].core.term == term
