"""The broker's topics: the built-in ones, those that a send creates, those that an admin makes.

They are in `config/topics.json` in stock's form (docs/formats/config-files.md). A change shows in
the table at once and is written in a thread; it is announced and answered only once it is written,
so that no client is told of a topic that a crash would take back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.tables.attributes import TOPIC_ATTRIBUTES, alter_attributes
from rocketmq_tw.broker.tables.changes import MAX_ENTRIES, check_sizes, check_table_room
from rocketmq_tw.broker.tables.log_place import LogPlace
from rocketmq_tw.broker.tables.versioned import RoleTable, TableContext, TableFile, reported
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import names
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import INHERIT, READ, WRITE, is_inherited

SCHEDULE_QUEUES = 18
#: Topics from which on a send creates no further one: names cost memory and disk.
MAX_AUTO_CREATED_TOPICS = 100_000

log = Logger()


class TopicTable(RoleTable[TopicConfig, TopicConfigTable]):
    """Topic name → its queues, permissions and attributes. A light queue is a topic of one queue
    without being in the table."""

    BODY, FIELD = TopicConfigTable, "topic_config_table"

    def __init__(self, file: TableFile, context: TableContext) -> None:
        #: Told of topics that are new or changed, with what fires once they are in the file; a
        #: callback of that must return None, an errback the failure.
        self.changed: Listeners[Sequence[TopicConfig], Deferred[None]] = Listeners(
            "topics were made or changed"
        )
        built_in = {topic.topic_name: topic for topic in _built_in(context.config)}
        self._system = names.SYSTEM_TOPICS | built_in.keys()
        #: Topics of messages in front of this place are in the table, or were deleted.
        self.as_of = LogPlace()
        super().__init__(file, built_in, context)

    def get(self, name: str) -> TopicConfig | None:
        """Returns the configuration of a topic; None where it does not exist. A light queue has one
        without being in the table."""
        topic = self._entries.get(name)
        if topic is None and self._lmq and name.startswith(names.LMQ_PREFIX):
            return TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
        return topic

    def known(self, name: str) -> TopicConfig:
        """Returns the configuration of a topic as `get` does; raises a `RequestError` that says how
        to create it where it does not exist."""
        topic = self.get(name)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"{name} is no topic of this broker: create it (rmqadmin updateTopic)",
            )
        return topic

    def is_system(self, name: str) -> bool:
        """Returns whether brokers use the topic themselves."""
        return name in self._system or name.startswith(names.SYSTEM_TOPIC_PREFIX)

    def system_topics(self) -> set[str]:
        """Returns the names of those topics of the table for which `is_system` is true."""
        return {name for name in self._entries if self.is_system(name)}

    def table(self, topics: Mapping[str, TopicConfig] | None = None) -> TopicConfigTable:
        """Returns these topics with the version, as registrations have them, or all, with the place
        of the log too, as the file has them and slaves get them."""
        if topics is not None:
            return self._body(topics)
        table: TopicConfigTable = self._body(self._entries)
        table.log_place = self.as_of.now()
        return table

    def create_on_send(
        self,
        topic: str,
        default_topic: str,
        peer_address: str,
        default_queue_nums: int,
        sys_flag: int,
    ) -> TopicConfig | None:
        """Returns the topic; a new one is made after `default_topic` where that may be inherited
        from, and None is returned where it may not. Answers about a new one wait for its
        announcement.

        `default_queue_nums` is what the client asks for; the topic gets no more queues than the
        default topic has. Raises `RequestError` for an illegal name, and where it would be one
        topic too many.
        """
        known = self._entries.get(topic)
        if known is not None:
            return known
        names.check_topic(topic)
        template = self._entries.get(default_topic)
        if template is None or not self._may_inherit(template):
            log.warn(
                "{peer} sent to {topic!r}, which is not there and cannot be made after {default!r}",
                peer=peer_address,
                topic=topic,
                default=default_topic,
            )
            return None
        self._check_room(topic)
        queues = max(0, min(default_queue_nums, template.write_queue_nums))
        log.info("{peer} made the topic {topic!r} by a send", peer=peer_address, topic=topic)
        return self._put(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=template.perm & ~INHERIT,
                topic_filter_type=template.topic_filter_type,
                topic_sys_flag=sys_flag,
            )
        )

    def create_on_send_back(
        self, topic: str, queue_nums: int, perm: int, sys_flag: int = 0, *, order: bool = False
    ) -> TopicConfig:
        """Returns the retry or dead-letter topic of a group, made where it is missing; raises
        `RequestError` where it would be one topic too many."""
        known = self._entries.get(topic)
        if known is None:
            self._check_room(topic)
            known = TopicConfig(
                topic_name=topic,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=perm,
                topic_sys_flag=sys_flag,
                order=order,
            )
            if self._role.copies_log:
                # The master makes it, and it comes from there.
                return known
        elif known.order != order and not self._role.copies_log:
            known = msgspec.structs.replace(known, order=order)
        else:
            return known
        return self._put(known)

    def update(self, *configs: TopicConfig) -> Deferred[None]:
        """Creates or replaces; `attributes` are changes (`+key`, `-key`) to those that are set.

        Raises `RequestError` for what cannot be made, changing nothing; fires once all is in the
        file, or fails with one, and then all is as it was.
        """
        changed = self.check(*configs)
        return self._put_all(changed) if changed else succeed(None)

    def check(self, *configs: TopicConfig) -> list[TopicConfig]:
        """Returns what `update` puts into the table; raises `RequestError` for what cannot be
        made."""
        changed = []
        for config in configs:
            if self._lmq and config.topic_name.startswith(names.LMQ_PREFIX):
                # As in stock, they are there without being made.
                continue
            names.check_topic(config.topic_name)
            known = self._entries.get(config.topic_name)
            current = None if known is None else known.attributes or {}
            attributes = alter_attributes(TOPIC_ATTRIBUTES, current, config.attributes or {})
            changed.append(msgspec.structs.replace(config, attributes=attributes))
        check_sizes("topic", {config.topic_name: config for config in changed})
        made = [config.topic_name for config in changed]
        check_table_room("topics", self._entries, made, MAX_ENTRIES, "deleteTopic")
        return changed

    def add_found(self, configs: Sequence[TopicConfig]) -> None:
        """Creates or replaces topics that messages of the log show; what was made meanwhile stays
        where it has enough queues."""
        wanted = [
            config
            for config in configs
            if (known := self._entries.get(config.topic_name)) is None
            or known.write_queue_nums < config.write_queue_nums
        ]
        if wanted:
            self._put_all(wanted).addErrback(reported)

    def keep_place(self) -> Deferred[None]:
        """Fires once the file has the place of the log as of which the table is; fails as `update`
        does."""
        return self._writer.write()

    def _take(self, table: TopicConfigTable) -> None:
        super()._take(table)
        self.as_of.place = table.log_place

    def mark_ordered(self, topics: Iterable[str]) -> None:
        """Marks the topics that the name servers' configuration calls ordered; a slave has its
        master's marks."""
        if self._role.copies_log:
            return
        changed = [
            msgspec.structs.replace(known, order=True)
            for known in map(self._entries.get, topics)
            if known is not None and not known.order
        ]
        if changed:
            self._put_all(changed).addErrback(reported)

    def _may_inherit(self, template: TopicConfig) -> bool:
        if (
            template.topic_name == names.AUTO_CREATE_TOPIC
            and not self._config.auto_create_topic_enable
        ):
            return False
        return is_inherited(template.perm)

    def _check_room(self, topic: str) -> None:
        if len(self._entries) >= MAX_AUTO_CREATED_TOPICS:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the topic {topic} is not made: with {len(self._entries)} topics none is made by"
                " its first use any more; delete topics that nobody needs (rmqadmin deleteTopic)",
            )

    def _put(self, config: TopicConfig) -> TopicConfig:
        self._put_all([config]).addErrback(reported)
        return config

    def _put_all(self, configs: Sequence[TopicConfig]) -> Deferred[None]:
        for config in configs:
            self._entries[config.topic_name] = config
        written = self._changed()
        self.changed.tell(configs, written)
        return written


