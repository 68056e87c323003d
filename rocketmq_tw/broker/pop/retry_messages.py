"""Messages of retry topics: popped messages that were not acknowledged in time become such
(docs/formats/pop.md, "Revival")."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.pop.check_points import new_check_point
from rocketmq_tw.broker.pop.remote_messages import RemoteMessages, Unreachable
from rocketmq_tw.broker.pop.revive_queues import LATER_SECONDS
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.sink import IMessageSink, PutResult
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import RETRY_PREFIX, pop_retry_topic, popped_topic
from rocketmq_tw.message.properties import join_properties, number, parse_properties
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.multi_dispatch import offset_in
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.pop import PopCheckPoint
from rocketmq_tw.wire.permissions import READ, WRITE

_RETRY_QUEUES = 1

log = Logger()


class RetryMessages:
    """Makes messages of retry topics and puts them there. `store_host` tells the broker's own
    address."""

    def __init__(
        self,
        config: BrokerConfig,
        store: IMessageStore,
        tables: Tables,
        sink: IMessageSink,
        store_host: Callable[[], tuple[str, int]],
        remote: RemoteMessages,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._sink = sink
        self._store_host = store_host
        self._remote = remote

    def missing(self, point: PopCheckPoint, place: Callable[[], int]) -> str | None:
        """Returns which of the topic and the group of a check point does not exist, for a line in
        the log; None where both do. A group is made that a former master made and did not tell of,
        as `place` tells, which is the check point's in the log."""
        topic, group = point.topic or "", point.group or ""
        popped = popped_topic(topic, group)
        if self._topics.get(popped) is None:
            return f"topic {popped}"
        if group in self._groups or self._groups.make_uncopied(group, place()):
            return None
        return f"group {group}"

    def make(self, point: PopCheckPoint, offset: int) -> StoredMessage | None:
        """Returns the message at a queue offset of `point`, for the retry topic, which is made
        where it is missing; None where the message is not in the log any more. Raises
        `RequestError` where it would be one topic too many."""
        topic = point.topic or ""
        read = self._store.read_queue(topic, point.queue_id, offset, 1, 0)
        message = decode_record(read.data) if read.data else None
        if message is not None and offset_in(topic, message) != offset:
            message = None
        return self._retried(point, offset, message)

    async def fetch(self, point: PopCheckPoint, offset: int) -> StoredMessage | None:
        """Does as `make` does with a message of another broker; raises `Unreachable` too, where
        that broker does not give it now, or where nobody would look for it here."""
        message = await self._remote.fetch(point, offset)
        topic, group = point.topic or "", point.group or ""
        if message is not None:
            popped = popped_topic(topic, group)
            if self._topics.get(popped) is None:
                raise Unreachable(
                    f"this broker has no topic {popped}: create it here, or start a master of"
                    f" {point.broker_name}"
                )
            if self._groups.get(group) is None:
                raise Unreachable(f"this broker has no group {group}: create it here")
        return self._retried(point, offset, message)

    def _retried(
        self, point: PopCheckPoint, offset: int, message: StoredMessage | None
    ) -> StoredMessage | None:
        topic, group = point.topic or "", point.group or ""
        if message is None:
            log.warn(
                "message {offset} of {topic} {queue}, which {group} popped, is gone: not revived",
                offset=offset,
                topic=topic,
                queue=point.queue_id,
                group=group,
            )
            return None
        if not topic.startswith(RETRY_PREFIX):
            topic = pop_retry_topic(topic, group, 2 if self._config.enable_retry_topic_v2 else 1)
        self._prepare(topic, group)
        properties = parse_properties(message.properties)
        if message.reconsume_times == 0 or props.FIRST_POP_TIME not in properties:
            properties[props.FIRST_POP_TIME] = str(point.pop_time)
        joined = join_properties(properties)
        if len(joined) > props.MAX_PROPERTIES_LENGTH:
            # Without that time rather than never again.
            joined = message.properties
        return msgspec.structs.replace(
            message,
            topic=topic,
            queue_id=0,
            properties=joined,
            born_host=self._store_host(),
            store_host=self._store_host(),
            reconsume_times=message.reconsume_times + 1,
            prepared_transaction_offset=0,
        )

    def put(self, message: StoredMessage) -> Deferred[PutResult]:
        """Stores a message that `make` made; returns what `IMessageSink.put` returns."""
        return self._sink.put(message, wait=True)

    def later(self, point: PopCheckPoint, offset: int) -> PopCheckPoint:
        """Returns a check point of the message at a queue offset of `point`, which is due at a
        later time."""
        last = len(LATER_SECONDS) - 1
        times = number(point.re_put_times or "0")
        times = last if times is None else max(0, min(times, last))
        again = new_check_point(
            point.topic or "",
            point.group or "",
            point.queue_id,
            [offset],
            offset,
            point.pop_time,
            point.invisible_time + LATER_SECONDS[times] * 1000,
            point.broker_name or self._config.broker_name,
        )
        again.re_put_times = str(times + 1)
        return again

    def _prepare(self, topic: str, group: str) -> None:
        """Makes the retry topic, and an offset so that the group begins with its first message."""
        if self._topics.get(topic) is None:
            self._topics.create_on_send_back(topic, _RETRY_QUEUES, READ | WRITE)
            if self._offsets.query(group, topic, 0) < 0:
                self._offsets.commit(group, topic, 0, 0, "revive")
