"""Request 36: a consumer gives back a message that it could not consume."""

from __future__ import annotations

from collections.abc import Callable
from random import randrange

import msgspec
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Addresses
from rocketmq_tw.broker.interfaces import Appended
from rocketmq_tw.broker.sending.retries import Retries
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.commit import SAFE, STORED
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import names
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties, parse_properties
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.topics import TOPIC_UNIT_SUB
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from rocketmq_tw.wire.permissions import READ, WRITE, is_writable

#: The first retry waits for this level, each further one for the next.
FIRST_RETRY_LEVEL = 3


class SendBackRequests:
    """Puts the message into the group's retry topic after a delay, or into its dead-letter queue.

    The answer waits as that to a send does: whoever gives a message back goes on behind it, and
    only what is stored here brings it back.
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
        self._commit = writing.commit
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
        header = request.header(ConsumerSendMsgBackRequestHeader)
        group = self._check(header)
        if group.retry_queue_nums <= 0:
            return request.response()
        target = self._retry_topic(header, group)
        message = self._store.message_at(header.offset)
        if message is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"no message starts at the offset {header.offset} of the log",
            )
        properties = self._marked(message)
        most = header.max_reconsume_times
        if most is None:
            most = group.retry_max_times
        level = header.delay_level
        again = msgspec.structs.replace(
            message,
            topic=target,
            queue_id=randrange(group.retry_queue_nums),
            store_host=self._addresses.store_host,
            reconsume_times=message.reconsume_times + 1,
        )
        if message.reconsume_times >= most or level < 0:
            self._retries.bury(again, header.group)
            target = again.topic
            properties[props.DELAY] = "0"
            again.properties = join_properties(properties)
        else:
            properties[props.DELAY] = str(level or FIRST_RETRY_LEVEL + message.reconsume_times)
            again.properties = join_properties(properties)
            self._redirects.route_by_property(again, properties)
        answer = self._append(request, again, properties[props.RETRY_TOPIC], header.group)
        return answer.addCallback(lambda response: self._announcements.hold(response, target))

    def _check(self, header: ConsumerSendMsgBackRequestHeader) -> SubscriptionGroupConfig:
        group = self._retries.group(header.group)
        if not is_writable(self._config.broker_permission):
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"the broker {self._config.broker_ip1} may not be written to",
            )
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
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"the topic {topic.topic_name} may not be written to"
            )
        return topic.topic_name

    @staticmethod
    def _marked(message: StoredMessage) -> dict[str, str]:
        """The properties with where the message comes from, kept over all its retries."""
        properties = parse_properties(message.properties)
        properties.setdefault(props.RETRY_TOPIC, message.topic)
        properties.setdefault(props.ORIGIN_MESSAGE_ID, _message_id(message))
        properties[props.WAIT] = "false"
        return properties

    def _append(
        self, request: RemotingCommand, message: StoredMessage, origin: str, group: str
    ) -> Deferred[RemotingCommand]:
        answer: Deferred[RemotingCommand] = Deferred()

        def done(code: ResponseCode, appended: Appended) -> None:
            if code in STORED:
                self._given_back(origin, group)
            if code in SAFE:
                answer.callback(request.response())
                return
            what = "is given back, but not safe yet" if code in STORED else "was not given back"
            answer.callback(
                request.response(ResponseCode.SYSTEM_ERROR, f"the message {what}: {code.name}")
            )

        self._commit.append(message, done)
        return answer


def _message_id(message: StoredMessage) -> str:
    return offset_message_id(*message.store_host, message.physical_offset)
