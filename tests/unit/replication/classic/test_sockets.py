"""Links on real sockets: what leaves at once, and what the reactor sends."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs
from zope.interface import implementer

from rocketmq_tw.net.interfaces import ANONYMOUS, PeerIdentity
from rocketmq_tw.replication.classic import (
    REPORT,
    TRANSFER_HEADER,
    ClassicHAClient,
    ClassicHAService,
    TransferReader,
)
from rocketmq_tw.replication.interfaces import IReplicatedLog
from rocketmq_tw.replication.links.ends import LinkError
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

SETTINGS = HASettings(file_size=1 << 20, batch_size=1000)


@implementer(IReplicatedLog)
class Log:
    start_offset = 0

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    @property
    def end_offset(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def settled(self) -> Deferred[int]:
        return succeed(len(self.data))

    def append(self, offset: int, data: bytes) -> Deferred[int]:
        assert offset == len(self.data)
        self.data += data
        return self.settled()


class NeverConnects:
    """An endpoint: links are made by the test."""

    def connect(self, factory: object) -> Deferred[Any]:
        return Deferred()


class LocalConnection(Connection):
    """One end of a socket pair, which has neither addresses nor TCP's options."""

    def setTcpNoDelay(self, enabled: bool) -> None:
        assert enabled

    def getPeer(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 50000)


class Link:
    """One end with its protocol and a reactor that does nothing; `other` is the bare other end."""

    def __init__(self, factory: ClassicHAService | ClassicHAClient) -> None:
        self.ours, self.other = socket.socketpair()
        self.other.setblocking(False)
        self.reactor = MemoryReactorClock()
        protocol = factory.buildProtocol(None)
        assert protocol is not None
        self.transport = LocalConnection(self.ours, protocol, self.reactor)
        self.transport.connected = 1
        protocol.makeConnection(self.transport)
        self.protocol = protocol

    @property
    def waits_to_write(self) -> bool:
        return self.transport in self.reactor.writers

    def read(self) -> bytes:
        try:
            return self.other.recv(1 << 20)
        except BlockingIOError:
            return b""


@contextmanager
def linked(factory: ClassicHAService | ClassicHAClient) -> Iterator[Link]:
    link = Link(factory)
    try:
        yield link
    finally:
        link.ours.close()
        link.other.close()


def test_new_bytes_have_left_when_the_log_was_written() -> None:
    log = Log(bytes(100))
    service = ClassicHAService(log, SETTINGS, Clock())
    with linked(service) as link:
        link.protocol.dataReceived(REPORT.pack(100))
        assert link.read() == b""
        log.data += b"new"
        service.log_grew()
        assert link.read() == TRANSFER_HEADER.pack(100, 3) + b"new"
        assert not link.waits_to_write


def test_who_waits_for_what_a_slave_has_is_answered_at_once() -> None:
    service = ClassicHAService(Log(bytes(100)), SETTINGS, Clock())
    with linked(service) as link:
        link.protocol.dataReceived(REPORT.pack(100))
        codes: list[int] = []
        service.wait(100).addCallback(codes.append)
        assert codes == [ResponseCode.SUCCESS]
        service.wait(101).addCallback(codes.append)
        assert len(codes) == 1


def test_a_slave_that_is_behind_gets_no_more_than_its_transport_takes() -> None:
    log = Log(bytes(range(250)) * 4000)
    service = ClassicHAService(log, SETTINGS, Clock())
    with linked(service) as link:
        link.protocol.dataReceived(REPORT.pack(1))
        reader = TransferReader()
        received = reader.feed(link.read())
        assert [len(transfer.data) for transfer in received] == [1000]
        assert link.waits_to_write
        buffered = service.slaves[0].link.next_offset - 1001
        assert 0 < buffered < 2 * link.transport.bufferSize, "it was told to pause"
        while link.waits_to_write:
            link.transport.doWrite()
            received += reader.feed(link.read())
    assert b"".join(transfer.data for transfer in received) == log.data[1:]


