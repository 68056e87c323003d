"""The remoting port of a proxy by itself, as a process of a test.

`python -m tests.support.classic_proxy NAMESRV PORT`. Behind it are connections that are as simple
as can be: each client has its own to each broker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from rocketmq_tw.client.name_servers import NameServers
from rocketmq_tw.client.routes import address_of
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import ConnectError
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.proxy.brokers import IBrokers, IProxyClient
from rocketmq_tw.proxy.remoting.requests import ClassicRequests
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.processes import NameServerProcess, ServerProcess
from tests.support.remoting import Connection
from tests.support.servers import twistd_environment

#: Seconds between two looks at which brokers there are.
_LOOK = 0.5
_ASKED_OF_CLIENTS = (39, 40, 220, 221, 307, 309, 326)
_CLIENT_TIMEOUT = 10.0


@implementer(IBrokers)
class DirectBrokers:
    """Asks the brokers that a name server knows."""

    def __init__(self, reactor: Any, name_server: str) -> None:
        self._reactor = reactor
        self._shared = RemotingClient(reactor)
        self._names = NameServers(self._shared, name_server)
        self._brokers: dict[str, BrokerData] = {}
        self._clients: dict[IProxyClient | None, RemotingClient] = {None: self._shared}
        self.looking = PeriodicCall(reactor, "looking at the brokers", _LOOK, self._look)

    def route(self, topic: str) -> Deferred[TopicRouteData | None]:
        return self._names.route(topic)

    def refresh_route(self, topic: str) -> Deferred[TopicRouteData | None]:
        return self.route(topic)

    def ask(
        self,
        broker_name: str,
        request: RemotingCommand,
        timeout: float,
        client: IProxyClient | None = None,
    ) -> Deferred[RemotingCommand]:
        address = address_of(self._brokers.values(), broker_name)
        if address is None:
            return fail(ConnectError(broker_name, "no such broker is registered"))
        return self._client_of(client).request(address, request, timeout)

    def tell(
        self, broker_name: str, request: RemotingCommand, client: IProxyClient | None = None
    ) -> Deferred[None]:
        address = address_of(self._brokers.values(), broker_name) or f"{LOOPBACK}:1"
        told = self._client_of(client).send_oneway(address, request)
        return told.addErrback(lambda _: None)

    def forget(self, client: IProxyClient) -> None:
        known = self._clients.pop(client, None)
        if known is not None:
            known.close()

    def names(self) -> Sequence[str]:
        return sorted(self._brokers)

    def on_change(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def _client_of(self, client: IProxyClient | None) -> RemotingClient:
        known = self._clients.get(client)
        if known is None:
            assert client is not None
            asked = client
            known = self._clients[client] = RemotingClient(self._reactor)

            def hand_on(request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
                return asked.ask(request, _CLIENT_TIMEOUT)

            for code in _ASKED_OF_CLIENTS:
                known.register(code, hand_on)
        return known

    async def _look(self) -> None:
        _, answer = await self._names.ask(
            lambda: RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        )
        self._brokers = decode_body(ClusterInfo, answer.body).broker_addr_table


class ClassicProxy(ServerProcess):
    """Such a proxy before the cluster of a name server."""

    def __init__(self, home: Path, name_server: NameServerProcess) -> None:
        super().__init__("classic-proxy", home)
        self._name_server = name_server
        self._port = ReservedPort()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._port.number}"

    def command(self) -> list[str]:
        port = str(self._port.number)
        return [sys.executable, "-m", __name__, self._name_server.address, port]

    def environment(self) -> dict[str, str]:
        return twistd_environment()

    def ready(self) -> bool:
        with Connection(self.address, 5):
            return True

    def close(self) -> None:
        super().close()
        self._port.release()


def main(name_server: str, port: str) -> None:
    """Serves until the process ends."""
    from twisted.internet import reactor
    from twisted.python.log import startLogging

    startLogging(sys.stdout)
    brokers = DirectBrokers(reactor, name_server)
    brokers.looking.start(now=True)
    server = RemotingServer(reactor, NettyServerConfig(bind_address=LOOPBACK))
    listener = server.listener()
    listener.serve(ClassicRequests(brokers, reactor).handlers())
    listener.listen(int(port))
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
