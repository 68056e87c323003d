"""Where a message goes that was consumed too often: into its group's dead-letter queue."""

from __future__ import annotations

from collections.abc import Callable
from random import randrange

from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.message import names
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import READ, WRITE

DEAD_LETTER_QUEUES = 1


class Retries:
    """`consumes_orderly(group)`: members of the group hold locks on queues."""

    def __init__(
        self, topics: TopicTable, groups: GroupTable, consumes_orderly: Callable[[str], bool]
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._consumes_orderly = consumes_orderly

    def group(self, name: str) -> SubscriptionGroupConfig:
        """The group's configuration; raises `RequestError` where the broker has no such group."""
        group = self._groups.get(name)
        if group is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"{name} is no consumer group of this broker: create it (rmqadmin updateSubGroup)",
            )
        return group

    def bury(self, message: StoredMessage, group: str) -> None:
        """Sends `message` to the group's dead-letter queue, which is made where it is missing."""
        message.topic = names.dlq_topic(group)
        message.queue_id = randrange(DEAD_LETTER_QUEUES)
        self._topics.create_on_send_back(message.topic, DEAD_LETTER_QUEUES, READ | WRITE)

    def redirect(
        self, message: StoredMessage, properties: dict[str, str], retry_limit: int | None
    ) -> None:
        """A redirect (`Redirects`) for messages that consumers send to their retry topic by
        themselves: one that was tried too often goes to the dead-letter queue."""
        name = names.retry_group(message.topic)
        group = self.group(name)
        most = group.retry_max_times if retry_limit is None else retry_limit
        if message.reconsume_times > most or self._consumes_orderly(name):
            properties[props.DELAY] = "-1"
            self.bury(message, name)