def test_a_report_has_left_when_the_bytes_are_appended() -> None:
    log = Log(bytes(100))
    with linked(ClassicHAClient(log, SETTINGS, Clock())) as link:
        link.transport.doWrite()
        assert link.read() == REPORT.pack(100)
        link.protocol.dataReceived(TRANSFER_HEADER.pack(100, 3) + b"new")
        assert log.data[100:] == b"new"
        assert link.read() == REPORT.pack(103)
        assert not link.waits_to_write


class Accounts:
    """A check of connections whose answers the test gives."""

    def __init__(self) -> None:
        self.answer: Deferred[None] = Deferred()
        self.peers: list[Any] = []

    def __call__(self, peer: Any) -> Deferred[None]:
        self.peers.append(peer)
        return self.answer


@contextmanager
def checked(check: Callable[[Any], Any]) -> Iterator[tuple[ClassicHAService, Log, Link]]:
    log = Log(bytes(100))
    service = ClassicHAService(log, SETTINGS, Clock())
    service.check = check
    with linked(service) as link:
        yield service, log, link


def test_a_link_is_served_once_its_check_has_passed() -> None:
    accounts = Accounts()
    with checked(accounts) as (service, log, link):
        (peer,) = accounts.peers
        assert peer.identity == ANONYMOUS and peer.address == "127.0.0.1:50000"
        assert link.transport not in link.reactor.readers, "nothing is read"
        log.data += b"new"
        service.log_grew()
        assert link.read() == b""
        peer.identity = PeerIdentity("slave-b")
        accounts.answer.callback(None)
        assert link.transport in link.reactor.readers
        link.protocol.dataReceived(REPORT.pack(100))
        assert link.read() == TRANSFER_HEADER.pack(100, 3) + b"new"


def test_a_link_is_refused_at_once_or_later() -> None:
    def refuse(peer: Any) -> None:
        raise RequestError(ResponseCode.NO_PERMISSION, "nobody")

    with capturedLogs() as logs, checked(refuse) as (service, _, link):
        link.reactor.advance(0)
        assert not service.slaves
    assert any("nobody" in log.get("reason", "") for log in logs)
    accounts = Accounts()
    with capturedLogs() as logs, checked(accounts) as (service, _, link):
        accounts.answer.errback(RequestError(ResponseCode.NO_PERMISSION, "nobody"))
        link.reactor.advance(0)
        assert not service.slaves
    assert any("nobody" in log.get("reason", "") for log in logs)


def test_a_link_that_is_lost_gives_its_check_up() -> None:
    accounts = Accounts()
    with capturedLogs() as logs, checked(accounts) as (service, _, link):
        link.protocol.connectionLost()
        assert accounts.answer.called and not service.slaves
    assert not any("reason" in log or "log_failure" in log for log in logs)


def test_what_takes_longer_than_a_master_waits_opens_a_later_link() -> None:
    """A master closes a link that says nothing for ten seconds: with a comparison of its own each
    link would be closed in the midst of it."""
    compared: list[Deferred[None]] = []

    def agree() -> Deferred[None]:
        compared.append(Deferred())
        return compared[-1]

    client = ClassicHAClient(Log(bytes(100)), SETTINGS, Clock(), agree)
    client.follow("127.0.0.1:10912", NeverConnects())
    with linked(client) as first:
        first.protocol.connectionLost()
    with linked(client) as second:
        assert len(compared) == 1
        compared[0].callback(None)
        second.transport.doWrite()
        assert second.read() == REPORT.pack(100)
        second.protocol.connectionLost()
    with linked(client):
        assert len(compared) == 2, "each link is compared that opens after the last comparison"


def test_a_comparison_with_a_former_master_opens_no_link() -> None:
    compared: list[Deferred[None]] = []

    def agree() -> Deferred[None]:
        compared.append(Deferred())
        return compared[-1]

    client = ClassicHAClient(Log(bytes(100)), SETTINGS, Clock(), agree)
    client.follow("127.0.0.1:10912", NeverConnects())
    with linked(client) as former:
        client.follow("127.0.0.1:20912", NeverConnects())
        former.protocol.connectionLost()
    with linked(client) as link:
        former_answer, answer = compared
        former_answer.errback(LinkError("another log"))
        assert link.transport.connected and not link.waits_to_write
        answer.callback(None)
        link.transport.doWrite()
        assert link.read() == REPORT.pack(100)
