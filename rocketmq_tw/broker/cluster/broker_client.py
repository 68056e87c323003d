"""Requests to the other brokers of the cluster, by their names.

Name servers tell where a broker is, by the route of a topic that it has. Logic queues of static
topics are read and committed at other brokers this way; the queues of all brokers are what
consumers of a group are divided among.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.name_servers import NameServers
from rocketmq_tw.client.routes import address_of
from rocketmq_tw.net.address import split_addresses
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header

#: Milliseconds for which a route serves again.
ROUTE_MS = 10_000
#: Topics whose routes are remembered; those asked for longest ago are forgotten first.
MAX_ROUTES = 10_000
#: In place of the time of a route that serves no more.
_OUTDATED = -(1 << 62)


class BrokerClient(Part):
    """Asks the masters of other broker names, and remembers the routes that lead there."""

    def __init__(self, host: Host) -> None:
        self._config = host.config
        self._client = host.client
        self._elapsed_ms = host.elapsed_ms
        addresses = split_addresses(host.config.namesrv_addr)
        self._names = NameServers(host.client, addresses) if addresses else None
        #: Topic -> when its route came, in elapsed milliseconds, and the route.
        self._routes: OrderedDict[str, tuple[int, TopicRouteData]] = OrderedDict()
        self._asking: dict[str, Waiters[TopicRouteData | None]] = {}

    @property
    def has_name_servers(self) -> bool:
        """Whether `namesrvAddr` names any; without them no other broker is found."""
        return self._names is not None

    async def ask(
        self, broker_name: str | None, topic: str, code: int, header: Header, body: bytes = b""
    ) -> RemotingCommand:
        """Returns the answer of the master of `broker_name` to a request about `topic`, within
        `forwardTimeout`; raises `RequestError` (SYSTEM_ERROR) where it cannot be reached."""
        address = await self._address(broker_name or "", topic)
        request = RemotingCommand.request(code, header, body)
        try:
            return await self._client.request(address, request, self._config.forward_timeout / 1000)
        except RemotingError as error:
            known = self._routes.get(topic)
            if known is not None:
                # The broker may be elsewhere by now.
                self._routes[topic] = _OUTDATED, known[1]
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the broker {broker_name} of {topic}: {error}"
            ) from error

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
        known = self._routes.get(topic)
        if known is not None and self._elapsed_ms() - known[0] < max_age_ms:
            self._routes.move_to_end(topic)
            return succeed(known[1])
        if self._names is None:
            return fail(
                RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"queues of {topic} are on other brokers: set namesrvAddr to find them",
                )
            )
        asking = self._asking.get(topic)
        if asking is not None:
            return asking.wait()
        asking = self._asking[topic] = Waiters()
        answer = asking.wait()
        self._names.route(topic).addBoth(self._answered, topic)
        return answer

    def last_route(self, topic: str) -> TopicRouteData | None:
        """Returns the route that came last, however old; None where it had none, or is
        forgotten."""
        known = self._routes.get(topic)
        return None if known is None else known[1]

    def _answered(self, result: TopicRouteData | Failure | None, topic: str) -> None:
        if isinstance(result, Failure):
            if isinstance(result.value, (RemotingError, ClientError)):
                result = Failure(RequestError(ResponseCode.SYSTEM_ERROR, str(result.value)))
        elif result is None:
            self._routes.pop(topic, None)
        else:
            self._routes[topic] = self._elapsed_ms(), result
            self._routes.move_to_end(topic)
            if len(self._routes) > MAX_ROUTES:
                self._routes.popitem(last=False)
        self._asking.pop(topic).fire(result)

    async def _address(self, broker_name: str, topic: str) -> str:
        for age in (ROUTE_MS, 0):
            route = await self.route(topic, max_age_ms=age)
            address = address_of(route.broker_datas, broker_name)
            if address is not None:
                return address
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"no name server knows the broker {broker_name} of {topic}"
        )
