"""Check points that stock's timer holds: those of a store that a broker of stock 5 wrote.

Stock keeps each check point and acknowledgement in the timer's topic until it is nearly due. Here
they go straight into the revive topic; so what the timer still held when stock stopped is taken
over once, in its order. How far that is stands among the consumer offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from twisted.logger import Logger

from rocketmq_tw.broker.interfaces import Appended, IMessageStore
from rocketmq_tw.broker.pop.check_points import REVIVE_GROUP
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.writing.commit import STORED, Commit
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import join_properties, parse_properties
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Messages of the timer's topic that are read at once, and their bytes.
BATCH_MESSAGES = 256
BATCH_BYTES = 1 << 20

log = Logger()


class TimedCheckPoints:
    """`delivered_ms` tells up to which time stock's timer has delivered; None: there was none."""

    def __init__(
        self,
        store: IMessageStore,
        commit: Commit,
        offsets: OffsetTable,
        revive_topic: str,
        revive_queues: int,
        now_ms: Callable[[], int],
        delivered_ms: Callable[[], int | None],
    ) -> None:
        self._store = store
        self._commit = commit
        self._offsets = offsets
        self._revive_topic = revive_topic
        self._revive_queues = revive_queues
        self._now_ms = now_ms
        self._delivered_ms = delivered_ms

    @property
    def is_behind(self) -> bool:
        """Whether the timer's topic has messages that were not looked at."""
        return self._next() < self._store.max_queue_offset(TIMER_TOPIC, 0)

    def take_over(self) -> Iterator[None]:
        """Appends what is not delivered to the revive topic; a step for some of it. Ends where
        nothing can be appended, and goes on there the next time."""
        store = self._store
        at = self._next()
        delivered = self._delivered_ms() or 0
        count = 0
        while at < store.max_queue_offset(TIMER_TOPIC, 0):
            read = store.read_queue(TIMER_TOPIC, 0, at, BATCH_MESSAGES, BATCH_BYTES)
            try:
                for message in decode_records(read.data):
                    due = self._due(message, delivered)
                    if due is not None:
                        self._commit.append(due, self._done)
                        count += 1
            except RequestError as error:
                log.error("check points of a timer are not taken over: {why}", why=error.remark)
                return
            if read.next_offset <= at:
                break
            at = read.next_offset
            self._offsets.commit(REVIVE_GROUP, TIMER_TOPIC, 0, at, "revive")
            if self.is_behind:
                yield
        if count:
            log.info("{count} check points and acknowledgements of a timer taken over", count=count)

    def pass_over(self) -> None:
        """What came since all was taken over is this broker's own: no check points, and the next
        start need not look at it."""
        end = self._store.max_queue_offset(TIMER_TOPIC, 0)
        if end > self._next():
            self._offsets.commit(REVIVE_GROUP, TIMER_TOPIC, 0, end, "revive")

    def _next(self) -> int:
        return max(
            self._offsets.query(REVIVE_GROUP, TIMER_TOPIC, 0),
            self._store.min_queue_offset(TIMER_TOPIC, 0),
        )

    def _due(self, message: StoredMessage, delivered: int) -> StoredMessage | None:
        """What the timer would put into the revive topic; None for any other message."""
        properties = parse_properties(message.properties)
        if properties.pop(props.REAL_TOPIC, None) != self._revive_topic:
            return None
        queue_id = _number(properties.pop(props.REAL_QID, ""))
        if not 0 <= queue_id < self._revive_queues:
            return None
        if _number(properties.pop(props.TIMER_OUT_MS, "")) < delivered:
            return None
        now = self._now_ms()
        properties[props.TIMER_DELIVER_MS] = str(now)
        return msgspec.structs.replace(
            message,
            topic=self._revive_topic,
            queue_id=queue_id,
            properties=join_properties(properties),
        )

    @staticmethod
    def _done(code: ResponseCode, appended: Appended) -> None:
        if code not in STORED:
            log.error("a check point of a timer is not taken over: {code}", code=code.name)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1
