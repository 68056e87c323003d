"""Messages that are to be consumed again: given back by consumers (request 36), or sent to a retry
topic by them; what was tried too often goes to the dead-letter queue of its group.
"""

from __future__ import annotations

from collections.abc import Callable
from random import randrange

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Addresses
from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.remarks import broker_unwritable, topic_unwritable
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.writing.commit import SAFE, STORED
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Draft
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import names
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.message.room import fits, without_longest
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.topics import TOPIC_UNIT_SUB
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from rocketmq_tw.wire.permissions import READ, WRITE, is_writable

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
            draft.properties[props.DELAY] = "-1"
            self.bury(draft, name, room=_ADDED)


class SendBackRequests:
    """Puts the message into the group's retry topic after a delay, or into its dead-letter queue.

    The answer waits for disk and replicas as that to a send does: the consumer goes on behind the
    message, and only what is stored here brings it back.
    """

    def __init__(
        self,
        config: BrokerConfig,
        writing: Writing,
        tables: Tables,
        retries: Retries,
        addresses: Addresses,
        given_back: Callable[[str, str], None],
    ) -> None:
        """`given_back(topic, group)` is told of each message that is stored, with the topic where
        it came from."""
        self._config = config
        self._store = writing.store
        self._sink = writing.sink
        self._redirects = writing.redirects
        self._topics = tables.topics
        self._announcements = tables.announcements
        self._retries = retries
        self._addresses = addresses
        self._given_back = given_back

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: self.send_back}

    def send_back(
        self, request: RemotingCommand, peer: IPeer
    ) -> Deferred[RemotingCommand] | RemotingCommand:
        """Answers 36: stores a message again that a consumer could not handle, for a later try or
        in the group's dead letter queue."""
        header = request.header(ConsumerSendMsgBackRequestHeader)
        group = self._check(header)
        if group.retry_queue_nums <= 0:
            return request.response()
        target = self._retry_topic(header, group)
        message = message_at(self._store, header.offset)
        properties = marked(message)
        most = header.max_reconsume_times
        if most is None:
            most = group.retry_max_times
        again = msgspec.structs.replace(
            message,
            topic=target,
            queue_id=randrange(group.retry_queue_nums),
            store_host=self._addresses.store_host,
            reconsume_times=message.reconsume_times + 1,
        )
        draft = Draft(again, properties)
        is_dead = message.reconsume_times >= most or header.delay_level < 0
        if not is_dead:
            properties[props.DELAY] = str(level_of(message, header))
            self._redirects.route_by_property(draft)
            if not fits(properties):
                # Stored by a broker that leaves no room for this.
                is_dead, draft.properties = True, marked(message)
        if is_dead:
            draft.properties[props.DELAY] = "0"
            self._retries.bury(draft, header.group)
            target = again.topic
        draft.write_properties()

        def ended(result: PutResult) -> RemotingCommand | Deferred[RemotingCommand]:
            if result.is_stored:
                self._given_back(draft.properties[props.RETRY_TOPIC], header.group)
            return self._announcements.hold(answer_given_back(request, result.code), target)

        return self._sink.put(again, wait=True).addCallback(ended)

    def _check(self, header: ConsumerSendMsgBackRequestHeader) -> SubscriptionGroupConfig:
        group = self._retries.group(header.group)
        if not is_writable(self._config.broker_permission):
            raise RequestError(ResponseCode.NO_PERMISSION, broker_unwritable(self._config))
        return group

    def _retry_topic(
        self, header: ConsumerSendMsgBackRequestHeader, group: SubscriptionGroupConfig
    ) -> str:
        topic = self._topics.create_on_send_back(
            names.retry_topic(header.group),
            group.retry_queue_nums,
            READ | WRITE,
            TOPIC_UNIT_SUB if header.unit_mode else 0,
        )
        if not is_writable(topic.perm):
            raise RequestError(ResponseCode.NO_PERMISSION, topic_unwritable(topic.topic_name))
        return topic.topic_name


def message_at(store: IMessageStore, offset: int) -> StoredMessage:
    """Returns the message that is given back; raises `RequestError` where none starts there."""
    message = store.message_at(offset)
    if message is None:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"no message starts at the offset {offset} of the log"
        )
    return message


def marked(message: StoredMessage) -> dict[str, str]:
    """Returns the properties with where the message comes from, kept over all its retries."""
    properties = parse_properties(message.properties)
    properties.setdefault(props.RETRY_TOPIC, message.topic)
    properties.setdefault(props.ORIGIN_MESSAGE_ID, _message_id(message))
    properties[props.WAIT] = "false"
    return properties


def level_of(message: StoredMessage, header: ConsumerSendMsgBackRequestHeader) -> int:
    """Returns the delay level after which the message comes again."""
    return header.delay_level or props.FIRST_RETRY_LEVEL + message.reconsume_times


def answer_given_back(request: RemotingCommand, code: ResponseCode) -> RemotingCommand:
    """Returns the answer to 36 where the put of the message ended with `code`."""
    if code in SAFE:
        return request.response()
    what = "is given back, but not safe yet" if code in STORED else "was not given back"
    return request.response(ResponseCode.SYSTEM_ERROR, f"the message {what}: {code.name}")


def _message_id(message: StoredMessage) -> str:
    return offset_message_id(*message.store_host, message.physical_offset)
