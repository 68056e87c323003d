"""Whatever holds the reactor is named in the log."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.abstract import FileDescriptor
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from rocketmq_tw.net.reactor import ServerReactor
from rocketmq_tw.net.stalls import StallLog
from tests.support.memory_server import ECHO, MemoryServer

SLOW = 5


@pytest.fixture
def server() -> MemoryServer:
    server = MemoryServer()

    def slow(request: Any, peer: Any) -> Any:
        server.clock.rightNow += 0.3
        return request.response()

    server.listener.register(SLOW, slow)
    return server


def lines(work: Callable[[], object]) -> list[str]:
    with capturedLogs() as logs:
        work()
    return [str(formatEvent(event)) for event in logs]


def test_a_slow_request_is_named_with_its_peer(server: MemoryServer) -> None:
    client = server.connect()
    client.send(ECHO)
    client.send(SLOW)
    client.send(ECHO)
    (line,) = lines(lambda: server.clock.advance(0))
    assert line.startswith("the reactor was held for 0.30 s by requests of 10.0.0.9:")
    assert line.endswith(f"with code {ECHO} x 2, {SLOW}")
    assert len(client.responses) == 3


def test_what_a_slow_peer_catches_up_on_is_timed_from_then(server: MemoryServer) -> None:
    client = server.connect()
    client.transport.hold()
    for _ in range(20):
        client.send(2)
    client.send(ECHO)
    server.clock.advance(0)
    server.clock.advance(3)
    client.transport.let_go()
    assert lines(lambda: server.clock.pump([0.0] * 5)) == []


def test_stalls_that_follow_are_counted(server: MemoryServer) -> None:
    clients = [server.connect() for _ in range(3)]

    def stall() -> None:
        for client in clients:
            client.send(SLOW)
        server.clock.advance(0)

    assert len(lines(stall)) == 1
    server.clock.advance(11)
    (line,) = lines(stall)
    assert line.endswith("; 2 stalls before were not logged")


def test_the_first_line_says_nothing_of_others() -> None:
    clock = Clock()
    stalls = StallLog(clock.seconds)
    assert lines(lambda: stalls.report(0.4567, "it")) == ["the reactor was held for 0.46 s by it"]


class Turns:
    """Our reactor by a clock that its calls move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reactor = ServerReactor(lambda: self.now)

    def hold(self) -> None:
        self.now += 0.25

    def close(self) -> None:
        self.reactor.removeAll()
        self.reactor.waker.connectionLost(Failure(CONNECTION_DONE))
        self.reactor._poller.close()


@pytest.fixture
def turns() -> Iterator[Turns]:
    turns = Turns()
    yield turns
    turns.close()


def test_a_slow_timer(turns: Turns) -> None:
    turns.reactor.callLater(0, turns.hold)
    (line,) = lines(turns.reactor.runUntilCurrent)
    assert "by timers and calls of threads" in line


def test_a_slow_timer_that_was_set_before_is_named(turns: Turns) -> None:
    # Twisted takes new timers in with a turn.
    turns.reactor.callLater(0.001, turns.hold)
    turns.reactor.runUntilCurrent()
    (line,) = lines(lambda: [turns.reactor.iterate(0.01) for _ in range(3)])
    assert line.endswith("the first Turns.hold")


@pytest.mark.parametrize(("each", "count"), [(0.1, 3), (0.1, 1), (0.3, 1), (0.05, 3)])
def test_events_that_are_slow_together(turns: Turns, each: float, count: int) -> None:
    class Pair(FileDescriptor):
        def __init__(self) -> None:
            super().__init__(turns.reactor)
            self.ends = socket.socketpair()
            self.ends[1].send(b"x")

        def fileno(self) -> int:
            return self.ends[0].fileno()

        def doRead(self) -> None:
            turns.now += each
            self.ends[0].recv(1)

    pairs = [Pair() for _ in range(count)]
    for pair in pairs:
        pair.startReading()
    said = lines(lambda: turns.reactor.doPoll(0))
    for pair in pairs:
        pair.stopReading()
        for end in pair.ends:
            end.close()
    if count == 3 and each == 0.1:
        (line,) = said
        assert line.endswith("held for 0.30 s by one turn of 3 events: Pair x 3")
    else:
        # One that is slow alone is named by who serves it.
        assert said == []


def test_a_slow_call_of_a_thread(turns: Turns) -> None:
    turns.reactor.callFromThread(turns.hold)
    (line,) = lines(turns.reactor.runUntilCurrent)
    assert line.endswith("0.25 s by timers and calls of threads")


def test_a_slow_end_of_a_turn(turns: Turns) -> None:
    turns.reactor.at_turn_end(turns.hold)
    turns.reactor.at_turn_end(list)
    (line,) = lines(turns.reactor.runUntilCurrent)
    assert line.endswith("0.25 s by the end of a turn: Turns.hold, list")


def test_a_quick_turn_says_nothing(turns: Turns) -> None:
    turns.reactor.callLater(0, lambda: None)
    turns.reactor.at_turn_end(lambda: None)
    assert lines(turns.reactor.runUntilCurrent) == []
