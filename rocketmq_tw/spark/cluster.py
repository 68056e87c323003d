"""Asks the cluster for planning: which queues there are and which offsets they have."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.blocking_connection import ConnectionFailed
from rocketmq_tw.client.errors import BrokerError, NoRouteError, UnknownTopicError
from rocketmq_tw.message.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from rocketmq_tw.spark.errors import OptionError
from rocketmq_tw.spark.options import SQL92, SourceOptions
from rocketmq_tw.wire.bodies.queues import MessageQueue

T = TypeVar("T")

#: How a broker can fail to answer.
UNREACHABLE = (ConnectionFailed, NoRouteError)


class Bounds(NamedTuple):
    """The oldest offset of a queue, and the offset that its next message gets."""

    earliest: int
    latest: int


class SourceCluster:
    """Asks brokers and name servers what the driver needs for a read: queues, their bounds,
    offsets.

    A broker that could not be reached is asked again only after a `refresh`: until then each
    question about one of its queues fails at once, as one that hangs would take a timeout for each.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._subscription = options.subscription
        self._client: BlockingClient = options.connection.client(
            options.group, options.pull_timeout
        )
        #: Why brokers, by name, could not be reached since the last refresh.
        self._silent: dict[str, ConnectionFailed] = {}

    def __enter__(self) -> "SourceCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def refresh(self) -> None:
        """Has the next question ask for routes anew: new queues and brokers are seen at once, and
        brokers that could not be reached are tried again."""
        self._client.forget_routes()
        self._silent.clear()

    def queues(self) -> list[MessageQueue]:
        """Returns the queues of all topics asked for; raises as `queues_of` does."""
        return [queue for topic in self.topics() for queue in self.queues_of(topic)]

    def topics(self) -> Sequence[str]:
        """Returns the topics asked for; raises `OptionError` where no name server answers."""
        if self._subscription.pattern is None:
            return self._subscription.topics
        return self._matching(self._subscription.pattern)

    def queues_of(self, topic: str) -> list[MessageQueue]:
        """Returns the queues of a topic; raises `OptionError` where it does not exist or no name
        server answers."""
        try:
            queues = self._client.queues(topic)
        except UnknownTopicError as error:
            raise OptionError(
                f"{error}: check the option topic, or create it before the query starts"
            ) from error
        except NoRouteError as error:
            raise OptionError(f"{error}: check the option nameServers") from error
        if not queues:
            raise OptionError(f"the topic {topic} has no queue to read: give it read permission")
        return queues

    def bounds(self, queue: MessageQueue) -> Bounds:
        return Bounds(self.earliest(queue), self.latest(queue))

    def earliest(self, queue: MessageQueue) -> int:
        return self._ask(self._client.min_offset, queue)

    def latest(self, queue: MessageQueue) -> int:
        return self._ask(self._client.max_offset, queue)

    def first_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Returns the first offset stored at or after a time; the latest where none was."""
        bounds = self.bounds(queue)
        if bounds.earliest >= bounds.latest:
            return bounds.latest
        offset = self._client.search_offset(queue, timestamp_ms)
        # 4.9.7 answers with the last message before a time that lies between two of them, and
        # with the last of all for a time after it.
        while offset < bounds.latest:
            pulled = self._client.pull(queue, offset, 1)
            if pulled.messages and pulled.messages[0].store_timestamp >= timestamp_ms:
                return offset
            offset = max(offset + 1, pulled.next_offset)
        return bounds.latest

    def committed(self, queue: MessageQueue) -> int | None:
        return self._ask(self._client.committed_offset, queue)

    def commit(self, queue: MessageQueue, offset: int) -> None:
        self._ask(self._client.commit_offset, queue, offset)

    def check_expression(self, queue: MessageQueue) -> None:
        """Raises `OptionError` where the broker does not take the expression."""
        subscription = self._subscription
        if subscription.expression_type != SQL92:
            return
        try:
            self._client.pull_bytes(
                queue,
                self._client.min_offset(queue),
                1,
                expression=subscription.expression,
                expression_type=subscription.expression_type,
            )
        except BrokerError as error:
            raise OptionError(
                f"the broker does not take the SQL92 expression {subscription.expression!r}"
                f" ({error}): correct it, or set enablePropertyFilter=true at the broker"
            ) from error

    def _ask(self, question: Callable[..., T], queue: MessageQueue, *args: Any) -> T:
        broker = self._client.serving_broker(queue)
        silent = self._silent.get(broker)
        if silent is not None:
            raise ConnectionFailed(silent.address, f"{broker} did not answer a moment ago")
        try:
            return question(queue, *args)
        except ConnectionFailed as error:
            self._silent[broker] = error
            raise

    def _matching(self, pattern: str) -> list[str]:
        try:
            topics = self._client.topics()
        except NoRouteError as error:
            raise OptionError(f"{error}: check the option nameServers") from error
        matches = re.compile(pattern).fullmatch
        return sorted(
            topic
            for topic in topics
            if matches(topic) and (self._subscription.include_system or not is_system(topic))
        )


def is_system(topic: str) -> bool:
    """Returns whether a topic is the brokers' or a group's own."""
    return (
        topic in SYSTEM_TOPICS
        or topic.startswith((RETRY_PREFIX, DLQ_PREFIX, SYSTEM_TOPIC_PREFIX, "RMQ_SYS_"))
        or topic.endswith("_REPLY_TOPIC")
    )
