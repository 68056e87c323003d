"""Routes and lists of topics: 105, 106, 206, 224, 304, 311, 312, 313."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

from twisted.internet.defer import Deferred, DeferredLock

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv.acting_master import show_substitutes
from rocketmq_tw.namesrv.background import Background
from rocketmq_tw.namesrv.kv_config import ORDER_TOPIC_NAMESPACE, KvConfig
from rocketmq_tw.namesrv.requests.shared import SharedAnswers
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.namesrv.stock_order import in_broker_order, order_cluster_info, order_route
from rocketmq_tw.namesrv.topic_lists import (
    has_unit_subscription,
    is_unit,
    list_all,
    list_matching,
    list_of_cluster,
)
from rocketmq_tw.namesrv.zones import keep_zone, wanted_zone
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.cluster import ClusterInfo
from rocketmq_tw.wire.bodies.route import QueueData, TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicList
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import (
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
)

#: From stock 4.9.4 on clients read standard JSON.
FIRST_STANDARD_JSON_VERSION = 401

T = TypeVar("T")


class _WantedRoute(NamedTuple):
    """What a request for a route asks for."""

    topic: str
    zone: str | None
    standard_json: bool


class RouteRequests:
    def __init__(
        self,
        config: NamesrvConfig,
        table: RouteTable,
        kv: KvConfig,
        now_ms: Callable[[], int],
        background: Background,
    ) -> None:
        self._background = background
        self._listing = DeferredLock()
        self._shared = SharedAnswers(background)
        self._config = config
        self._table = table
        self._kv = kv
        self._now_ms = now_ms
        self._started_ms = now_ms()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: partial(self.topics, is_unit),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: partial(self.topics, has_unit_subscription),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: partial(
                self.topics, lambda queues: has_unit_subscription(queues) and not is_unit(queues)
            ),
        }

    def route(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        header = request.header(GetRouteInfoRequestHeader)
        self._check_ready()
        wanted = _WantedRoute(
            header.topic,
            wanted_zone(request.ext_fields),
            request.version >= FIRST_STANDARD_JSON_VERSION
            or header.accept_standard_json_only is True,
        )

        def answer(data: bytes) -> RemotingCommand:
            if data:
                return request.response(body=data)
            return request.response(
                ResponseCode.TOPIC_NOT_EXIST,
                f"no registered broker has the topic {header.topic}: create it, or send to it"
                " where brokers create topics by themselves (autoCreateTopicEnable)",
            )

        return self._answer(
            answer,
            wanted,
            lambda: TopicRouteData(order_topic_conf=self._order_of(header.topic)),
            partial(self._table.collect_route, header.topic),
            partial(self._encode_route, wanted),
        )

    def cluster_info(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        return self._answer(
            lambda data: request.response(body=data),
            RequestCode.GET_BROKER_CLUSTER_INFO,
            ClusterInfo,
            self._table.collect_cluster_info,
            _encode_cluster_info,
        )

    def _answer(
        self,
        answer: Callable[[bytes], RemotingCommand],
        key: Hashable,
        make: Callable[[], T],
        fill: Callable[[T], Iterator[None]],
        encode: Callable[[T], bytes],
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """`answer` with what `encode` makes of the body that `fill` fills; in slices and in a
        thread where it is more than a step. Equal keys stand for equal answers."""
        body = make()
        if next(fill(body), self) is self:
            return answer(encode(body))

        def collect() -> Deferred[bytes]:
            body = make()
            filled = self._background.in_slices(fill(body))
            return filled.addCallback(lambda _: self._background.in_thread(lambda: encode(body)))

        return self._shared.get(key, collect).addCallback(answer)

    def _order_of(self, topic: str) -> str | None:
        if not self._config.order_message_enable:
            return None
        return self._kv.get(ORDER_TOPIC_NAMESPACE, topic)

    def _encode_route(self, wanted: _WantedRoute, route: TopicRouteData) -> bytes:
        """Empty where nobody has the topic. May be called in any thread."""
        topic, zone, standard_json = wanted
        if not route.broker_datas:
            return b""
        order_route(route)
        if self._config.support_acting_master:
            show_substitutes(topic, route)
        if zone is not None:
            keep_zone(route, zone)
        return encode_body(route, standard_json=standard_json)

    def all_topics(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        if not self._config.enable_all_topic_list:
            raise _switched_off("enableAllTopicList")
        return self._list(request, lambda found: list_all(self._table, found))

    def topics_of_cluster(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        self._check_lists()
        cluster = request.header(GetTopicsByClusterRequestHeader).cluster
        return self._list(request, lambda found: list_of_cluster(self._table, cluster, found))

    def system_topics(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        names, brokers = self._table.names(), self._table.broker_names()

        def answer(ordered: tuple[list[str], list[str]]) -> RemotingCommand:
            topics, in_order = ordered
            addresses = filter(None, map(self._table.address_of, in_order))
            body = TopicList(topic_list=topics, broker_addr=next(addresses, None))
            return request.response(body=encode_body(body))

        made = self._background.run(len(names), lambda: (sorted(names), in_broker_order(brokers)))
        return made.addCallback(answer)

    def topics(
        self, matches: Callable[[QueueData], bool], request: RemotingCommand, peer: IPeer
    ) -> Deferred[RemotingCommand]:
        self._check_lists()
        return self._list(request, lambda found: list_matching(self._table, matches, found))

    def _list(
        self, request: RemotingCommand, steps: Callable[[list[str]], Iterator[None]]
    ) -> Deferred[RemotingCommand]:
        """One list at a time: put together a little in each turn, encoded in a thread."""
        found: list[str] = []

        def look() -> Deferred[RemotingCommand]:
            looked = self._background.in_slices(steps(found))
            looked.addCallback(lambda _: self._background.run(len(found), encode))
            return looked.addCallback(lambda body: request.response(body=body))

        def encode() -> bytes:
            return encode_body(TopicList(topic_list=found))

        return self._listing.run(look)

    def _check_lists(self) -> None:
        if not self._config.enable_topic_list:
            raise _switched_off("enableTopicList")

    def _check_ready(self) -> None:
        if not self._config.need_wait_for_service:
            return
        waited = self._now_ms() - self._started_ms
        if waited < self._config.wait_seconds_for_service * 1000:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "the name server still waits for its brokers (waitSecondsForService)",
            )


def _switched_off(key: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, f"{key} is false at this name server")


def _encode_cluster_info(info: ClusterInfo) -> bytes:
    order_cluster_info(info)
    return encode_body(info)
