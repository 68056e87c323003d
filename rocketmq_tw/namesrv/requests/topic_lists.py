"""Lists of topics: 206, 224, 304, 311, 312, 313. See docs/formats/bodies.md for their body."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred, maybeDeferred

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.namesrv.stock_order import in_broker_order
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.route import QueueData
from rocketmq_tw.wire.bodies.topics import TopicList
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import GetTopicsByClusterRequestHeader

T = TypeVar("T")

UNIT_FLAG = 1
UNIT_SUBSCRIPTION_FLAG = 2
#: Topics that one step looks at.
_STEP = 500
#: Topics of a list that is sorted or encoded on the reactor's thread; a longer one in a pool's.
_FEW = 1_000


class TopicListRequests:
    """Answers with lists of topics, one list at a time: `RouteTable.queues` sorts its names for
    one of them. A list is put together in slices."""

    def __init__(
        self, config: NamesrvConfig, table: RouteTable, in_slices: Slices, in_thread: InThread
    ) -> None:
        self._config = config
        self._table = table
        self._in_slices = in_slices
        self._in_thread = in_thread
        self._listing = Serial()

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: partial(self.topics, is_unit),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: partial(self.topics, has_unit_subscription),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: partial(
                self.topics, lambda queues: has_unit_subscription(queues) and not is_unit(queues)
            ),
        }

    def all_topics(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 206: every topic. Raises SYSTEM_ERROR where `enableAllTopicList` is off."""
        if not self._config.enable_all_topic_list:
            raise _switched_off("enableAllTopicList")
        return self._list(request, lambda found: list_all(self._table, found))

    def topics_of_cluster(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 224: the topics of a cluster's brokers. Raises SYSTEM_ERROR where
        `enableTopicList` is off."""
        self._check_lists()
        cluster = request.header(GetTopicsByClusterRequestHeader).cluster
        return self._list(request, lambda found: list_of_cluster(self._table, cluster, found))

    def system_topics(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 304: the names of clusters and brokers, which are topics, and a broker's
        address."""
        names, brokers = self._table.names(), self._table.broker_names()

        def answer(ordered: tuple[list[str], list[str]]) -> RemotingCommand:
            topics, in_order = ordered
            addresses = filter(None, map(self._table.address_of, in_order))
            body = TopicList(topic_list=topics, broker_addr=next(addresses, None))
            return request.response(body=encode_body(body))

        made = self._make_apart_if_many(
            len(names), lambda: (sorted(names), in_broker_order(brokers))
        )
        return made.addCallback(answer)

    def topics(
        self, matches: Callable[[QueueData], bool], request: RemotingCommand, peer: IPeer
    ) -> Deferred[RemotingCommand]:
        """Answers 311, 312, 313: the topics that units have or subscribe to. Raises SYSTEM_ERROR
        where `enableTopicList` is off."""
        self._check_lists()
        return self._list(request, lambda found: list_matching(self._table, matches, found))

    def _list(
        self, request: RemotingCommand, steps: Callable[[list[str]], Iterator[None]]
    ) -> Deferred[RemotingCommand]:
        found: list[str] = []

        def collect() -> Deferred[RemotingCommand]:
            collected = self._in_slices(steps(found))
            collected.addCallback(lambda _: self._make_apart_if_many(len(found), encode))
            return collected.addCallback(lambda body: request.response(body=body))

        def encode() -> bytes:
            return encode_body(TopicList(topic_list=found))

        return self._listing.run(collect)

    def _make_apart_if_many(self, entries: int, make: Callable[[], T]) -> Deferred[T]:
        """Fires with what `make` returns, which has something to do for each of so many entries."""
        return maybeDeferred(make) if entries <= _FEW else self._in_thread(make)

    def _check_lists(self) -> None:
        if not self._config.enable_topic_list:
            raise _switched_off("enableTopicList")


def _switched_off(key: str) -> RequestError:
    return RequestError(
        ResponseCode.SYSTEM_ERROR, f"{key} is false at this name server: set it to true"
    )


def list_all(table: RouteTable, found: list[str]) -> Iterator[None]:
    """Adds all topics to `found`, sorted; one call's steps after the other's."""
    return table.queues.names(found)


def list_matching(
    table: RouteTable, matches: Callable[[QueueData], bool], found: list[str]
) -> Iterator[None]:
    """Adds those whose queues on (any) one of their brokers `matches`."""

    def wanted(topic: str) -> bool:
        queues = next(iter(table.queues.of_topic(topic).values()), None)
        return queues is not None and matches(queues)

    return _list_wanted(table, wanted, found)


def list_of_cluster(table: RouteTable, cluster: str, found: list[str]) -> Iterator[None]:
    """Adds those that brokers of a cluster have."""
    names = table.names_in(cluster)
    return _list_wanted(
        table, lambda topic: not names.isdisjoint(table.queues.of_topic(topic)), found
    )


def is_unit(queues: QueueData) -> bool:
    """Returns whether the topic belongs to a unit."""
    return bool(queues.topic_sys_flag & UNIT_FLAG)


def has_unit_subscription(queues: QueueData) -> bool:
    """Returns whether a group of a unit subscribes to the topic."""
    return bool(queues.topic_sys_flag & UNIT_SUBSCRIPTION_FLAG)


def _list_wanted(
    table: RouteTable, wanted: Callable[[str], bool], found: list[str]
) -> Iterator[None]:
    names: list[str] = []
    yield from table.queues.names(names)
    for start in range(0, len(names), _STEP):
        if start:
            yield
        found += filter(wanted, names[start : start + _STEP])
