"""Requests about the lag of groups: 208 of one group, 317 of all, 303 in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.stats.traffic import GROUP_GET, Traffic
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.message.names import pair_key
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.queues import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpanBody,
    MessageQueue,
    OffsetWrapper,
    QueueTimeSpan,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from rocketmq_tw.wire.headers.offsets import QueryConsumeTimeSpanRequestHeader

#: Queues in one answer; a frame of stock's clients has room for some more.
MAX_LISTED_QUEUES = 50_000


class ConsumeStatsRequests:
    """Answers from consumer offsets, queues and the counted traffic."""

    def __init__(
        self,
        host: Host,
        tables: Tables,
        clients: ClientRegistry,
        store: IMessageStore,
        traffic: Traffic,
        growing: GrowingAnswers,
    ) -> None:
        self._host = host
        self._topics = tables.topics
        self._mappings = tables.mappings
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._clients = clients
        self._store = store
        self._traffic = traffic
        self._growing = growing

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUME_STATS: self.of_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.of_all_groups,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
        }

    def of_group(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 208: a group's progress in the topics asked for, or in all that it has offsets
        in."""
        header = request.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        listed = {topic for topic in (header.topic_list or "").split(";") if topic}
        if header.topic:
            listed.add(header.topic)

        def fill(stats: ConsumeStats) -> Iterator[None]:
            return self._fill(stats, group, listed or self._consumed_topics(group))

        return self._growing.answer(request, ConsumeStats, fill)

    def of_all_groups(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 317: the progress of all groups, or in ordered topics only."""
        only_ordered = request.header(GetConsumeStatsInBrokerHeader).is_order
        return self._growing.answer(
            request,
            lambda: ConsumeStatsList(broker_addr=peer.local_address),
            lambda body: self._fill_all(body, only_ordered),
        )

    def _fill_all(self, body: ConsumeStatsList, only_ordered: bool) -> Iterator[None]:
        """Adds the progress of all groups, in steps; raises `RequestError` where that is more than
        an answer has room for."""
        queues = 0
        for group in list(self._groups.all()):
            each = []
            for topic in sorted(self._consumed_topics(group)):
                config = self._topics.get(topic)
                if config is None or (only_ordered and not config.order):
                    continue
                stats = ConsumeStats()
                yield from self._fill(stats, group, [topic])
                body.total_diff += sum(
                    queue.broker_offset - max(0, queue.consumer_offset)
                    for queue in stats.offset_table.values()
                )
                each.append(stats)
                queues += len(stats.offset_table)
                if queues > MAX_LISTED_QUEUES:
                    raise RequestError(
                        ResponseCode.SYSTEM_ERROR,
                        f"the groups of this broker consume more than {MAX_LISTED_QUEUES} queues:"
                        " ask for one group at a time",
                    )
            body.consume_stats_list.append({group: each})
            yield

    def time_span(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 303: the times of the first, the last and the last consumed message of each
        queue."""
        header = request.header(QueryConsumeTimeSpanRequestHeader)
        queues = self._topics.known(header.topic).write_queue_nums

        def fill(body: ConsumeTimeSpanBody) -> Iterator[None]:
            for queue_id in range(queues):
                span = self._time_span(header.group, header.topic, queue_id)
                body.consume_time_span_set.append(span)
                if every(queue_id):
                    yield

        return self._growing.answer(request, ConsumeTimeSpanBody, fill)

    def _consumed_topics(self, group: str) -> set[str]:
        """Returns the topics where the group has offsets, without those that its connected
        consumers do not subscribe to any more."""
        topics = self._offsets.topics_of(group)
        connected = self._clients.consumer_group(group)
        if connected is not None and connected.subscriptions:
            topics &= connected.subscriptions.keys()
        return topics

    def _fill(self, stats: ConsumeStats, group: str, topics: Iterable[str]) -> Iterator[None]:
        """Adds a group's progress in topics, in steps; raises `RequestError` where that is more
        than an answer has room for."""
        table = stats.offset_table
        for number, topic in enumerate(topics):
            if every(number):
                yield
            config = self._topics.get(topic)
            if config is None:
                continue
            stats.consume_tps += self._traffic.tps(GROUP_GET, pair_key(topic, group))
            for queue_id in range(config.read_queue_nums):
                if every(len(table)):
                    yield
                table[self._queue(topic, queue_id)] = self._progress(group, topic, queue_id)
            if len(table) > MAX_LISTED_QUEUES:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"the group {group} consumes more than {MAX_LISTED_QUEUES} queues: ask for one"
                    " topic at a time",
                )

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        consumed = self._offsets.query(group, topic, queue_id)
        if topic not in self._mappings:
            # Of a physical queue of a static topic -1 tells tools to look at the one before.
            consumed = max(0, consumed)
        last_time = self._store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return OffsetWrapper(
            broker_offset=max(0, self._store.max_queue_offset(topic, queue_id)),
            consumer_offset=consumed,
            pull_offset=max(consumed, self._offsets.pulled.query(group, topic, queue_id)),
            last_timestamp=max(0, last_time),
        )

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        store = self._store
        end = store.max_queue_offset(topic, queue_id)
        first_time = store.earliest_store_time(topic, queue_id)
        consumed = self._offsets.query(group, topic, queue_id)
        span = QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=first_time,
            max_time_stamp=store.store_time(topic, queue_id, end - 1),
            consume_time_stamp=(
                store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else first_time
            ),
        )
        if consumed < end:
            next_time = store.store_time(topic, queue_id, max(0, consumed))
            span.delay_time = max(0, self._host.now_ms() - next_time) if next_time > 0 else 0
        return span

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        broker_name = self._host.config.broker_name
        return MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
