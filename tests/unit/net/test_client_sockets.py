"""What a client does with real sockets: names, and hosts that are gone."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.interfaces import IHostnameResolver, IResolutionReceiver
from twisted.internet.main import CONNECTION_DONE
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.net.client import UNACKNOWLEDGED_SECONDS, RemotingClient
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.wait import LIMIT


@implementer(IHostnameResolver)
class Names:
    """A name service with one name."""

    def __init__(self) -> None:
        self.address = ""

    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Any = None,
        transportSemantics: str = "TCP",
    ) -> Any:
        assert hostName == "controllers.example"
        resolutionReceiver.resolutionBegan(self)  # type: ignore[arg-type]
        resolutionReceiver.addressResolved(IPv4Address("TCP", self.address, portNumber))
        resolutionReceiver.resolutionComplete()
        return self


@pytest.fixture
def reactor() -> Iterator[EPollReactor]:
    made = EPollReactor()
    yield made
    made.removeAll()
    made.waker.connectionLost(Failure(CONNECTION_DONE))
    made._poller.close()


@pytest.fixture
def hosts() -> Iterator[dict[str, socket.socket]]:
    """Two hosts that listen at one port."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        port = first.getsockname()[1]
        second.bind(("127.0.0.2", port))
        for one in (first, second):
            one.listen()
            one.setblocking(False)
        yield {"127.0.0.1": first, "127.0.0.2": second}


def turn(reactor: EPollReactor, until: Callable[[], Any]) -> None:
    give_up = time.monotonic() + LIMIT
    while not until():
        assert time.monotonic() < give_up, "not in time"
        reactor.runUntilCurrent()
        reactor.doIteration(0.01)


def accepted(listening: socket.socket) -> socket.socket | None:
    try:
        return listening.accept()[0]
    except BlockingIOError:
        return None


def test_a_name_is_looked_up_at_each_connection(
    reactor: EPollReactor, hosts: dict[str, socket.socket]
) -> None:
    names, client = Names(), RemotingClient(reactor)
    reactor.installNameResolver(names)
    port = hosts["127.0.0.1"].getsockname()[1]
    for names.address in ("127.0.0.1", "127.0.0.2"):
        lost: list[object] = []
        client.request(f"controllers.example:{port}", RemotingCommand.request(1), 60).addBoth(
            lost.append
        )
        came: list[socket.socket] = []

        def comes(at: str = names.address, came: list[socket.socket] = came) -> bool:
            came.extend(filter(None, [accepted(hosts[at])]))
            return bool(came)

        turn(reactor, comes)
        # The host says that it goes.
        came[0].close()
        turn(reactor, lambda lost=lost: lost)


@pytest.mark.parametrize("tls", [None, TlsConfig()], ids=["plain", "tls"])
def test_a_host_that_acknowledges_nothing_is_given_up(
    tls: TlsConfig | None, reactor: EPollReactor, hosts: dict[str, socket.socket]
) -> None:
    names, client, sent = Names(), RemotingClient(reactor, tls=tls), list[object]()
    names.address = "127.0.0.1"
    reactor.installNameResolver(names)
    port = hosts["127.0.0.1"].getsockname()[1]
    client.send_oneway(f"controllers.example:{port}", RemotingCommand.request(1)).addBoth(
        sent.append
    )
    turn(reactor, lambda: sent)
    assert sent == [None]
    (mine,) = [one for one in reactor.getReaders() if hasattr(one, "getHandle")]
    option = mine.getHandle().getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert option == UNACKNOWLEDGED_SECONDS * 1000
    mine.abortConnection()
    turn(reactor, lambda: mine.disconnected)