def _built_in(config: BrokerConfig) -> Iterable[TopicConfig]:
    """Yields the topics that stock 5.3.3 has from its first start."""

    def topic(name: str, queues: int, perm: int = READ | WRITE) -> TopicConfig:
        return TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    cluster, broker = config.broker_cluster_name, config.broker_name
    inherit_all = INHERIT | READ | WRITE
    yield topic(names.SELF_TEST_TOPIC, 1)
    if config.auto_create_topic_enable:
        yield topic(names.AUTO_CREATE_TOPIC, config.default_topic_queue_nums, inherit_all)
    yield topic(names.BENCHMARK_TOPIC, 1024)
    yield topic(cluster, 16, inherit_all if config.cluster_topic_enable else INHERIT)
    yield topic(broker, 1, inherit_all if config.broker_topic_enable else INHERIT)
    yield topic(names.OFFSET_MOVED_TOPIC, 1)
    yield topic(names.SCHEDULE_TOPIC, SCHEDULE_QUEUES)
    if config.trace_topic_enable:
        yield topic(config.msg_trace_topic_name, 1)
    yield topic(names.reply_topic(cluster), 1)
    yield topic(names.revive_topic(cluster), config.revive_queue_num)
    yield topic(names.member_sync_topic(broker), 1, INHERIT)
    yield topic(names.HALF_TOPIC, 1)
    yield topic(names.OP_HALF_TOPIC, 1)
    yield topic(names.TIMER_TOPIC, 1)
