"""The delay levels, and how a message is turned into one that waits and back.

A level has its own queue of the schedule topic, whose messages become due in their order.

Rules: stock's `ScheduleMessageService` and its key `messageDelayLevel`.
"""

from __future__ import annotations

from rocketmq_tw.broker.writing.redirects import Draft
from rocketmq_tw.config.values import delay_levels_ms
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_PROPERTIES,
    number,
    parse_properties,
)
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError


class DelayLevels:
    """The delays of the levels 1 .. `max_level` in milliseconds."""

    def __init__(self, text: str) -> None:
        """Parses `messageDelayLevel`, such as `1s 5s 10s 1m 2h 1d`; raises `ValueError`."""
        self._delays = delay_levels_ms(text)

    @property
    def max_level(self) -> int:
        """The highest level; the lowest is 1."""
        return len(self._delays)

    def delay_ms(self, level: int) -> int:
        """Returns the delay of a level in ms; a level beyond the last has the last one's."""
        return self._delays[min(level, self.max_level) - 1]

    def in_use(self, store: IMessageStore) -> list[int]:
        """Returns the levels there are, and those for which the store has messages from when there
        were more."""
        left = {queue_id + 1 for queue_id in store.queue_ids(SCHEDULE_TOPIC)}
        return sorted(left.union(range(1, self.max_level + 1)))

    def waited_at(self, level: int, store: IMessageStore) -> int:
        """Returns the level at which a message waited that says that it was `level`."""
        is_left = store.max_queue_offset(SCHEDULE_TOPIC, queue_of(level)) > 0
        return level if is_left else min(level, self.max_level)

    def redirect(self, draft: Draft) -> bool:
        """Moves a message that asks for a level into that level's queue and returns True; see
        `Redirects`. A level beyond the last is the last. Topic and queue move into properties.
        Raises `RequestError` (MESSAGE_ILLEGAL) for a batch."""
        level = draft.delay_level
        if level <= 0:
            return False
        if draft.is_batch:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, "a batch may not be delayed: send single messages"
            )
        message, properties = draft.message, draft.properties
        for name in TIMER_PROPERTIES:
            properties.pop(name, None)
        level = min(level, self.max_level)
        properties[DELAY] = str(level)
        properties[REAL_TOPIC] = message.topic
        properties[REAL_QID] = str(message.queue_id)
        message.topic = SCHEDULE_TOPIC
        message.queue_id = queue_of(level)
        return True


def queue_of(level: int) -> int:
    """Returns the queue of the schedule topic where messages of a level wait."""
    return level - 1


def due_message(waiting: StoredMessage) -> StoredMessage | None:
    """Returns the message that `waiting` becomes at its time; None where it names no topic and
    queue. Its properties stay, as consumers of stock see them."""
    properties = parse_properties(waiting.properties)
    topic, queue_id = properties.get(REAL_TOPIC), number(properties.get(REAL_QID))
    if topic is None or queue_id is None or queue_id < 0:
        return None
    return msgspec.structs.replace(waiting, topic=topic, queue_id=queue_id)


def delivered_level(head: RecordHead) -> int | None:
    """Returns the level at which a message says that it waited; None where it says none."""
    if b"REAL_TOPIC" not in head.properties or head.topic == SCHEDULE_TOPIC:
        return None
    properties = parse_properties(head.properties)
    level = number(properties.get(DELAY))
    if level is None or level <= 0:
        return None
    is_its_own = properties.get(REAL_TOPIC) == head.topic and properties.get(REAL_QID) == str(
        head.queue_id
    )
    return level if is_its_own else None
