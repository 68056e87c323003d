"""Checks of requests and connections, at once and taking their time, and who a peer is then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from zope.interface import implementer

from rocketmq_tw.net.interfaces import (
    ANONYMOUS,
    LOST,
    WRITTEN,
    AccessChecks,
    IPeer,
    ISelectiveCheck,
    PeerIdentity,
    RequestCheck,
    RequestResult,
)
from rocketmq_tw.net.limits import SHARE
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, encode_command
from rocketmq_tw.wire.errors import RequestError
from tests.support.memory_server import BIG, ECHO, HELD, LATER, MemoryServer, RawClient
from tests.support.network import FakePeer

OTHER = "10.0.0.1:10921"
NOBODY = RequestError(ResponseCode.NO_PERMISSION, "nobody")
ALICE = PeerIdentity("alice")


class Accounts:
    """A check whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[RemotingCommand, IPeer, Deferred[None]]] = []
        self.given_up = 0

    def __call__(self, request: RemotingCommand, peer: IPeer) -> Deferred[None]:
        answer: Deferred[None] = Deferred(self._give_up)
        self.asked.append((request, peer, answer))
        return answer

    def _give_up(self, _: Deferred[None]) -> None:
        self.given_up += 1

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request, _, _ in self.asked]

    def pass_last(self, identity: PeerIdentity = ALICE) -> None:
        _, peer, answer = self.asked[-1]
        peer.identity = identity
        answer.callback(None)

    def refuse_last(self, error: Exception = NOBODY) -> None:
        self.asked[-1][2].errback(error)


class World:
    def __init__(self, *checks: RequestCheck, clock: Clock | None = None, **config: int) -> None:
        self.accounts = Accounts()
        access = AccessChecks(requests=checks or (self.accounts,))
        self.server = MemoryServer(clock, access=access, **config)
        self.seen: list[tuple[RequestResult, float]] = []
        self.server.listener.observe(lambda *request: self.seen.append(request))
        self.client = self.server.connect()

    def settle(self) -> None:
        for _ in range(5):
            self.server.clock.advance(0)

    def send(self, code: int, body: bytes = b"", opaque: int = 1, flag: int = 0) -> None:
        self.client.send(code, body, opaque, flag)
        self.settle()

    def pass_all(self) -> None:
        """Passes what is asked, and what is asked behind it."""
        while self.accounts.asked and not self.accounts.asked[-1][2].called:
            self.accounts.pass_last()
            self.settle()

    @property
    def codes(self) -> list[int]:
        return [response.code for response in self.client.responses]

    @property
    def opaques(self) -> list[int]:
        return [response.opaque for response in self.client.responses]


@pytest.fixture
def world() -> World:
    return World()


def send_at_once(client: RawClient, *requests: RemotingCommand) -> None:
    client.transport.write(b"".join(map(encode_command, requests)))  # type: ignore[union-attr]


def echoes(count: int) -> list[RemotingCommand]:
    return [RemotingCommand(ECHO, body=b"%d" % each, opaque=each) for each in range(count)]


# A check that takes its time


def test_the_handler_runs_when_the_check_fires(world: World) -> None:
    world.send(ECHO, b"hello")
    assert world.server.served == 0 and world.codes == []
    world.accounts.pass_last()
    world.settle()
    assert world.codes == [ResponseCode.SUCCESS] and world.client.responses[0].body == b"hello"


def test_a_peer_is_anonymous_until_a_check_says_who_it_is(world: World) -> None:
    world.send(LATER)
    _, peer, _ = world.accounts.asked[0]
    assert peer.identity == ANONYMOUS
    world.accounts.pass_last(ALICE)
    assert world.server.later[0][1].identity == ALICE
    assert FakePeer().identity == ANONYMOUS


def test_a_check_refuses_later(world: World) -> None:
    world.send(ECHO)
    world.accounts.refuse_last()
    world.settle()
    assert world.codes == [ResponseCode.NO_PERMISSION]
    assert world.client.responses[0].remark == "nobody" and world.server.served == 0


def test_a_check_that_fails_is_logged_and_lets_nobody_in(world: World) -> None:
    world.send(ECHO)
    with capturedLogs() as logs:
        world.accounts.refuse_last(KeyError("broken"))
    world.settle()
    assert world.codes == [ResponseCode.SYSTEM_ERROR] and world.server.served == 0
    assert len([event for event in logs if "log_failure" in event]) == 1


