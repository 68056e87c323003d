"""Topics are made, changed, removed and listed: 17, 18, 21, 202, 215, 305, 351, 513."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.stats.traffic import TOPIC_PUT, Traffic
from rocketmq_tw.broker.tables.attributes import parse_attributes
from rocketmq_tw.broker.tables.changes import Check, check_list_bytes, check_list_length
from rocketmq_tw.broker.tables.topics.announcements import Announcements
from rocketmq_tw.broker.tables.topics.queue_mappings import QueueMappings
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import names
from rocketmq_tw.net.changes import changed, listed, said_once_made, who
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.whole_tables import WholeTables
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire import permissions
from rocketmq_tw.wire.bodies.base import MAX_TOPIC_QUEUES, decode_request, encode_body
from rocketmq_tw.wire.bodies.queues import MessageQueue, TopicOffset, TopicStatsTable
from rocketmq_tw.wire.bodies.topics import (
    CreateTopicListBody,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicList,
    TopicQueueMappingDetail,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)

#: Topics whose queues are removed in one step; each is a directory that is moved.
REMOVED_AT_ONCE = 20

log = Logger()


class TopicOffsets(Protocol):
    """The consumer offsets in topics."""

    def groups_of(self, topic: str) -> set[str]:
        """Returns the groups that have offsets in a topic."""
        ...

    def told_of_topic(self, topic: str) -> Iterator[str]:
        """Yields a text for each offset in a topic."""
        ...

    def remove_topic(self, topic: str) -> Iterator[None]:
        """Removes the offsets in a topic at once; the steps free them."""
        ...


class TopicChangeRequests:
    """Makes, changes and removes topics: 17, 18, 215, 513."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        mappings: QueueMappings,
        offsets: TopicOffsets,
        store: IMessageStore,
        announcements: Announcements,
        growing: GrowingAnswers,
    ) -> None:
        self._config = config
        self._topics = topics
        self._mappings = mappings
        self._offsets = offsets
        self._store = store
        self._announcements = announcements
        self._growing = growing

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self.update_static,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
        }

    def checks(self) -> dict[int, Check]:
        """Returns what raises `RequestError` for each request that would be refused, and changes
        nothing."""
        topics = self._topics
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: lambda asked: topics.check(self._wanted(asked)),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: lambda asked: topics.check(
                *self._all_wanted(asked)
            ),
            RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self._static_wanted,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._unwanted,
        }

    def update(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 17: makes or changes a topic."""
        config = self._wanted(request)
        written = self._update(peer, config)
        return written.addCallback(
            lambda _: self._announcements.hold(request.response(), config.topic_name)
        )

    def update_static(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 513: makes or changes a static topic and how its logic queues lie on this broker.
        The mapping is written first: a topic without it would take messages for the wrong
        queues."""
        config, detail = self._static_wanted(request)
        force = request.header(CreateTopicRequestHeader).force
        topic = ", ".join(self._changes(config))
        mapping = changed(detail, self._mappings.get(config.topic_name))
        written = self._mappings.update(detail, force=force)
        written.addCallback(lambda _: self._topics.update(config))
        said = said_once_made(
            written,
            log,
            "{peer} makes or changes a static topic: {topic}, {mapping}",
            peer=who(peer),
            topic=topic,
            mapping=mapping,
        )
        return said.addCallback(
            lambda _: self._announcements.hold(request.response(), config.topic_name)
        )

    def update_list(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 18: makes or changes all of the topics or none."""
        configs = self._all_wanted(request)
        if not configs:
            return request.response()
        # They are announced together.
        first = configs[0].topic_name
        written = self._update(peer, *configs)
        return written.addCallback(lambda _: self._announcements.hold(request.response(), first))

    def delete(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 215: removes the topic, the retry topics that pop made for it, their queues and
        offsets."""
        topic = self._unwanted(request)
        doomed = [topic]
        steps = self._add_retry_topics(topic, doomed)

        def begin() -> Deferred[RemotingCommand]:
            were = (changed(name, self._topics.get(name)) for name in doomed)
            topics = listed(were, len(doomed))
            offsets = listed(chain.from_iterable(map(self._offsets.told_of_topic, doomed)))
            written = said_once_made(
                self._topics.delete(*doomed),
                log,
                "{peer} deletes the topics {topics} and the offsets in them: {offsets}",
                peer=who(peer),
                topics=topics,
                offsets=offsets,
            )
            return written.addCallback(lambda _: self._growing.after(self._remove(doomed), end))

        def end() -> Deferred[RemotingCommand]:
            gone = [name for name in doomed if self._topics.get(name) is None]
            return self._mappings.delete(*gone).addCallback(lambda _: request.response())

        return self._growing.after(steps, begin)

    def _wanted(self, request: RemotingCommand) -> TopicConfig:
        config = _config(request.header(CreateTopicRequestHeader))
        self._check(config)
        return config

    def _static_wanted(
        self, request: RemotingCommand
    ) -> tuple[TopicConfig, TopicQueueMappingDetail]:
        # As in stock, a static topic has neither an order nor attributes.
        header = request.header(CreateTopicRequestHeader)
        config = msgspec.structs.replace(_config(header), order=False, attributes={})
        self._check(config)
        check_list_bytes(request.body)
        detail = decode_request(TopicQueueMappingDetail, request.body)
        if detail.topic != config.topic_name:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the mapping is for {detail.topic}, the request for {header.topic}: name the same"
                " topic in both",
            )
        if len(detail.hosted_queues) > MAX_TOPIC_QUEUES:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(detail.hosted_queues)} logic queues: give at most {MAX_TOPIC_QUEUES}",
            )
        self._topics.check(config)
        return config, detail

    def _all_wanted(self, request: RemotingCommand) -> list[TopicConfig]:
        check_list_bytes(request.body)
        configs = decode_request(CreateTopicListBody, request.body).topic_config_list
        check_list_length(configs)
        for config in configs:
            self._check(config)
        return configs

    def _unwanted(self, request: RemotingCommand) -> str:
        topic = request.header(DeleteTopicRequestHeader).topic
        names.check_topic(topic, ResponseCode.INVALID_PARAMETER)
        self._refuse_system(topic)
        return topic

    def _update(self, peer: IPeer, *configs: TopicConfig) -> Deferred[None]:
        told = listed(self._changes(*configs), len(configs))
        return said_once_made(
            self._topics.update(*configs),
            log,
            "{peer} makes or changes {n} topics: {topics}",
            peer=who(peer),
            n=len(configs),
            topics=told,
        )

    def _changes(self, *configs: TopicConfig) -> Iterator[str]:
        """Yields what the update changes in each topic, with the attributes that it will have: the
        request has changes of these."""
        for each in self._topics.check(*configs):
            yield changed(each, self._topics.get(each.topic_name))

    def _add_retry_topics(self, topic: str, doomed: list[str]) -> Iterator[None]:
        if not self._config.clear_retry_topic_when_delete_topic:
            return
        for number, group in enumerate(self._offsets.groups_of(topic)):
            for separator in ("+", "_"):
                retry = f"{names.retry_topic(group)}{separator}{topic}"
                # A deletion that failed half-way has left the table, and not its queues.
                if self._topics.get(retry) is not None or self._store.queue_ids(retry):
                    doomed.append(retry)
            if every(number):
                yield

    def _remove(self, doomed: Sequence[str]) -> Iterator[None]:
        """Removes queues and offsets of topics that are not in the file any more: a deletion that
        cannot be written must leave all as it was. A topic that a send made again meanwhile keeps
        everything, as messages that were acknowledged since are among it."""
        freed: list[Iterator[None]] = []
        for start in range(0, len(doomed), REMOVED_AT_ONCE):
            if start:
                yield
            gone = []
            for name in doomed[start : start + REMOVED_AT_ONCE]:
                if self._topics.get(name) is None:
                    gone.append(name)
                else:
                    log.info("{topic!r} was made again while it was deleted", topic=name)
            self._store.remove_topics(gone)
            freed += map(self._offsets.remove_topic, gone)
        for number, steps in enumerate(freed):
            yield from steps
            if every(number):
                yield

    def _refuse_system(self, topic: str) -> None:
        if self._config.validate_system_topic_when_update_topic and self._topics.is_system(topic):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"brokers use the topic {topic} themselves: choose another",
            )

    def _check(self, config: TopicConfig) -> None:
        names.check_topic(config.topic_name, ResponseCode.INVALID_PARAMETER)
        self._refuse_system(config.topic_name)
        if not permissions.is_valid(config.perm):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"perm {config.perm}: add up 4 to read, 2 to write and 1 to inherit",
            )
        for queues in (config.read_queue_nums, config.write_queue_nums):
            if not 0 <= queues <= MAX_TOPIC_QUEUES:
                raise RequestError(
                    ResponseCode.INVALID_PARAMETER,
                    f"{queues} queues of {config.topic_name}: give 0 to {MAX_TOPIC_QUEUES}",
                )
        if (
            not self._config.enable_mixed_message_type
            and (config.attributes or {}).get("+message.type") == "MIXED"
        ):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                "message.type MIXED needs enableMixedMessageType=true in the broker's file",
            )


