"""Offsets of the logic queues of static topics, made of what brokers say of the physical ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from rocketmq_tw.admin.brokers import addresses_of
from rocketmq_tw.admin.each_server import told_by_each
from rocketmq_tw.admin.tool import Servers
from rocketmq_tw.client.routes import is_static
from rocketmq_tw.message.logic_queues import (
    LOGIC_BROKER,
    Items,
    has_end,
    last_item,
    leader_of,
    logic_offset,
)
from rocketmq_tw.message.names import RETRY_PREFIX
from rocketmq_tw.wire.bodies.queues import MessageQueue, OffsetWrapper, TopicOffset
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.bodies.topics import LogicQueueMappingItem

#: The physical queues of a topic, as 202 tells of them, and what a group did in them, as 208 does.
Ends = Mapping[MessageQueue, TopicOffset]
GroupProgress = Mapping[MessageQueue, OffsetWrapper]
#: Routes by topic, for one look at several groups.
KnownRoutes = dict[str, TopicRouteData | None]


@attrs.frozen
class Progress:
    """How far a group is in a queue. `behind` and `in_flight` are numbers of messages: the offsets
    of a logic queue have gaps."""

    broker_offset: int
    consumer_offset: int
    behind: int
    in_flight: int
    last_timestamp: int


async def logic_queues(
    servers: Servers,
    topic: str,
    route: TopicRouteData | None,
    addresses: Iterable[str],
    *,
    all_may_fail: bool = False,
) -> dict[MessageQueue, Items]:
    """Returns the logic queues of a topic that brokers at `addresses` lead, and their items; none
    where it is no static topic. Asks as `ask_each` does."""
    if route is None or not is_static(route):
        return {}
    found: dict[MessageQueue, Items] = {}
    for told in await told_by_each(
        servers,
        addresses,
        lambda address: servers.admin.static_topic(address, topic),
        all_may_fail=all_may_fail,
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
    """Returns where logic queues begin and end: in the first item whose broker told, since former
    brokers may be gone; those whose leader did not tell are left out."""
    found = {}
    for queue, items in queues.items():
        last = last_item(items)
        end = None if last is None else ends.get(_physical(queue, last))
        if last is None or end is None:
            continue
        first, begin = next(
            (item, told)
            for item in items
            if item.logic_offset >= 0 and (told := ends.get(_physical(queue, item))) is not None
        )
        found[queue] = TopicOffset(
            min_offset=logic_offset(first, begin.min_offset),
            max_offset=logic_offset(last, end.max_offset),
            last_update_timestamp=end.last_update_timestamp,
        )
    return found


async def offsets_at(
    servers: Servers,
    addresses: Iterable[str],
    group: str,
    topic: str,
    *,
    all_may_fail: bool = False,
) -> GroupProgress:
    """Returns what brokers at `addresses` say of a group in a topic. Asks as `ask_each` does."""
    offsets: dict[MessageQueue, OffsetWrapper] = {}
    for stats in await told_by_each(
        servers,
        addresses,
        lambda address: servers.admin.consume_stats(address, group, topic),
        all_may_fail=all_may_fail,
    ):
        offsets.update(stats.offset_table)
    return offsets


async def group_progress(
    servers: Servers,
    group: str,
    offsets: GroupProgress,
    routes: KnownRoutes | None = None,
    *,
    all_may_fail: bool = False,
) -> dict[MessageQueue, Progress]:
    """Returns how far a group is in the topics of `offsets`, which brokers said of physical queues.
    Of a static topic it is how far in its logic queues, for which all its brokers are asked, as
    `ask_each` does. Routes that are not among `routes` are asked for, and kept there."""
    routes = {} if routes is None else routes
    found = {}
    for topic in sorted({queue.topic for queue in offsets}):
        logic: dict[MessageQueue, Progress] = {}
        if not topic.startswith(RETRY_PREFIX):
            if topic not in routes:
                routes[topic] = await servers.admin.topic_route(topic)
            logic = await _logic_progress(
                servers, group, topic, routes[topic], all_may_fail=all_may_fail
            )
        found.update(
            logic
            or {
                queue: physical_progress(done)
                for queue, done in offsets.items()
                if queue.topic == topic
            }
        )
    return found


def physical_progress(done: OffsetWrapper) -> Progress:
    """Returns how far a group is in a physical queue; a group without an offset is at its begin."""
    begin = max(0, done.consumer_offset)
    return Progress(
        broker_offset=done.broker_offset,
        consumer_offset=done.consumer_offset,
        behind=done.broker_offset - begin,
        # 4.9 has no pull offset.
        in_flight=max(done.pull_offset or 0, begin) - begin,
        last_timestamp=done.last_timestamp,
    )


async def _logic_progress(
    servers: Servers,
    group: str,
    topic: str,
    route: TopicRouteData | None,
    *,
    all_may_fail: bool,
) -> dict[MessageQueue, Progress]:
    if route is None or not is_static(route):
        return {}
    addresses = addresses_of(route.broker_datas)
    queues = await logic_queues(servers, topic, route, addresses, all_may_fail=all_may_fail)
    offsets = await offsets_at(servers, addresses, group, topic, all_may_fail=all_may_fail)
    found = {queue: _progress_in(queue, items, offsets) for queue, items in queues.items()}
    return {queue: progress for queue, progress in found.items() if progress is not None}


def _progress_in(queue: MessageQueue, items: Items, offsets: GroupProgress) -> Progress | None:
    """Returns how far a group is in a logic queue: where it is in the last item in which it has an
    offset, at the beginning where it has none. What lies in items whose broker did not tell is not
    counted; None where it is the leader."""
    told = [
        (item, done)
        for item in items
        if item.logic_offset >= 0 and (done := offsets.get(_physical(queue, item))) is not None
    ]
    if not told or told[-1][0] is not last_item(items):
        return None
    with_offset = [at for at, (_, done) in enumerate(told) if done.consumer_offset >= 0]
    left = told[with_offset[-1] if with_offset else 0 :]
    behind = in_flight = 0
    for item, done in left:
        begin = max(item.start_offset, done.consumer_offset)
        end = item.end_offset if has_end(item) else done.broker_offset
        behind += max(0, end - begin)
        in_flight += max(0, min(done.pull_offset or 0, end) - begin)
    (at, done), (last, end_of_all) = left[0], left[-1]
    return Progress(
        broker_offset=logic_offset(last, end_of_all.broker_offset),
        consumer_offset=logic_offset(at, done.consumer_offset),
        behind=behind,
        in_flight=in_flight,
        last_timestamp=done.last_timestamp,
    )


def _physical(queue: MessageQueue, item: LogicQueueMappingItem) -> MessageQueue:
    return MessageQueue(topic=queue.topic, broker_name=item.bname or "", queue_id=item.queue_id)
