"""Routes of topics (105) and the brokers of all clusters (106).

docs/formats/bodies.md has their bodies, docs/formats/remoting.md the typed headers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

from twisted.internet.defer import Deferred

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.namesrv.route_views import keep_zone, show_substitutes, wanted_zone
from rocketmq_tw.namesrv.stock_order import order_cluster_info, order_route
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.route import ClusterInfo, TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import (
    GetRouteInfoRequestHeader,
)

T = TypeVar("T")


class _WantedRoute(NamedTuple):
    """What a request for a route asks for."""

    topic: str
    zone: str | None
    standard_json: bool


class RouteRequests:
    """Answers with what clients need to find brokers."""

    def __init__(
        self,
        config: NamesrvConfig,
        table: RouteTable,
        kv: KvConfig,
        now_ms: Callable[[], int],
        growing: GrowingAnswers,
    ) -> None:
        self._growing = growing
        self._config = config
        self._table = table
        self._kv = kv
        self._now_ms = now_ms
        self._started_ms = now_ms()

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
        }

    def route(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 105: the brokers and queues of a topic; TOPIC_NOT_EXIST where no registered
        broker has it. Raises SYSTEM_ERROR within `waitSecondsForService` of the start, SYSTEM_BUSY
        for a zone's part of a route of many brokers where too many answers wait to be made."""
        header = request.header(GetRouteInfoRequestHeader)
        self._check_ready()
        wanted = _WantedRoute(
            header.topic,
            wanted_zone(request.ext_fields),
            header.reads_standard_json(request.version),
        )

        def answer(data: bytes) -> RemotingCommand:
            if data:
                return request.response(body=data)
            return request.response(
                ResponseCode.TOPIC_NOT_EXIST,
                f"no registered broker has the topic {header.topic}: create it, or send to it"
                " where brokers create topics by themselves (autoCreateTopicEnable)",
            )

        data = self._growing.body(
            wanted,
            lambda: TopicRouteData(order_topic_conf=self._order_of(header.topic)),
            partial(self._table.collect_route, header.topic),
            partial(self._encode_route, wanted),
            few_keys=wanted.zone is None,
        )
        return answer(data) if isinstance(data, bytes) else data.addCallback(answer)

    def cluster_info(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 106: the brokers of all clusters."""

        def answer(data: bytes) -> RemotingCommand:
            return request.response(body=data)

        data = self._growing.body(
            RequestCode.GET_BROKER_CLUSTER_INFO,
            ClusterInfo,
            self._table.collect_cluster_info,
            _encode_cluster_info,
            few_keys=True,
        )
        return answer(data) if isinstance(data, bytes) else data.addCallback(answer)

    def _order_of(self, topic: str) -> str | None:
        if not self._config.order_message_enable:
            return None
        return self._kv.get(ORDER_TOPIC_NAMESPACE, topic)

    def _encode_route(self, wanted: _WantedRoute, route: TopicRouteData) -> bytes:
        """Returns the body of a route, empty where nobody has the topic. May be called in any
        thread."""
        topic, zone, standard_json = wanted
        if not route.broker_datas:
            return b""
        order_route(route)
        if self._config.support_acting_master:
            show_substitutes(topic, route)
        if zone is not None:
            keep_zone(route, zone)
        return encode_body(route, standard_json=standard_json)

    def not_ready(self) -> str:
        """Returns why routes are not told yet; an empty text once they are."""
        if not self._config.need_wait_for_service:
            return ""
        waited = self._now_ms() - self._started_ms
        if waited >= self._config.wait_seconds_for_service * 1000:
            return ""
        return "the name server still waits for its brokers (waitSecondsForService)"

    def _check_ready(self) -> None:
        if reason := self.not_ready():
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{reason}: ask again later")


def _encode_cluster_info(info: ClusterInfo) -> bytes:
    order_cluster_info(info)
    return encode_body(info)