@pytest.mark.parametrize("pieces", [1, 7])
def test_requests_keep_their_order(world: World, pieces: int) -> None:
    requests = echoes(7)
    for start in range(0, 7, 7 // pieces):
        send_at_once(world.client, *requests[start : start + 7 // pieces])
        world.settle()
    assert world.accounts.bodies == [b"0"], "nothing else is looked at meanwhile"
    world.pass_all()
    assert world.accounts.bodies == [b"%d" % each for each in range(7)]
    assert world.opaques == list(range(7))
    world.send(ECHO, opaque=9)
    world.pass_all()
    assert world.opaques[-1] == 9, "it is read again"
    assert world.server.used == 0


def test_a_refused_one_does_not_hold_up_the_next(world: World) -> None:
    send_at_once(world.client, *echoes(2))
    world.settle()
    world.accounts.refuse_last()
    world.settle()
    world.pass_all()
    assert world.codes == [ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS]


def test_other_connections_do_not_wait(world: World) -> None:
    world.send(ECHO)
    other = world.server.connect()
    other.send(ECHO)
    world.settle()
    world.accounts.pass_last()
    world.settle()
    assert len(other.responses) == 1 and world.codes == []


def test_what_waits_is_counted_and_not_added_to(world: World) -> None:
    send_at_once(world.client, *[RemotingCommand(ECHO, body=bytes(10_000)) for _ in range(10)])
    world.settle()
    held = world.server.used
    assert 100_000 < held < 120_000
    send_at_once(world.client, RemotingCommand(ECHO, body=bytes(50_000)))
    world.settle()
    assert world.server.used == held, "it is not read"
    world.pass_all()
    assert len(world.codes) == 11 and world.server.used == 0


def test_answers_that_come_later_are_counted_as_ever(world: World) -> None:
    world.send(LATER, bytes(5_000), opaque=1)
    world.pass_all()
    world.send(HELD, bytes(5_000), opaque=2)
    world.pass_all()
    assert 10_000 < world.server.used < 20_000
    for request, peer in world.server.later:
        peer.reply(request.response())
    for request, answer in world.server.held:
        answer.callback(request.response())
    world.settle()
    assert world.opaques == [1, 2] and world.server.used == 0


def test_a_connection_that_is_lost_gives_the_check_up(world: World) -> None:
    send_at_once(world.client, *echoes(3))
    world.settle()
    with capturedLogs() as logs:
        world.client.transport.abortConnection()
        world.settle()
    assert world.accounts.given_up == 1 and len(world.accounts.asked) == 1
    assert world.server.served == 0 and world.server.used == 0
    assert world.seen == [((ECHO, None, False, LOST), 0.0)]
    assert not [event for event in logs if "log_failure" in event]


def test_a_check_that_cannot_be_given_up_serves_nobody() -> None:
    answers: list[Deferred[None]] = []

    def never(request: RemotingCommand, peer: IPeer) -> Deferred[None]:
        answers.append(Deferred())
        answers[-1].addErrback(lambda failure: failure.trap(CancelledError) and shielded)
        return answers[-1]

    shielded: Deferred[None] = Deferred()
    world = World(never)
    world.send(ECHO)
    world.client.transport.abortConnection()
    world.settle()
    shielded.callback(None)
    assert world.server.served == 0 and world.server.used == 0


def test_a_oneway_request_is_checked_too(world: World) -> None:
    world.send(ECHO, flag=2)
    world.accounts.pass_last()
    world.send(ECHO, flag=2)
    world.accounts.refuse_last()
    world.settle()
    assert world.server.served == 1 and world.codes == [] and world.server.used == 0


def test_who_does_not_take_answers_is_served_no_further(world: World) -> None:
    world.client.transport.hold()
    for opaque in range(15):
        world.send(BIG, opaque=opaque)
        world.pass_all()
    asked = len(world.accounts.asked)
    assert asked < 15
    world.client.transport.let_go()
    world.settle()
    world.pass_all()
    assert world.opaques == list(range(15)) and world.server.used == 0


def test_a_stop_waits_for_what_is_being_checked(world: World) -> None:
    send_at_once(world.client, *echoes(3))
    world.settle()
    stopped = world.server.server.stop(timeout=3)
    world.server.clock.advance(1)
    assert not stopped.called
    world.accounts.pass_last()
    world.server.clock.pump([0.1] * 5)
    assert stopped.called and world.client.lost
    assert world.opaques == [0], "what was not begun is not carried out"


def test_an_observer_is_told_how_long_it_took(world: World) -> None:
    world.send(ECHO)
    world.server.clock.advance(1.5)
    world.accounts.pass_last()
    world.settle()
    assert world.seen == [((ECHO, ResponseCode.SUCCESS, False, WRITTEN), 1500)]


def test_requests_behind_the_share_of_a_round_wait_for_the_check() -> None:
    from tests.unit.net.test_request_turns import Rounds

    rounds = Rounds()
    world = World(clock=rounds)
    rounds.began = -1.0
    send_at_once(world.client, *echoes(3 * SHARE))
    for _ in range(5):
        rounds.round()
    for _ in range(3 * SHARE):
        assert len(world.client.responses) == len(world.accounts.asked) - 1
        world.accounts.pass_last()
        for _ in range(5):
            rounds.round()
    assert world.opaques == list(range(3 * SHARE)) and world.server.used == 0


# Several checks


def test_each_check_is_asked_once_and_in_order() -> None:
    asked: list[str] = []
    waiting: list[Deferred[None]] = []

    def check(name: str, *, later: bool) -> RequestCheck:
        def look(request: RemotingCommand, peer: IPeer) -> Deferred[None] | None:
            asked.append(name)
            if not later:
                return None
            waiting.append(Deferred())
            return waiting[-1]

        return look

    world = World(check("a", later=False), check("b", later=True), check("c", later=True))
    end = world.server.listener.add_check(check("d", later=False))
    world.send(ECHO)
    assert asked == ["a", "b"]
    # Another role of the server may bring another check meanwhile, and take its own along.
    world.server.listener.add_check(check("new", later=False))
    end()
    waiting[0].callback(None)
    assert asked == ["a", "b", "c"]
    waiting[1].callback(None)
    world.settle()
    assert asked == ["a", "b", "c", "new"] and world.codes == [ResponseCode.SUCCESS]


def test_a_check_that_was_added_twice_goes_when_both_are_ended() -> None:
    asked: list[int] = []

    def look(request: RemotingCommand, peer: IPeer) -> None:
        asked.append(request.opaque)

    world = World(lambda request, peer: None)
    ends = [world.server.listener.add_check(look) for _ in range(2)]
    for opaque, end in enumerate((ends[0], ends[0], ends[1])):
        world.send(ECHO, opaque=opaque)
        end()
    world.send(ECHO, opaque=3)
    assert asked == [0, 0, 1, 2]


def test_a_check_sees_only_requests_of_the_codes_that_it_names() -> None:
    seen: list[tuple[str, int]] = []

    def named(name: str, codes: frozenset[int]) -> RequestCheck:
        @implementer(ISelectiveCheck)
        class Check:
            def __init__(self) -> None:
                self.codes = codes

            def lets_all_pass(self) -> bool:
                return False

            def __call__(self, request: RemotingCommand, peer: IPeer) -> None:
                seen.append((name, request.code))

        return Check()

    def of_all(request: RemotingCommand, peer: IPeer) -> None:
        seen.append(("all", request.code))

    world = World(named("a", frozenset({91})), of_all, named("b", frozenset({91, 92})))
    for code in (91, 92, 93):
        world.send(code)
    assert seen == [("a", 91), ("all", 91), ("b", 91), ("all", 92), ("b", 92), ("all", 93)]


def test_a_check_may_be_a_coroutine_and_may_be_done_at_once() -> None:
    async def look(request: RemotingCommand, peer: IPeer) -> None:
        if request.body == b"3":
            raise NOBODY

    world = World(look, lambda request, peer: succeed(None))
    send_at_once(world.client, *echoes(5))
    world.settle()
    assert world.opaques == list(range(5))
    assert [code == ResponseCode.SUCCESS for code in world.codes] == [True] * 3 + [False, True]


def test_the_checks_of_a_server_guard_all_its_listeners(world: World) -> None:
    later: list[RemotingCommand] = []

    def own(request: RemotingCommand, peer: IPeer) -> None:
        later.append(request)

    listener = world.server.server.listener(before_request=[own])
    world.server.serve(listener, OTHER)
    client = world.server.connect(OTHER)
    client.send(ECHO)
    world.settle()
    assert len(world.accounts.asked) == 1 and later == []
    world.accounts.pass_last()
    world.settle()
    assert len(client.responses) == len(later) == 1


# Connections of other protocols


def checking(*checks: Callable[[Any], Any]) -> Any:
    return MemoryServer(access=AccessChecks(connections=checks)).server.check(FakePeer())


def test_a_connection_that_nobody_checks_is_served_at_once() -> None:
    assert checking() is None and checking(lambda peer: None) is None


def test_a_connection_passes_one_check_after_the_other() -> None:
    first: Deferred[None] = Deferred()
    second: Deferred[None] = Deferred()
    asked: list[int] = []
    passed: list[None] = []
    checked = checking(lambda peer: first, lambda peer: asked.append(1), lambda peer: second)
    checked.addCallback(passed.append)
    assert asked == []
    first.callback(None)
    assert asked == [1] and passed == []
    second.callback(None)
    assert passed == [None]


def test_a_connection_is_refused_at_once_or_later() -> None:
    def refuse(peer: Any) -> None:
        raise NOBODY

    async def later(peer: Any) -> None:
        raise NOBODY

    with pytest.raises(RequestError):
        checking(refuse)
    failures: list[Any] = []
    checking(later).addErrback(failures.append)
    assert failures[0].check(RequestError)
