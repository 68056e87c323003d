"""Offsets of the logic queues of static topics, made of what brokers say of the physical ones."""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_tw.admin.brokers import addresses_of
from rocketmq_tw.admin.each_server import told_by_each
from rocketmq_tw.admin.tool import Servers
from rocketmq_tw.client.routes import is_static
from rocketmq_tw.message.logic_queues import (
    LOGIC_BROKER,
    Items,
    item_at,
    last_item,
    leader_of,
    logic_offset,
)
from rocketmq_tw.wire.bodies.queues import MessageQueue, OffsetWrapper, TopicOffset
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.bodies.topics import LogicQueueMappingItem

#: The physical queues of a topic, as 202 tells of them, and what a group did in them, as 208 does.
Ends = Mapping[MessageQueue, TopicOffset]
Progress = Mapping[MessageQueue, OffsetWrapper]


async def logic_queues(
    servers: Servers, topic: str, route: TopicRouteData | None
) -> dict[MessageQueue, Items]:
    """Returns the logic queues of a topic and the items that their leaders have; none where it is
    no static topic. Asks as `ask_each` does."""
    if route is None or not is_static(route):
        return {}
    found: dict[MessageQueue, Items] = {}
    for told in await told_by_each(
        servers,
        addresses_of(route.broker_datas),
        lambda address: servers.admin.static_topic(address, topic),
    ):
        detail = told.mapping_detail
        if detail is None:
            continue
        for logic_id, items in detail.hosted_queues.items():
            if leader_of(items) == detail.bname:
                queue = MessageQueue(topic=topic, broker_name=LOGIC_BROKER, queue_id=logic_id)
                found[queue] = items
    return found


def logic_ends(queues: Mapping[MessageQueue, Items], ends: Ends) -> dict[MessageQueue, TopicOffset]:
    """Returns where logic queues begin and end; those of which a broker did not tell are left
    out."""
    found = {}
    for queue, items in queues.items():
        first, last = item_at(items, 0), last_item(items)
        if first is None or last is None:
            continue
        begin, end = ends.get(_physical(queue, first)), ends.get(_physical(queue, last))
        if begin is not None and end is not None:
            found[queue] = TopicOffset(
                min_offset=logic_offset(first, begin.min_offset),
                max_offset=logic_offset(last, end.max_offset),
                last_update_timestamp=end.last_update_timestamp,
            )
    return found


def logic_progress(
    queues: Mapping[MessageQueue, Items], ends: Ends, progress: Progress
) -> dict[MessageQueue, OffsetWrapper]:
    """Returns how far a group is in logic queues: where it is in the last item in which it is."""
    found = {}
    for queue, end in logic_ends(queues, ends).items():
        for item in reversed(queues[queue]):
            done = progress.get(_physical(queue, item))
            if done is None or done.consumer_offset < 0 or item.logic_offset < 0:
                continue
            found[queue] = OffsetWrapper(
                broker_offset=end.max_offset,
                consumer_offset=logic_offset(item, done.consumer_offset),
                pull_offset=logic_offset(item, done.pull_offset or 0),
                last_timestamp=done.last_timestamp,
            )
            break
    return found


def _physical(queue: MessageQueue, item: LogicQueueMappingItem) -> MessageQueue:
    return MessageQueue(topic=queue.topic, broker_name=item.bname or "", queue_id=item.queue_id)
