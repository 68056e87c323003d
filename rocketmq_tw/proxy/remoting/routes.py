"""Routes for classic clients (105): all brokers are at the proxy's addresses."""

from __future__ import annotations

from collections.abc import Callable

from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.proxy.brokers import Endpoint, IBrokers
from rocketmq_tw.proxy.remoting.broker_ports import BrokerPorts
from rocketmq_tw.proxy.remoting.clients import ClassicClients
from rocketmq_tw.structs import structs
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.route import MASTER_ID, BrokerData, TopicRouteData
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import GetRouteInfoRequestHeader


class ClassicRoutes:
    """Tells routes. `advertised` is where clients reach the proxy; without it that is the address
    that the client has asked at."""

    def __init__(
        self,
        brokers: IBrokers,
        clients: ClassicClients,
        ports: BrokerPorts,
        advertised: Endpoint | None,
    ) -> None:
        self._brokers = brokers
        self._ports = ports
        self._clients = clients
        self._advertised = (
            None if advertised is None else join_address(advertised.host, advertised.port)
        )

    async def route(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 105: the queues of a topic; TOPIC_NOT_EXIST where no broker has it."""
        header = request.header(GetRouteInfoRequestHeader)
        # What nobody had a moment ago may have been made since, as a group's retry topic is when
        # its first consumer comes; tools ask once.
        route = await self._brokers.route(header.topic, absent_seconds=0)
        if route is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"no registered broker has the topic {header.topic}: create it, or send to it"
                " where brokers create topics by themselves (autoCreateTopicEnable)",
            )
        self._clients.of(peer).told_brokers.update(data.broker_name for data in route.broker_datas)
        address = self._advertised or peer.local_address
        shown = show_route(
            route, lambda name: self._ports.address_for(request.version, name, address)
        )
        standard = header.reads_standard_json(request.version)
        return request.response(body=encode_body(shown, standard_json=standard))


def show_route(route: TopicRouteData, address_of: Callable[[str], str]) -> TopicRouteData:
    """Returns a route with each broker at the address of its name: once, as its master where it
    has one, since clients send heartbeats to each address of it."""
    shown = [_show_broker(data, address_of(data.broker_name)) for data in route.broker_datas]
    return structs.replace(route, broker_datas=shown)


def _show_broker(data: BrokerData, address: str) -> BrokerData:
    broker_id = min(data.broker_addrs, default=MASTER_ID)
    return structs.replace(data, broker_addrs={broker_id: address})
