"""Checks every message that a client sends, replies too."""

from __future__ import annotations

from collections.abc import Callable
from random import randrange

from rocketmq_tw.broker.tables.remarks import broker_unwritable
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message import names
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.room import MOST_SENT_PROPERTIES
from rocketmq_tw.net.cluster_peers import ClusterPeers, only_the_cluster
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.bodies.topics import TOPIC_UNIT, TOPIC_UNIT_SUB, TopicConfig
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import SendMessageRequestHeader
from rocketmq_tw.wire.permissions import READ, WRITE, is_writable

#: Bytes of bodies that may wait for their answer; more are refused until some are answered.
DEFAULT_IN_FLIGHT_LIMIT = 256 * 1024 * 1024


class SendChecks:
    """Checks in stock's order and refuses with its codes. `in_flight` counts the bytes of bodies
    that wait for their answer; the request that takes one adds and subtracts it. `brokers` are
    those that may be a broker of the cluster."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        topics: TopicTable,
        now_ms: Callable[[], int],
        brokers: ClusterPeers,
        *,
        in_flight_limit: int = DEFAULT_IN_FLIGHT_LIMIT,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._topics = topics
        self._now_ms = now_ms
        self._brokers = brokers
        self._revive_topic = names.revive_topic(config.broker_cluster_name)
        self.in_flight_limit = in_flight_limit
        self.in_flight = 0

    def check(self, header: SendMessageRequestHeader, body: bytes, peer: IPeer) -> TopicConfig:
        """Returns the topic to send to, made where that is allowed; raises `RequestError` for what
        stock refuses too."""
        config = self._config
        accepts_from = config.start_accept_send_request_time_stamp
        if accepts_from > 0 and self._now_ms() < accepts_from:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "the broker accepts no messages yet; send again later"
            )
        name = header.topic
        topic = self._topics.get(name)
        if topic is not None and topic.order and not is_writable(config.broker_permission):
            raise RequestError(ResponseCode.NO_PERMISSION, broker_unwritable(config))
        if name in names.NOT_FOR_CLIENTS:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"brokers use {name} themselves: send to another topic",
            )
        if name == self._revive_topic and not self._may_be_broker(peer):
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"a message for {name} {only_the_cluster(peer)}"
            )
        if topic is None:
            topic = self._create_topic(header, peer)
        queue_id = header.queue_id
        if queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{name} has no queue {header.queue_id}, only {topic.write_queue_nums} to write to",
            )
        size = len(body)
        text = header.properties
        if (
            not 0 < size <= self._store_config.max_message_size
            or (text is not None and len(text) > props.MAX_PROPERTIES_LENGTH)
            or self.in_flight + size > self.in_flight_limit
        ):
            raise self._refused_size(size, text or "")
        return topic

    def _may_be_broker(self, peer: IPeer) -> bool:
        """Returns whether a peer may be an acting master, which sends check points and
        acknowledgements as a producer; one of this process has this broker's own address."""
        return self._brokers.has(peer) or peer.address == peer.local_address

    def _create_topic(self, header: SendMessageRequestHeader, peer: IPeer) -> TopicConfig:
        name = header.topic
        names.check_topic(name, ResponseCode.INVALID_PARAMETER)
        is_retry = name.startswith(names.RETRY_PREFIX)
        sys_flag = 0
        if header.unit_mode:
            sys_flag = TOPIC_UNIT_SUB if is_retry else TOPIC_UNIT
        topic = self._topics.create_on_send(
            name, header.default_topic, peer.address, header.default_topic_queue_nums, sys_flag
        )
        if topic is None and is_retry:
            topic = self._topics.create_on_send_back(name, 1, READ | WRITE, sys_flag)
        return self._topics.known(name) if topic is None else topic

    def _refused_size(self, size: int, properties: str) -> RequestError:
        most = self._store_config.max_message_size
        if not 0 < size <= most:
            return RequestError(
                ResponseCode.MESSAGE_ILLEGAL, f"a body of {size} bytes: send 1 to {most} of them"
            )
        if len(properties) > props.MAX_PROPERTIES_LENGTH:
            return RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"properties of {len(properties)} characters:"
                f" send at most {props.MAX_PROPERTIES_LENGTH}",
            )
        return RequestError(
            ResponseCode.SYSTEM_BUSY,
            f"{self.in_flight} bytes wait to be stored: send again a little later",
        )


def any_queue(topic: TopicConfig) -> int:
    """Returns a queue of the broker's choice; raises `RequestError` where there is none to write
    to."""
    if topic.write_queue_nums <= 0:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"{topic.topic_name} has no queue to write to: give it some (rmqadmin updateTopic)",
        )
    return randrange(topic.write_queue_nums)


def check_room(message: StoredMessage, batch: Batch | None) -> None:
    """Raises `RequestError` (MESSAGE_ILLEGAL) where the properties of a message, or of one of a
    batch, leave no room for what brokers add when it is delayed, asked about or given back."""
    size = len(message.properties)
    if batch is not None:
        size += max(map(len, batch.properties), default=0)
    if size > MOST_SENT_PROPERTIES:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {size} bytes, with the broker's own, leave no room for what a retry"
            f" adds: send {size - MOST_SENT_PROPERTIES} bytes less of them",
        )
