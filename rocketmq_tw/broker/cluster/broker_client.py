"""Requests to the other brokers of the cluster, by their names.

Name servers tell where a broker is, by the route of a topic that it has. Logic queues of static
topics are read and committed at other brokers this way; the queues of all brokers are what
consumers of a group are divided among.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.name_servers import NameServers, Routes
from rocketmq_tw.client.routes import address_of
from rocketmq_tw.net.address import split_addresses
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header

#: Milliseconds for which a route serves again.
ROUTE_MS = 10_000
#: Topics whose routes are remembered; those asked for longest ago are forgotten first.
MAX_ROUTES = 10_000


class BrokerClient(Part):
    """Asks the masters of other broker names, and remembers the routes that lead there."""

    def __init__(self, host: Host) -> None:
        self._config = host.config
        self._client = host.client
        self._routes: Routes | None = None
        addresses = split_addresses(host.config.namesrv_addr)
        if addresses:
            # None that name servers have no more stays in use.
            names = NameServers(host.client, addresses)
            self._routes = Routes(host.reactor, names, keep=0.0, most=MAX_ROUTES)

    @property
    def has_name_servers(self) -> bool:
        """Whether `namesrvAddr` names any; without them no other broker is found."""
        return self._routes is not None

    async def ask(
        self, broker_name: str | None, topic: str, code: int, header: Header, body: bytes = b""
    ) -> RemotingCommand:
        """Returns the answer of the master of `broker_name` to a request about `topic`, within
        `forwardTimeout`; raises `RequestError` (SYSTEM_ERROR) where it cannot be reached."""
        address = await self._address(broker_name or "", topic)
        who = f"the broker {broker_name} of {topic}"
        try:
            return await self.ask_at(address, code, header, body, who=who)
        except RequestError:
            if self._routes is not None:
                # The broker may be elsewhere by now.
                self._routes.outdate(topic)
            raise

    async def ask_at(
        self, address: str, code: int, header: Header, body: bytes = b"", *, who: str
    ) -> RemotingCommand:
        """Returns the answer of the broker at `address`, within `forwardTimeout`; raises
        `RequestError` (SYSTEM_ERROR), which says `who` that is, where it cannot be reached."""
        request = RemotingCommand.request(code, header, body)
        try:
            return await self._client.request(address, request, self._config.forward_timeout / 1000)
        except RemotingError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{who}: {error}") from error

    async def route(self, topic: str, *, max_age_ms: int = ROUTE_MS) -> TopicRouteData:
        """Returns the route of a topic; raises `RequestError` (SYSTEM_ERROR) where it has none, or
        as `find_route` fails."""
        route = await self.find_route(topic, max_age_ms=max_age_ms)
        if route is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no name server has a route of {topic}")
        return route

    def find_route(self, topic: str, *, max_age_ms: int = ROUTE_MS) -> Deferred[Any]:
        """Fires with the route of a topic, at most so many milliseconds old, or None where it has
        none; fails with `RequestError` (SYSTEM_ERROR) where no name server answers."""
        if self._routes is None:
            return fail(
                RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"queues of {topic} are on other brokers: set namesrvAddr to find them",
                )
            )
        return self._routes.get(topic, max_age=max_age_ms / 1000).addErrback(_refuse)

    def last_route(self, topic: str) -> TopicRouteData | None:
        """Returns the route that came last, however old; None where it had none, or is
        forgotten."""
        return None if self._routes is None else self._routes.known().get(topic)

    async def _address(self, broker_name: str, topic: str) -> str:
        for age in (ROUTE_MS, 0):
            route = await self.route(topic, max_age_ms=age)
            address = address_of(route.broker_datas, broker_name)
            if address is not None:
                return address
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"no name server knows the broker {broker_name} of {topic}"
        )


def _refuse(failure: Failure) -> None:
    failure.trap(RemotingError, ClientError)
    raise RequestError(ResponseCode.SYSTEM_ERROR, str(failure.value)) from failure.value
