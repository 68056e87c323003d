"""Requests to the other brokers of a static topic, by their names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from rocketmq_tw.client.name_servers import NameServers
from rocketmq_tw.client.routes import address_of
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.net.address import split_addresses
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header

#: Milliseconds for which a route serves again.
ROUTE_MS = 10_000
#: Topics whose routes are remembered.
MAX_ROUTES = 1_000


class OtherBrokers:
    """Asks the master of another broker name, which name servers tell by the topic's route."""

    def __init__(
        self, config: BrokerConfig, client: IRemotingClient, elapsed_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._client = client
        self._elapsed_ms = elapsed_ms
        addresses = split_addresses(config.namesrv_addr)
        self._names = NameServers(client, addresses) if addresses else None
        self._routes: OrderedDict[str, tuple[int, TopicRouteData]] = OrderedDict()

    async def ask(
        self, broker_name: str | None, topic: str, code: int, header: Header
    ) -> RemotingCommand:
        """The answer to a request about a physical queue there; raises `RequestError` where the
        broker cannot be reached."""
        address = await self._address(broker_name or "", topic)
        request = RemotingCommand.request(code, header)
        try:
            return await self._client.request(address, request, self._config.forward_timeout / 1000)
        except RemotingError as error:
            self._routes.pop(topic, None)
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the broker {broker_name} of {topic}: {error}"
            ) from error

    async def route(self, topic: str, *, fresh: bool = False) -> TopicRouteData:
        """The topic's route; raises `RequestError` where no name server gives one."""
        known = self._routes.get(topic)
        if not fresh and known is not None and self._elapsed_ms() - known[0] < ROUTE_MS:
            return known[1]
        if self._names is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"queues of {topic} are on other brokers: set namesrvAddr to find them",
            )
        try:
            route = await self._names.route(topic)
        except RemotingError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if route is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no name server has a route of {topic}")
        self._routes[topic] = self._elapsed_ms(), route
        if len(self._routes) > MAX_ROUTES:
            self._routes.popitem(last=False)
        return route

    async def _address(self, broker_name: str, topic: str) -> str:
        for fresh in (False, True):
            route = await self.route(topic, fresh=fresh)
            address = address_of(route.broker_datas, broker_name)
            if address is not None:
                return address
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"no name server knows the broker {broker_name} of {topic}"
        )
