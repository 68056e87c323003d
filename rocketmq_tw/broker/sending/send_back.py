"""Messages that consumers give back to be consumed again (request 36)."""

from __future__ import annotations

from collections.abc import Callable
from random import randrange

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Addresses
from rocketmq_tw.broker.sending.retries import Retries
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.remarks import broker_unwritable, topic_unwritable
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
from rocketmq_tw.message.room import fits
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.topics import TOPIC_UNIT_SUB
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from rocketmq_tw.wire.permissions import READ, WRITE, is_writable

log = Logger()


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
            # As stock stores it here (`consumerSendMsgBack`); -1 where the consumer sends it itself
            # (`retries.py`). Both mean that nothing delays it.
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
