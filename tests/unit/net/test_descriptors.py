"""Connections leave the store its descriptors, and a port without any waits."""

from __future__ import annotations

import errno
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.main import CONNECTION_DONE
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net import descriptors as ports
from rocketmq_tw.net.descriptors import FittingReads
from rocketmq_tw.net.reactor import ServerReactor
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.store.commit_log import CommitLog
from tests.support.broker import BrokerInMemory
from tests.support.memory_server import MemoryServer, RawClient

#: Seconds until a port asks again, and turns of the reactor that take less.
PAUSE, TURNS = 0.05, 20
RAISE = """
import resource
from rocketmq_tw.net.descriptors import raise_descriptor_limit
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
raise_descriptor_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
"""


def test_the_soft_limit_becomes_the_hard_one() -> None:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", RAISE], check=True, env=environ)


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def limit(files: int) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))

    return limit


@pytest.mark.parametrize(
    ("files", "open_files"), [(16, 8), (128, 32), (1024, 256), (resource.RLIM_INFINITY, 256)]
)
def test_a_store_keeps_fewer_files_open_where_few_may_be(
    limited: Callable[[int], None], files: int, open_files: int
) -> None:
    limited(files)
    broker = BrokerInMemory(mapped_file_size_commit_log=4096)
    broker.put("Topic", *[bytes(1000)] * 80)
    for queue_id in range(1, 300):
        broker.put("Topic", b"x", queue_id=queue_id)
    for offset in range(80):
        broker.pull(offset)
    store = broker.store
    assert len(store._queues._pool._open) <= open_files
    log = store._log
    assert isinstance(log, CommitLog)
    assert len(log._pool._open) <= max(2, open_files // 4)


@pytest.mark.parametrize(
    ("files", "connections"), [(6, 3), (1024, 512), (4096, 3584), (resource.RLIM_INFINITY, 16384)]
)
def test_connections_leave_room_for_files(
    limited: Callable[[int], None], files: int, connections: int
) -> None:
    limited(files)
    server = MemoryServer()
    table = server.server._resources.connections
    assert table.limit == connections
    if connections == 3:
        made = [server.connect() for _ in range(5)]
        assert [isinstance(one, RawClient) for one in made] == [True] * 3 + [False] * 2


def test_what_is_in_force_is_logged_once(limited: Callable[[int], None]) -> None:
    limited(1024)
    server = RemotingServer(MemoryReactorClock(), NettyServerConfig(max_connections=800))
    with capturedLogs() as logs:
        for listener in (server.listener(), server.listener()):
            listener.listen(0)
    (line,) = map(formatEvent, logs)
    assert line == (
        "at most 512 connections are taken (maxConnections 800, and the limit of open files"
        " leaves room for 512)"
    )


class Listening:
    """A port of our reactor, and clients that connect to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reactor = ServerReactor()
        self.accepted: list[Protocol] = []
        #: What the next calls of `accept` fail with; None: they do not.
        self.error: int | None = None
        self.calls = 0
        accept = socket.socket.accept

        def failing(listening: socket.socket) -> Any:
            self.calls += 1
            if self.error is not None:
                raise OSError(self.error, os.strerror(self.error))
            return accept(listening)

        monkeypatch.setattr(socket.socket, "accept", failing)
        monkeypatch.setattr(ports, "ACCEPT_PAUSE", PAUSE)

        def build() -> Protocol:
            self.accepted.append(Protocol())
            return self.accepted[-1]

        self.port = self.reactor.listenTCP(0, Factory.forProtocol(build), interface="127.0.0.1")
        self.clients: list[socket.socket] = []

    def connect(self) -> None:
        address = ("127.0.0.1", self.port.getHost().port)
        self.clients.append(socket.create_connection(address))

    def run_until(self, condition: Callable[[], object]) -> None:
        for _ in range(2000):
            if condition():
                return
            self.reactor.iterate(0.01)
        raise AssertionError("it did not come true")

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.port.connectionLost(Failure(CONNECTION_DONE))
        for one in self.reactor.removeAll():
            if hasattr(one, "socket"):
                one.socket.close()
        self.reactor.waker.connectionLost(Failure(CONNECTION_DONE))
        self.reactor._poller.close()


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    made = Listening(monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_a_port_without_descriptors_waits_and_goes_on(listening: Listening, error: int) -> None:
    listening.error = error
    with capturedLogs() as logs:
        listening.connect()
        listening.run_until(lambda: listening.calls == 3)
        began = time.monotonic()
        for _ in range(TURNS):
            listening.reactor.iterate(0)
        pauses = 1 + (time.monotonic() - began) / PAUSE
        assert listening.calls <= 3 + pauses, "it does not ask in each turn"
        listening.error = None
        listening.connect()
        listening.run_until(lambda: len(listening.accepted) == 2)
    lines = [str(formatEvent(event)) for event in logs if event["log_namespace"].endswith("Port")]
    assert len(lines) == 2
    assert os.strerror(error) in lines[0] and "again" in lines[1]
    listening.connect()
    listening.run_until(lambda: len(listening.accepted) == 3)


def test_it_can_be_closed_while_it_waits(listening: Listening) -> None:
    listening.error = errno.EMFILE
    listening.connect()
    with capturedLogs():
        listening.run_until(lambda: listening.calls == 1)
    closed: list[object] = []
    listening.port.stopListening().addCallback(closed.append)
    listening.run_until(lambda: closed)
    assert listening.reactor.getDelayedCalls() == []
    listening.port.connectionLost = lambda reason: None


def test_an_error_of_one_connection_holds_up_no_other(listening: Listening) -> None:
    listening.error = errno.ECONNABORTED
    listening.connect()
    listening.run_until(lambda: listening.calls == 1)
    listening.error = None
    listening.run_until(lambda: len(listening.accepted) == 1)


class _Sizes(Protocol):
    """Notes how much each read brought."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def dataReceived(self, data: bytes) -> None:
        self.sizes.append(len(data))


def test_reads_get_larger_where_much_comes_and_small_again() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.setblocking(False)
        protocol = _Sizes()
        server: Any = SimpleNamespace(_realPortNumber=1)
        connection = FittingReads(near, protocol, ("a", 1), server, 1, MemoryReactorClock())
        for size in (300, 4096, 8192, 16384, 32768, 65536, 65536):
            far.sendall(bytes(size))
            connection.doRead()
        assert protocol.sizes == [300, 4096, 8192, 16384, 32768, 65536, 65536]
        far.sendall(bytes(70_000))
        connection.doRead()
        connection.doRead()
        assert protocol.sizes[-2:] == [65536, 70_000 - 65536]
        assert connection.bufferSize == 32768
        for _ in range(8):
            far.sendall(b"small")
            connection.doRead()
        assert connection.bufferSize == 4096
