"""The retry topics and dead-letter queues of groups: a message that was tried too often goes to the
latter, whether a consumer gives it back or sends it to the retry topic by itself.

Stock's `SendMessageProcessor.handleRetryAndDLQ`.
"""

from __future__ import annotations

from collections.abc import Callable
from random import randrange

from twisted.logger import Logger

from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.writing.redirects import Draft
from rocketmq_tw.message import names
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.room import fits, without_longest
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import READ, WRITE

DEAD_LETTER_QUEUES = 1
#: Bytes for what a send writes behind the properties of a client that gives a message back itself.
_ADDED = 512

log = Logger()


class Retries:
    """Retry topics and dead-letter queues of groups. `consumes_orderly(group)` says whether members
    of a group hold locks on queues; `buried(topic, group)` is told of each message that goes to a
    dead-letter queue, with the topic where it came from."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        consumes_orderly: Callable[[str], bool],
        buried: Callable[[str, str], None],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._consumes_orderly = consumes_orderly
        self._buried = buried

    def group(self, name: str) -> SubscriptionGroupConfig:
        """Returns the group's configuration; raises `RequestError` where the broker has no such
        group."""
        return self._groups.known(name)

    def bury(self, draft: Draft, group: str, *, room: int = 0) -> None:
        """Sends a message to the group's dead-letter queue, which is made where it is missing;
        without its longest properties where these find no place in a record with `room`."""
        message = draft.message
        draft.properties, gone = without_longest(draft.properties, room=room)
        if gone:
            log.warn(
                "a message of {topic} goes to the dead-letter queue of {group} without its"
                " {count} properties {names}: a record has no room for them",
                topic=draft.properties.get(props.RETRY_TOPIC),
                group=group,
                count=len(gone),
                names=[name[:100] for name in gone[:10]],
            )
        self._buried(draft.properties.get(props.RETRY_TOPIC, message.topic), group)
        message.topic = names.dlq_topic(group)
        message.queue_id = randrange(DEAD_LETTER_QUEUES)
        self._topics.create_on_send_back(message.topic, DEAD_LETTER_QUEUES, READ | WRITE)

    def redirect(self, draft: Draft) -> None:
        """A redirect (`Redirects`) for messages that consumers send to their retry topic by
        themselves: one that was tried too often goes to the dead-letter queue. Raises
        `RequestError` for a batch, and where the group is not there."""
        message = draft.message
        if draft.is_batch:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch may not go to the retry topic {message.topic}",
            )
        name = names.retry_group(message.topic)
        group = self.group(name)
        most = group.retry_max_times if draft.retry_limit is None else draft.retry_limit
        if (
            message.reconsume_times > most
            or self._consumes_orderly(name)
            or not fits(draft.properties, room=_ADDED)
        ):
            # As stock stores it here (`handleRetryAndDLQ`): it sets 0 too, but then puts these
            # properties in their place. A message that is given back has 0 (`send_back.py`).
            draft.properties[props.DELAY] = "-1"
            self.bury(draft, name, room=_ADDED)
