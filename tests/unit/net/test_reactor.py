"""What both reactors do, Twisted's for epoll and ours, which reads another way."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from select import EPOLLHUP
from typing import Any

import pytest
from twisted.internet.abstract import FileDescriptor
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionFdescWentAway, ConnectionLost
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure

from rocketmq_tw.net import reactor as net_reactor
from rocketmq_tw.net.reactor import ServerReactor

Made = Callable[..., "Descriptor"]


class Descriptor(FileDescriptor):
    """One end of a socket pair that tells what happens to it; `read` says how a read ends."""

    def __init__(self, reactor: EPollReactor, read: Callable[[], Any] = lambda: None) -> None:
        super().__init__(reactor)
        self.socket, self.other = socket.socketpair()
        self.socket.setblocking(False)
        self.connected = 1
        self.seen: list[Any] = []
        self._read = read

    def fileno(self) -> int:
        return self.socket.fileno()

    def doRead(self) -> Any:
        self.seen.append("read")
        self.socket.recv(100)
        return self._read()

    def doWrite(self) -> Any:
        self.seen.append("write")
        self.stopWriting()

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self.seen.append(reason.type)

    def close(self) -> None:
        self.socket.close()
        self.other.close()


@pytest.fixture(params=[EPollReactor, ServerReactor])
def reactor(request: pytest.FixtureRequest) -> Iterator[EPollReactor]:
    made = request.param()
    yield made
    close(made)


def close(reactor: EPollReactor) -> None:
    reactor.removeAll()
    reactor.waker.connectionLost(Failure(CONNECTION_DONE))
    reactor._poller.close()


@pytest.fixture
def descriptor(reactor: EPollReactor) -> Iterator[Made]:
    made: list[Descriptor] = []

    def make(read: Callable[[], Any] = lambda: None) -> Descriptor:
        made.append(Descriptor(reactor, read))
        made[-1].startReading()
        return made[-1]

    yield make
    for one in made:
        one.stopReading()
        one.stopWriting()
        one.close()


def failures(logged: list[LogEvent]) -> list[BaseException]:
    return [event["failure"].value for event in logged if "failure" in event]


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def test_what_can_be_read_is_read(reactor: EPollReactor, descriptor: Made) -> None:
    ready, silent = descriptor(), descriptor()
    reactor.doIteration(0)
    assert ready.seen == silent.seen == []
    ready.other.send(b"x")
    reactor.doIteration(None)
    reactor.doIteration(0)
    assert ready.seen == ["read"] and silent.seen == []


def test_what_can_be_written_is_written(reactor: EPollReactor, descriptor: Made) -> None:
    ready = descriptor()
    ready.startWriting()
    ready.other.send(b"x")
    reactor.doIteration(0)
    assert ready.seen == ["read", "write"]


@pytest.mark.parametrize("reason", [CONNECTION_DONE, CONNECTION_LOST])
def test_how_a_read_ends_ends_the_connection(
    reactor: EPollReactor, descriptor: Made, reason: Exception
) -> None:
    ready = descriptor(lambda: reason)
    ready.other.send(b"x")
    reactor.doIteration(0)
    assert ready.seen == ["read", type(reason)]
    assert ready not in reactor.getReaders()


def test_a_hang_up_ends_the_connection(reactor: EPollReactor, descriptor: Made) -> None:
    ready = descriptor()
    ready.stopReading()
    ready.startWriting()
    ready.other.close()
    reactor.doIteration(0)
    assert ready.seen == [ConnectionLost]


def test_a_socket_that_was_closed_in_silence_is_let_go(
    reactor: EPollReactor, descriptor: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = descriptor()
    ready.other.send(b"x")
    monkeypatch.setattr(ready, "fileno", lambda: -1)
    reactor.doIteration(0)
    assert ready.seen == [ConnectionFdescWentAway]
    assert ready not in reactor.getReaders()


def test_a_read_that_fails_ends_its_connection_alone(
    reactor: EPollReactor, descriptor: Made, logged: list[LogEvent]
) -> None:
    error = ValueError("as the test means it")

    def fail() -> None:
        raise error

    broken, others = descriptor(fail), [descriptor() for _ in range(3)]
    for one in (broken, *others):
        one.other.send(b"x")
    reactor.doIteration(0)
    assert broken.seen == ["read", ValueError] and broken not in reactor.getReaders()
    assert all(one.seen == ["read"] for one in others)
    assert failures(logged) == [error]


def test_a_connection_that_fails_at_its_end_leaves_the_others_alone(
    reactor: EPollReactor, descriptor: Made, logged: list[LogEvent]
) -> None:
    error = ValueError("as the test means it")
    broken, others = descriptor(lambda: CONNECTION_DONE), [descriptor() for _ in range(3)]

    def connection_lost(_reason: Failure) -> None:
        raise error

    broken.connectionLost = connection_lost  # type: ignore[method-assign]
    for one in (broken, *others):
        one.other.send(b"x")
    reactor.doIteration(0)
    assert all(one.seen == ["read"] for one in others)
    assert failures(logged) == [error]


def test_what_another_of_the_round_has_closed_is_not_read(
    reactor: EPollReactor, descriptor: Made
) -> None:
    pair: list[Descriptor] = []

    def close_all() -> None:
        for one in pair:
            one.stopReading()

    pair += [descriptor(close_all), descriptor(close_all)]
    for one in pair:
        one.other.send(b"x")
    reactor.doIteration(0)
    assert sorted(len(one.seen) for one in pair) == [0, 1]


def test_timers_and_calls_from_threads_end_a_wait(reactor: EPollReactor) -> None:
    called: list[str] = []
    reactor.callFromThread(called.append, "thread")
    reactor.doIteration(None)
    reactor.callLater(0, called.append, "timer")
    reactor.runUntilCurrent()
    assert called == ["thread", "timer"]


def test_a_turn_ends_behind_its_events_and_timers(logged: list[LogEvent]) -> None:
    reactor = ServerReactor()
    try:
        called: list[str] = []
        error = ValueError("as the test means it")

        def fail() -> None:
            raise error

        def end() -> None:
            called.append("end")
            reactor.at_turn_end(lambda: called.append("what the end asks for"))

        reactor.at_turn_end(fail)
        reactor.at_turn_end(end)
        reactor.callLater(0, called.append, "timer")
        reactor.callFromThread(called.append, "thread")
        assert called == []
        reactor.runUntilCurrent()
        assert called == ["thread", "timer", "end", "what the end asks for"]
        assert [e["log_failure"].value for e in logged if e.get("log_failure")] == [error]
        reactor.runUntilCurrent()
        assert len(called) == 4
    finally:
        close(reactor)


def test_it_tells_how_long_its_round_takes() -> None:
    now = [10.0]
    reactor = ServerReactor(lambda: now[0])
    try:
        reactor.doIteration(0)
        now[0] += 0.5
        assert reactor.waited() == 0.5
        told: list[float] = []
        reactor.serve_late(2.5, lambda: told.append(reactor.waited()))
        assert (told, reactor.waited()) == ([2.5], 0.5)
        reactor.doIteration(0)
        assert reactor.waited() == 0.0
    finally:
        close(reactor)


def test_neither_timers_nor_answers_wait_for_all_who_say_something_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(net_reactor, "EVENTS_OF_A_TURN", 4)
    reactor = ServerReactor()
    called: list[str] = []

    def read() -> None:
        called.append("read")
        if called == ["read"]:
            reactor.callLater(0, called.append, "timer")
            reactor.at_turn_end(lambda: called.append("answers"))

    crowd = [Descriptor(reactor, read) for _ in range(10)]
    try:
        for one in crowd:
            one.startReading()
            one.other.send(b"something")
        reactor.doIteration(0)
        assert called == ["read"] * 4 + ["timer", "answers"] + ["read"] * 6
    finally:
        close(reactor)
        for one in crowd:
            one.close()


Events = list[tuple[int, int]]


class Poller:
    """An epoll whose events are `changed` on their way."""

    def __init__(self, inner: Any, changed: Callable[[Events], Events]) -> None:
        self.inner = inner
        self._changed = changed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def poll(self, *args: Any) -> Events:
        return self._changed(self.inner.poll(*args))


def as_errors(events: Events) -> Events:
    """The ends of connections, which can be read, as those of connections that were cut."""
    return [(fd, EPOLLHUP) for fd, event in events if event & EPOLLHUP]


def test_what_a_closed_connection_had_to_say_does_not_end_one_that_has_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(net_reactor, "EVENTS_OF_A_TURN", 1)
    reactor = ServerReactor()
    crowd = [Descriptor(reactor) for _ in range(2)]
    made: list[Descriptor] = []

    def replace() -> None:
        (old,) = [one for one in crowd if not one.seen]
        number = old.fileno()
        old.stopReading()
        new = Descriptor(reactor)
        old.socket.close()
        new.socket = socket.socket(fileno=os.dup2(new.socket.detach(), number))
        new.startReading()
        made.append(new)

    try:
        for one in crowd:
            one.startReading()
            one.other.close()
        reactor._poller = Poller(reactor._poller, as_errors)
        reactor.callLater(0, replace)
        reactor.doIteration(0)
        (new,) = made
        assert new.seen == []
        new.other.send(b"x")
        reactor._poller = reactor._poller.inner
        reactor.doIteration(0)
        assert new.seen == ["read"]
    finally:
        close(reactor)
        for one in [*crowd, *made]:
            one.close()


def test_behind_a_pause_all_that_came_is_read_before_a_timer_finds_who_was_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(net_reactor, "EVENTS_OF_A_TURN", 1)
    now = [0.0]
    reactor = ServerReactor(lambda: now[0])
    called: list[str] = []
    crowd = [Descriptor(reactor, lambda: called.append("read")) for _ in range(3)]

    def stand_still(events: Events) -> Events:
        now[0] += 130.0
        return events

    try:
        for one in crowd:
            one.startReading()
            one.other.send(b"a heartbeat")
        reactor._poller = Poller(reactor._poller, stand_still)
        reactor.callLater(0, called.append, "timer")
        reactor.doIteration(0.5)
        reactor.runUntilCurrent()
        assert called == ["read"] * 3 + ["timer"]
    finally:
        close(reactor)
        for one in crowd:
            one.close()
