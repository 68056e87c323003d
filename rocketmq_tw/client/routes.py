"""Reads what a topic's route says to a producer and to a consumer, as stock's clients do, and
divides its queues among a group's members."""

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rocketmq_tw.client.errors import NoRouteError
from rocketmq_tw.message.logic_queues import LOGIC_BROKER, leaders
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.structs import structs
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import (
    MASTER_ID,
    BrokerData,
    TopicRouteData,
)
from rocketmq_tw.wire.permissions import READ, WRITE

T = TypeVar("T")


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Returns the queues to send to: writable ones of brokers with a master, by broker name and id;
    of a static topic the logic queues that such brokers lead.

    An order configuration (`broker:count;...`) decides alone where the topic has one.
    """
    if route.order_topic_conf:
        return [
            MessageQueue(topic=topic, broker_name=name, queue_id=queue_id)
            for name, count in _order_conf(route.order_topic_conf)
            for queue_id in range(count)
        ]
    with_master = {
        data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs
    }
    writable = [
        data
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & WRITE and data.broker_name in with_master
    ]
    if is_static(route):
        names = {data.broker_name for data in writable}
        return [
            MessageQueue(topic=topic, broker_name=LOGIC_BROKER, queue_id=logic_id)
            for logic_id, leader in sorted(queue_leaders(route).items())
            if leader in names
        ]
    return [
        MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
        for data in writable
        for queue_id in range(data.write_queue_nums)
    ]


def publish_queues_at_brokers(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """Returns the queues to send to under the names of their brokers, which of a static topic take
    messages for the logic queues that they lead."""
    names = queue_leaders(route)
    return [
        structs.replace(queue, broker_name=names.get(queue.queue_id, ""))
        if queue.broker_name == LOGIC_BROKER
        else queue
        for queue in publish_queues(topic, route)
    ]


def subscribe_queues(
    topic: str, route: TopicRouteData, *, logic: bool = True
) -> list[MessageQueue]:
    """Returns the queues to read from: all readable ones, in the order that clients divide them
    by. Of a static topic all logic queues, also those that nobody leads now, or without `logic`
    the physical ones."""
    if logic and is_static(route):
        mappings = route.topic_queue_mapping_by_broker or {}
        total = max(info.total_queues for info in mappings.values())
        return [
            MessageQueue(topic=topic, broker_name=LOGIC_BROKER, queue_id=logic_id)
            for logic_id in range(total)
        ]
    return sorted(
        MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
        for data in route.queue_datas
        if data.perm & READ
        for queue_id in range(data.read_queue_nums)
    )


def queue_of_key(queues: Sequence[T], key: str | int) -> T:
    """Returns the queue that the messages of a key go to, as stock's SelectMessageQueueByHash."""
    number = key if isinstance(key, int) else java_hash_code(key)
    return queues[abs(number) % len(queues)]


def is_static(route: TopicRouteData) -> bool:
    """Returns whether the topic has logic queues."""
    return bool(route.topic_queue_mapping_by_broker)


def queue_leaders(route: TopicRouteData) -> dict[int, str]:
    """Returns each logic queue of a static topic that a broker leads, and that broker's name."""
    return leaders(route.topic_queue_mapping_by_broker or {})


class QueueLeaders:
    """Finds the broker that serves a queue, by the routes that are known: a logic queue of a static
    topic is served by the broker that leads it."""

    def __init__(self) -> None:
        self._leaders: dict[str, dict[int, str]] = {}

    def note(self, topic: str, route: TopicRouteData) -> None:
        """Takes the topic's newest route."""
        found = queue_leaders(route)
        if found:
            self._leaders[topic] = found
        else:
            self._leaders.pop(topic, None)

    def forget_all(self) -> None:
        """Knows no leader any more."""
        self._leaders.clear()

    def broker_of(self, queue: MessageQueue) -> str | None:
        """Returns the name of the broker that serves a queue; None where no route names the leader
        of a logic queue."""
        if queue.broker_name != LOGIC_BROKER:
            return queue.broker_name
        return self._leaders.get(queue.topic, {}).get(queue.queue_id)

    def at_broker(self, queue: MessageQueue) -> MessageQueue:
        """Returns the queue under the name of the broker that serves it; raises `NoRouteError`
        where nobody leads it."""
        name = self.broker_of(queue)
        if name is None:
            raise NoRouteError(
                f"no route names a broker that leads queue {queue.queue_id} of the static topic"
                f" {queue.topic}"
            )
        return queue if name == queue.broker_name else structs.replace(queue, broker_name=name)


def allocate_averagely(queues: Sequence[T], members: Sequence[str], member: str) -> list[T]:
    """Returns the share of `member`, which every member computes by itself: consecutive queues, the
    first members one more where it does not come out even. `queues` and `members` are sorted, as
    all members sort them."""
    if member not in members:
        return []
    index = members.index(member)
    share, extra = divmod(len(queues), len(members))
    start = index * share + min(index, extra)
    return list(queues[start : start + share + (index < extra)])


def default_topic_route(route: TopicRouteData, queues: int) -> TopicRouteData:
    """Returns the route of a topic that a send will create, made from the default topic's."""
    return structs.replace(
        route,
        queue_datas=[
            structs.replace(data, read_queue_nums=count, write_queue_nums=count)
            for data in route.queue_datas
            for count in [min(queues, data.read_queue_nums)]
        ],
    )


def address_of(
    brokers: Iterable[BrokerData],
    broker_name: str,
    broker_id: int = MASTER_ID,
    *,
    only: bool = False,
) -> str | None:
    """Returns the address of a broker; of another one with its name where that one is missing,
    unless `only`."""
    for data in brokers:
        if data.broker_name == broker_name and data.broker_addrs:
            address = data.broker_addrs.get(broker_id)
            if address is None and not only:
                address = data.broker_addrs[min(data.broker_addrs)]
            return address
    return None


def any_address(route: TopicRouteData) -> str | None:
    """Returns the address of one of the route's brokers, masters before others."""
    if not route.broker_datas:
        return None
    data = random.choice(route.broker_datas)
    return address_of([data], data.broker_name)


def _order_conf(text: str) -> Iterable[tuple[str, int]]:
    for entry in text.split(";"):
        name, _, count = entry.partition(":")
        if count.strip().isdecimal():
            yield name, int(count)
