"""Static topics, as a part of the broker: what no reader needs any more is forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.static_topics.offsets import StaticOffsets
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.topics.queue_mappings import QueueMappings
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.logic_queues import Items, leader_of, leaders
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.retention import is_delete_hour
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.topics import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError, WireError
from rocketmq_tw.wire.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
)
from rocketmq_tw.wire.headers.topics import GetTopicConfigRequestHeader

#: Seconds between two looks at whether it is time to clean up, as in stock.
CLEAN_SECONDS = 300.0

log = Logger()


class StaticTopics(Part):
    """Keeps the offsets of groups in logic queues, and forgets items of queues that are empty, at
    the hours of `deleteWhen`."""

    def __init__(self, host: Host, writing: Writing, tables: Tables, brokers: BrokerClient) -> None:
        self._host = host
        tables.offset_requests.of_logic_queues = StaticOffsets(
            tables.mappings, tables.offsets, brokers, tables.offset_requests
        )
        self.cleaner = MappingCleaner(tables.mappings, brokers, writing.store)

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic(
            "cleaning static topics", CLEAN_SECONDS, self._clean, (Role.MASTER,), may_hang=True
        )

    def _clean(self) -> Deferred[Any] | None:
        if not is_delete_hour(self._host.store_config.delete_when, self._host.now_ms()):
            return None
        return Deferred.fromCoroutine(self.cleaner.clean())


class MappingCleaner:
    """Looks at one static topic after the other; one that fails is left for the next time."""

    def __init__(
        self, mappings: QueueMappings, brokers: BrokerClient, store: IMessageStore
    ) -> None:
        self._mappings = mappings
        self._brokers = brokers
        self._store = store

    async def clean(self) -> None:
        """Forgets the oldest item of each queue led here whose messages are all gone, and queues
        that were led here before the last move but one."""
        for topic in list(self._mappings.all()):
            for step in (self._forget_empty, self._forget_moved):
                detail = self._mappings.get(topic)
                if detail is None:
                    break
                try:
                    await step(topic, detail)
                except (RequestError, WireError) as error:
                    log.warn("cleaning the static topic {topic}: {why}", topic=topic, why=error)

    async def _forget_empty(self, topic: str, detail: TopicQueueMappingDetail) -> None:
        gone: dict[int, LogicQueueMappingItem] = {}
        for logic_id, items in detail.hosted_queues.items():
            led = len(items) > 1 and leader_of(items) == detail.bname
            if led and await self._is_empty(topic, items[0]):
                gone[logic_id] = items[0]
        if gone:
            self._forget(topic, items=gone)

    async def _is_empty(self, topic: str, item: LogicQueueMappingItem) -> bool:
        queue_id = item.queue_id
        if self._mappings.is_here(item):
            store = self._store
            first, end = (
                store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
            )  # fmt: skip
        else:
            lowest = GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id, lo=False)
            highest = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id, lo=False)
            answer = await self._brokers.ask(item.bname, topic, RequestCode.GET_MIN_OFFSET, lowest)
            _check(answer.code, answer.remark)
            first = answer.header(GetMinOffsetResponseHeader).offset
            answer = await self._brokers.ask(item.bname, topic, RequestCode.GET_MAX_OFFSET, highest)
            _check(answer.code, answer.remark)
            end = answer.header(GetMaxOffsetResponseHeader).offset
        return end == 0 or first == end

    async def _forget_moved(self, topic: str, detail: TopicQueueMappingDetail) -> None:
        """Forgets queues that have moved on from the broker to which they moved from here: until
        then readers are sent on to that one."""
        former = {
            logic_id: leader_of(items)
            for logic_id, items in detail.hosted_queues.items()
            if items and leader_of(items) != detail.bname
        }
        if not former:
            return
        route = await self._brokers.route(topic)
        real = leaders(route.topic_queue_mapping_by_broker or {})
        moved = [each for each, leader in former.items() if real.get(each) not in (None, leader)]
        details: dict[str, TopicQueueMappingDetail | None] = {}
        gone = []
        for logic_id in moved:
            name = real[logic_id]
            if name not in details:
                details[name] = await self._detail_of(name, topic)
            if _is_led(details[name], detail, logic_id, name):
                gone.append(logic_id)
        if gone:
            self._forget(topic, queues=gone)

    async def _detail_of(self, broker_name: str, topic: str) -> TopicQueueMappingDetail | None:
        header = GetTopicConfigRequestHeader(topic=topic, lo=True, bname=broker_name)
        answer = await self._brokers.ask(broker_name, topic, RequestCode.GET_TOPIC_CONFIG, header)
        _check(answer.code, answer.remark)
        return decode_body(TopicConfigAndQueueMapping, answer.body).mapping_detail

    def _forget(
        self,
        topic: str,
        items: dict[int, LogicQueueMappingItem] | None = None,
        queues: Sequence[int] = (),
    ) -> None:
        """Removes items and queues of a topic; what changed in them meanwhile stays."""
        detail = self._mappings.get(topic)
        if detail is None:
            return
        hosted = {}
        for logic_id, kept in detail.hosted_queues.items():
            if logic_id in queues:
                continue
            gone = (items or {}).get(logic_id)
            hosted[logic_id] = [item for item in kept if item != gone or item is kept[-1]]
        log.info(
            "static topic {topic} forgets stretches without messages, by logic queue: {items};"
            " logic queues that other brokers have now: {queues}",
            topic=topic,
            items=items or "none",
            queues=list(queues) or "none",
        )
        self._mappings.replace_queues(topic, hosted)


def _is_led(
    there: TopicQueueMappingDetail | None,
    here: TopicQueueMappingDetail,
    logic_id: int,
    broker_name: str,
) -> bool:
    """Returns whether the broker that should lead the queue has a mapping of the same state and
    does."""
    if there is None or (there.total_queues, there.epoch) != (here.total_queues, here.epoch):
        return False
    items: Items = there.hosted_queues.get(logic_id, [])
    return leader_of(items) == broker_name


def _check(code: int, remark: str | None) -> None:
    if code != ResponseCode.SUCCESS:
        raise RequestError(code, remark or "")
