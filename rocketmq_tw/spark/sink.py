"""Writes rows to topics; a task is done when every message of it was acknowledged.

At least once: a task that fails in the middle is run again by Spark, and sends again.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from rocketmq_tw.client.errors import BrokerError, ClientError, NoRouteError, UnknownTopicError
from rocketmq_tw.client.message import Message, SendStatus
from rocketmq_tw.client.routes import queue_of_key
from rocketmq_tw.message.names import AUTO_CREATE_TOPIC
from rocketmq_tw.spark.errors import OptionError, SparkSourceError
from rocketmq_tw.spark.options import SinkOptions
from rocketmq_tw.spark.reading import is_passing, worker_client
from rocketmq_tw.spark.rows import BadRow, check_columns, is_kept_back, row_message
from rocketmq_tw.spark.waiting import Backoff
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import WRITE

log = logging.getLogger(__name__)

#: A request stays well under the broker's limit of 4 MiB.
_REQUEST_BYTES = 512 * 1024
#: What a message takes in a request besides its body and texts.
_MESSAGE_BYTES = 512
#: Larger bodies go alone, where the client compresses them.
_BATCHED_BODY = 4096

#: The least requests a second where there is a rate, and messages for them.
_REQUESTS_A_SECOND = 10

Lane = tuple[str, MessageQueue | None]


class WriteError(SparkSourceError):
    """A row that could not be sent; fails its task."""


@dataclass
class Written(WriterCommitMessage):
    """What a task sent; all messages were acknowledged."""

    messages: int


class _Writer:
    """The common part of batch and stream writers."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: write with mode append")
        check_columns(schema, options.topic)
        self._options = options
        check_target(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        sender = Sender(self._options)
        for batch in iterator:
            for row in batch.to_pylist(maps_as_pydicts="lossy"):
                sender.add(row)
        return Written(sender.finish())


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch: `df.write.format("rocketmq")`."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes a stream: `df.writeStream.format("rocketmq")`."""


class Sender:
    """Sends a task's rows in order, several in a request where they may go together."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._batch_size = options.batch_size
        if options.max_messages_per_second is not None:
            # A slow rate is kept by small requests, not by rare ones.
            share = int(options.max_messages_per_second / _REQUESTS_A_SECOND)
            self._batch_size = min(options.batch_size, max(1, share))
        self._client = worker_client(
            options.connection, options.group, options.timeout, options.retries
        )
        self._waiting: dict[Lane, list[Message]] = {}
        self._sizes: dict[Lane, int] = {}
        self._rows = 0
        self._sent = 0
        #: What brokers answered that stored messages not quite as they are configured to.
        self._told: set[tuple[str, SendStatus]] = set()
        #: With a rate, when the next request may go.
        self._due = 0.0

    def add(self, row: dict[str, Any]) -> None:
        """Takes one row; raises `WriteError` where it or an earlier one cannot be sent."""
        try:
            message = row_message(row, self._options.topic)
        except BadRow as error:
            raise WriteError(f"row {self._rows} of the task: {error}") from error
        self._rows += 1
        lane = (message.topic, self._queue(message))
        if is_kept_back(message) or len(message.body) >= _BATCHED_BODY:
            self._flush(lane)
            self._send(lane, [message])
            return
        held = self._waiting.setdefault(lane, [])
        held.append(message)
        self._sizes[lane] = self._sizes.get(lane, 0) + _size(message)
        if len(held) >= self._batch_size or self._sizes[lane] >= _REQUEST_BYTES:
            self._flush(lane)

    def finish(self) -> int:
        """Sends what waits; the number of messages, all acknowledged."""
        for lane in list(self._waiting):
            self._flush(lane)
        return self._sent

    def _flush(self, lane: Lane) -> None:
        self._sizes.pop(lane, None)
        held = self._waiting.pop(lane, [])
        if held:
            self._send(lane, held)

    def _send(self, lane: Lane, messages: list[Message]) -> None:
        self._keep_rate(len(messages))
        backoff = Backoff(self._options.broker_down_timeout)
        topic, queue = lane
        while True:
            try:
                if len(messages) == 1:
                    result = self._client.send(messages[0], queue=queue)
                else:
                    result = self._client.send_batch(messages, queue=queue)
                self._note(topic, result.status)
                self._sent += len(messages)
                return
            except (ClientError, RequestError, ValueError) as error:
                reason = str(error)
                again = isinstance(error, ClientError) and is_passing(error)
            if not again or not backoff.pause():
                raise WriteError(
                    f"{len(messages)} rows up to row {self._rows - 1} of the task, for the topic"
                    f" {topic}: {reason}"
                )
            self._client.forget_routes()

    def _note(self, topic: str, status: SendStatus) -> None:
        """Logs once what else than SEND_OK a broker answers. It has stored the messages, so sending
        them again would store them twice; stock's producers do not either."""
        if status is SendStatus.SEND_OK or (topic, status) in self._told:
            return
        self._told.add((topic, status))
        log.warning(
            "messages of %s are stored, but %s: they are on the master only, or not on its disk",
            topic,
            status.name,
        )

    def _queue(self, message: Message) -> MessageQueue | None:
        """Returns the queue that all messages of a sharding key go to."""
        if message.sharding_key is None:
            return None
        try:
            queues = self._client.write_queues(message.topic)
        except (NoRouteError, BrokerError) as error:
            raise WriteError(f"row {self._rows} of the task: {error}") from error
        return queue_of_key(queues, message.sharding_key)

    def _keep_rate(self, count: int) -> None:
        """Waits until `count` more messages are within the rate; time in which there was nothing
        to send, or the broker was slow, is not made up for."""
        rate = self._options.max_messages_per_second
        if rate is None:
            return
        delay = self._due - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        self._due = time.monotonic() + count / rate


def _size(message: Message) -> int:
    """Returns about how many bytes a message takes in a request; characters stand for bytes, which
    are four times as many at most."""
    keys = [message.keys] if isinstance(message.keys, str) else message.keys
    own = (message.tags or "", message.sharding_key or "")
    texts = (*message.properties, *message.properties.values(), *keys, *own)
    return _MESSAGE_BYTES + len(message.body) + sum(map(len, texts))


def check_target(options: SinkOptions) -> None:
    """Raises `OptionError` where the cluster or the option's topic cannot take messages."""
    with options.connection.client(options.group, options.timeout) as client:
        topic = options.topic or AUTO_CREATE_TOPIC
        try:
            route = client.route(topic)
        except UnknownTopicError as error:
            if options.topic is None:
                return
            try:
                client.route(AUTO_CREATE_TOPIC)
            except NoRouteError:
                raise OptionError(
                    f"{error}, and no broker makes topics by itself: create it first"
                ) from error
            return
        except NoRouteError as error:
            raise OptionError(f"{error}: check the option nameServers") from error
        if not any(data.perm & WRITE for data in route.queue_datas):
            raise OptionError(f"the topic {topic} has no queue to write: give it write permission")
