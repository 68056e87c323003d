"""Checks which topics, queues and messages a group may pop, peek at and acknowledge."""

from __future__ import annotations

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.offsets.requests import check_written
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.remarks import broker_unreadable, group_disabled, topic_unreadable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import MAX_GROUP_LENGTH, RETRY_PREFIX
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import is_readable

#: Bytes of a topic's name that a directory of the store can have.
_LONGEST_TOPIC = len(RETRY_PREFIX) + MAX_GROUP_LENGTH


def not_popped(role: Role) -> str:
    """Returns the remark for requests to a broker in a role from which nothing can be popped."""
    return f"a broker that is {role.words} stores no check points: pop from the master"


class PopChecks:
    """Refuses requests: raises `RequestError` with stock's codes."""

    def __init__(
        self, config: BrokerConfig, role: RoleHolder, tables: Tables, store: IMessageStore
    ) -> None:
        self._config = config
        self._role = role
        self._topics = tables.topics
        self._groups = tables.groups
        self._store = store

    def may_pop(self, topic: str, group: str, queue_id: int) -> TopicConfig:
        """Checks that the group may pop this queue of a topic, or all where the id is negative;
        returns the topic."""
        # Requests that were held come again when the role is over.
        if not self._role.delivers:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, not_popped(self._role.role))
        if not is_readable(self._config.broker_permission):
            raise RequestError(ResponseCode.NO_PERMISSION, broker_unreadable(self._config))
        found = self._topics.known(topic)
        if not is_readable(found.perm):
            raise RequestError(ResponseCode.NO_PERMISSION, topic_unreadable(topic))
        if queue_id >= found.read_queue_nums:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{topic} has no queue {queue_id}: it has {found.read_queue_nums} to read from",
            )
        if len(RETRY_PREFIX) + len(group) + 1 + len(topic) > _LONGEST_TOPIC:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"the names of the topic {topic} and the group {group} are too long for a retry"
                f" topic: use {_LONGEST_TOPIC - len(RETRY_PREFIX) - 1} characters for both",
            )
        if not self._groups.known(group).consume_enable:
            raise RequestError(ResponseCode.NO_PERMISSION, group_disabled(group))
        return found

    def may_go_on_in_order(self) -> None:
        """Checks that an orderly group may pop and acknowledge: it has no check points, so that its
        offset alone keeps what it has consumed."""
        check_written(self._store)

    def may_hide(self, invisible_ms: int) -> None:
        """Checks that a message may be hidden for so long: it stays in the log meanwhile, and so
        does all that was stored after it."""
        most = self._config.max_invisible_time_mills
        if invisible_ms > most:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"an invisibleTime of {invisible_ms} ms is too long: ask for at most {most} ms, or"
                " raise maxInvisibleTimeMills of the broker",
            )

    def is_popped(self, topic: str, queue_id: int, offset: int, *, last: int = 0) -> range:
        """Checks that there is such a message, as far as its queue tells; `last` is how far behind
        the queue's end an offset may be. Returns the offsets of which that is true."""
        found = self._topics.known(topic)
        if not 0 <= queue_id < found.read_queue_nums:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{topic} has no queue {queue_id}: it has {found.read_queue_nums} to read from",
            )
        first = self._store.min_queue_offset(topic, queue_id)
        end = self._store.max_queue_offset(topic, queue_id)
        offsets = range(first, end + last)
        if offset not in offsets:
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                f"queue {queue_id} of {topic} has no message {offset}: it has offsets from {first}"
                f" up to {end}",
            )
        return offsets
