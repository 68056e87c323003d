"""Connections that have much to ask take turns; who has little is served soon."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.task import Clock
from zope.interface import implementer

from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.net.limits import LONG_ROUND, SHARE
from rocketmq_tw.runtime.turns import IReactorTurns
from rocketmq_tw.wire.command import RemotingCommand, encode_command
from tests.support.memory_server import ECHO, MemoryServer, RawClient

SLOW, WAITED = 10, 11
#: Seconds that a SLOW one takes.
TAKES = 0.001


@implementer(IReactorTurns)
class Rounds(Clock):
    """A reactor whose rounds the test makes."""

    began = 0.0

    def at_turn_end(self, call: Callable[[], None]) -> object:
        return self.callLater(0, call)

    def waited(self) -> float:
        return self.rightNow - self.began

    def serve_late(self, seconds: float, call: Callable[[], None]) -> None:
        began, self.began = self.began, self.rightNow - seconds
        call()
        self.began = began

    def round(self) -> float:
        """Does all that is due by now; returns how long that took."""
        self.began = began = self.rightNow
        for call in [call for call in self.calls if call.getTime() <= began]:
            if call in self.calls:
                self.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)
        return self.rightNow - began


class World(MemoryServer):
    def __init__(self, **config: int) -> None:
        self.rounds = Rounds()
        super().__init__(self.rounds, **config)
        self.listener.register(SLOW, self.slow)
        self.listener.register(WAITED, self.waited)

    def slow(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        self.rounds.rightNow += TAKES
        return self.echo(request, peer)

    def waited(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        return request.response(body=b"%d" % (self.rounds.waited() * 1000))

    def clients(self, count: int) -> list[RawClient]:
        return [self.connect() for _ in range(count)]


def send(client: RawClient, count: int, code: int = SLOW, body: bytes = b"") -> None:
    """All in one piece."""
    requests = [RemotingCommand(code, body=body, opaque=number) for number in range(count)]
    client.transport.write(b"".join(map(encode_command, requests)))  # type: ignore[union-attr]


def answered(client: RawClient) -> list[int]:
    return [response.opaque for response in client.responses]


@pytest.fixture
def world() -> World:
    return World()


def test_a_heartbeat_does_not_wait_for_a_thousand_connections(world: World) -> None:
    busy = world.clients(1_000)
    (other,) = world.clients(1)
    for client in busy:
        send(client, 60)
    at_once = 60 * TAKES
    assert world.rounds.round() <= LONG_ROUND + at_once + 1_000 * SHARE * TAKES
    # Senders go on as fast as they can.
    for client in busy:
        send(client, 60)
    send(other, 1)
    took = [world.rounds.round() for _ in range(2)]
    assert sum(took) <= 3 * (LONG_ROUND + SHARE * TAKES)
    world.rounds.round()
    assert answered(other) == [0]


def test_all_are_served_in_their_order_and_none_before_others(world: World) -> None:
    busy = world.clients(50)
    for client in busy:
        send(client, 60)
    world.rounds.round()
    shares = []
    while min(len(client.responses) for client in busy) < 60:
        assert world.rounds.round() <= LONG_ROUND + SHARE * TAKES
        counts = sorted(len(client.responses) for client in busy)
        if counts[0] < 60:
            shares.append(counts[len(counts) * 9 // 10] - counts[0])
    assert max(shares) <= 60 - SHARE
    assert sorted(shares)[len(shares) // 2] <= 2 * SHARE
    for client in busy:
        assert answered(client) == list(range(60))
    assert world.used == 0
    send(busy[0], 60)
    while world.rounds.calls and len(busy[0].responses) < 120:
        world.rounds.round()
    assert answered(busy[0])[60:] == list(range(60)), "it is read again"


def test_one_connection_alone_waits_for_nobody(world: World) -> None:
    (client,) = world.clients(1)
    send(client, 60)
    world.rounds.round()
    assert world.served == 60


def test_what_waits_for_its_turn_is_counted_and_not_added_to(world: World) -> None:
    busy = world.clients(30)
    for _ in range(2):
        for client in busy:
            send(client, 20, body=bytes(1_000))
        world.rounds.round()
    kept = 30 * 20 * 1_100
    assert kept / 2 < world.used < kept


def test_a_connection_that_is_lost_meanwhile_is_left_out(world: World) -> None:
    busy = world.clients(30)
    for client in busy:
        send(client, 20)
    world.rounds.round()
    for client in busy[10:]:
        client.transport.abortConnection()  # type: ignore[union-attr]
    for _ in range(100):
        world.rounds.round()
    assert world.used == 0
    assert all(answered(client) == list(range(20)) for client in busy[:10])


def test_what_is_no_frame_behind_some_that_wait_ends_the_connection(world: World) -> None:
    busy = world.clients(30)
    for client in busy:
        send(client, 20)
        client.transport.write(b"\0\0\0\x08\0\0\xff\xff1234")  # type: ignore[union-attr]
    for _ in range(100):
        world.rounds.round()
    assert all(client.lost for client in busy)


def test_the_server_stops_while_some_wait(world: World) -> None:
    busy = world.clients(30)
    for client in busy:
        send(client, 20)
    world.rounds.round()
    stopped = world.server.stop()
    for _ in range(200):
        world.rounds.round()
        world.rounds.rightNow += 0.02
    assert stopped.called and all(client.lost for client in busy)


def test_who_does_not_take_answers_goes_on_where_it_was(world: World) -> None:
    busy = world.clients(30)
    for client in busy:
        client.transport.hold()  # type: ignore[union-attr]
        send(client, 40, body=bytes(60_000))
    for _ in range(50):
        world.rounds.round()
    assert not any(client.responses for client in busy)
    for client in busy:
        client.transport.let_go()  # type: ignore[union-attr]
    for _ in range(200):
        world.rounds.round()
    assert all(answered(client) == list(range(40)) for client in busy)
    assert world.used == 0


def test_requests_know_how_long_they_have_waited_for_their_turn(world: World) -> None:
    """Who waited too long is told that the server is busy."""
    busy = world.clients(100)
    for client in busy:
        send(client, 60)
    (other,) = world.clients(1)
    send(other, SHARE + 1, WAITED)
    world.rounds.round()
    while len(other.responses) <= SHARE:
        world.rounds.round()
    # Those in front in the round had taken the time.
    assert int(other.responses[-1].body) >= 100 * SHARE * TAKES * 1000 / 2


def test_a_reactor_that_tells_no_times_serves_all_at_once() -> None:
    server = MemoryServer()
    clients = [server.connect() for _ in range(50)]
    for client in clients:
        send(client, 60, ECHO)
    server.clock.advance(0)
    assert server.served == 3_000