class TopicViewRequests:
    """Shows topics and their queues: 21, 202, 305, 351."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        mappings: QueueMappings,
        store: IMessageStore,
        traffic: Traffic,
        growing: GrowingAnswers,
        whole: WholeTables,
    ) -> None:
        self._config = config
        self._topics = topics
        self._mappings = mappings
        self._store = store
        self._traffic = traffic
        self._growing = growing
        self._whole = whole

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all,
            RequestCode.GET_TOPIC_CONFIG: self.get,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    def all(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 21: all topics and how static ones lie on this broker, as slaves and tools copy
        them."""
        return self._whole.answer(request, peer, "topics", self._encoder)

    def _encoder(self) -> Callable[[], bytes]:
        table = self._topics.table()
        table.mapping_data_version = self._mappings.data_version
        table.topic_queue_mapping_info_map = {}
        table.topic_queue_mapping_detail_map = dict(self._mappings.all())
        return partial(self._topics.encode, table)

    def get(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 351: one topic, with its logic queues where the request wants them."""
        header = request.header(GetTopicConfigRequestHeader)
        config = self._topics.known(header.topic)
        mapping = self._mappings.get(header.topic) if header.lo else None
        if mapping is None:
            return request.response(body=encode_body(config))
        whole = TopicConfigAndQueueMapping(**msgspec.structs.asdict(config), mapping_detail=mapping)
        return request.response(body=encode_body(whole))

    def stats(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 202: the offsets of each queue of a topic, and when its last message was
        stored."""
        topic = request.header(GetTopicStatsInfoRequestHeader).topic
        config = self._topics.known(topic)
        queues = max(config.read_queue_nums, config.write_queue_nums)
        return self._growing.answer(
            request,
            lambda: TopicStatsTable(topic_put_tps=self._traffic.tps(TOPIC_PUT, topic)),
            lambda table: self._fill(table, topic, queues),
        )

    def _fill(self, table: TopicStatsTable, topic: str, queues: int) -> Iterator[None]:
        for queue_id in range(queues):
            queue = MessageQueue(
                topic=topic, broker_name=self._config.broker_name, queue_id=queue_id
            )
            end = self._store.max_queue_offset(topic, queue_id)
            table.offset_table[queue] = TopicOffset(
                min_offset=max(0, self._store.min_queue_offset(topic, queue_id)),
                max_offset=end,
                last_update_timestamp=(
                    self._store.store_time(topic, queue_id, end - 1) if end > 0 else 0
                ),
            )
            if every(queue_id):
                yield

    def system_topics(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 305: the topics that brokers use themselves."""
        topics = sorted(self._topics.system_topics() | names.SYSTEM_TOPICS)
        return request.response(body=encode_body(TopicList(topic_list=topics)))


def _config(header: CreateTopicRequestHeader) -> TopicConfig:
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=parse_attributes(header.attributes),
    )
