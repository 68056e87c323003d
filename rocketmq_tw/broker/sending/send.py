"""Requests 10, 310 and 320: a producer sends one message or a batch.

The header is read (docs/formats/remoting.md), topic and sizes are checked (`checks.py`), and one
`StoredMessage` is made with its parsed properties beside it (docs/formats/message.md). A plain one
goes to the commit as it is; a batch, or one with a property or a topic that makes it special, goes
through the table of redirects first (`writing/redirects.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rocketmq_tw.broker.assembly.host import Addresses
from rocketmq_tw.broker.sending.checks import (
    SendChecks,
    any_queue,
    check_room,
)
from rocketmq_tw.broker.sending.message_sizes import MessageSizes
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.topics.announcements import Reply
from rocketmq_tw.broker.tables.topics.queue_mappings import LogicQueue
from rocketmq_tw.broker.writing.commit import STORED
from rocketmq_tw.broker.writing.incoming import RETURN_PREFIXES, TopicAndType
from rocketmq_tw.broker.writing.own_properties import (
    answered_properties,
    joined_own_properties,
    own_properties,
)
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Draft
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.memo import remembered
from rocketmq_tw.message import names
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.batch import Batch, decode_batch
from rocketmq_tw.message.ids import RecallHandle
from rocketmq_tw.message.logic_queues import logic_offset_if_known
from rocketmq_tw.message.model import MULTI_TAGS, StoredMessage, transaction_value
from rocketmq_tw.message.properties import parse_properties, rejoin_properties
from rocketmq_tw.message.types import (
    FIFO_TYPE,
    NORMAL_TYPE,
    check_message_type,
    message_type,
)
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import SendMessageRequestHeader, read_send_header

_SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
#: Messages of one batch, which are stored in one go; their ids are in one answer.
MAX_BATCHED = 32_768

#: What senders are told beside a code that is not SUCCESS.
REMARKS = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "stored, but not on stable storage within syncFlushTimeout",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "stored, but not on enough replicas within slaveTimeout",
    ResponseCode.SLAVE_NOT_AVAILABLE: "stored, but too few replicas keep up with the master",
    ResponseCode.SYSTEM_ERROR: "the broker could not store the message; its log says why",
}

_born_host = remembered(4096)(split_address)


#: Properties of a producer that the broker writes itself, or leaves out.
_REWRITTEN = frozenset({props.POP_CK, props.MSG_REGION, props.TRACE_ON, props.CLUSTER})


class _Sent(msgspec.Struct, gc=False):
    """A send on its way into the log, and what its answer needs; `message` is as it is stored."""

    request: RemotingCommand
    reply: Reply
    message: StoredMessage
    #: The queue that the answer names; what waits for a time stands in another one.
    queue_id: int
    #: What the clock of latencies told when it came.
    since: float
    unique_id: str | None = None
    recall_handle: str | None = None
    #: What its messages count as in figures; None: as nothing.
    type: str | None = None
    messages: int = 1


class SendRequests:
    """Answers requests 10, 310 and 320 once the message is stored as the configuration promises."""

    def __init__(
        self,
        config: BrokerConfig,
        checks: SendChecks,
        writing: Writing,
        tables: Tables,
        addresses: Addresses,
        next_unique_id: Callable[[], str],
        sizes: MessageSizes | None,
        stats: Stats,
    ) -> None:
        """`sizes` measures each message, where that is wanted."""
        self._config = config
        self._checks = checks
        self._mappings = tables.mappings
        self._commit = writing.commit
        self._redirects = writing.redirects
        self._incoming = writing.incoming
        self._announcements = tables.announcements
        self._addresses = addresses
        self._next_unique_id = next_unique_id
        self._sizes = sizes
        self._stats = stats

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, request: RemotingCommand, peer: IPeer) -> None:
        """Answers later through the peer; raises `RequestError` where the message is refused."""
        since = self._stats.seconds()
        header = read_send_header(request.code, request.ext_fields)
        logic_queue = None
        if header.topic in self._mappings and header.lo is not False:
            logic_queue = self._mappings.queue(header.topic, header.queue_id, any_led=True)
            header.queue_id = logic_queue.leader.queue_id
        topic = self._checks.check(header, request.body, peer)
        if header.queue_id < 0:
            header.queue_id = any_queue(topic)
        message = self.message(header, topic, request.body, peer)
        text = header.properties or ""
        properties = parse_properties(text)
        if self._config.enable_topic_message_type_check:
            check_message_type(topic, properties)
        sent = _Sent(request, peer.reply, message, header.queue_id, since)
        sent.unique_id = properties.get(props.UNIQ_KEY)
        batch = None
        is_batch = header.batch or request.code == _SEND_BATCH
        if sent.unique_id is not None and not is_batch and self.is_plain(message.topic, properties):
            sent.type = self.write_as_it_came(message, text, properties)
            target = message.topic
        else:
            draft = Draft(message, properties, header.max_reconsume_times, bool(is_batch))
            target = self._route(draft)
            if is_batch:
                batch = _batch_of(draft)
                sent.messages = len(batch.bodies)
            else:
                sent.unique_id = properties[props.UNIQ_KEY]
                sent.recall_handle = self._recall_handle(draft)
        if target.startswith(RETURN_PREFIXES):
            # It was consumed before: it does not come in, and may use the room that was left.
            sent.type = None
        else:
            check_room(message, batch)
            sent.type = sent.type or message_type(properties)
        sent.reply = self._announcements.replying(peer.reply, target)
        if logic_queue is not None:
            sent.reply = _in_logic_queue(sent.reply, logic_queue)
        wait = props.waits_for_store(properties)
        self._commit.append(message, partial(self._answer, sent), batch=batch, wait=wait)
        self._checks.in_flight += len(request.body)

    def message(
        self, header: SendMessageRequestHeader, topic: TopicConfig, body: bytes, peer: IPeer
    ) -> StoredMessage:
        """Returns the message without its properties."""
        sys_flag = header.sys_flag
        if topic.topic_filter_type == "MULTI_TAG":
            sys_flag |= MULTI_TAGS
        return StoredMessage(
            topic=header.topic,
            queue_id=header.queue_id,
            body=body,
            flag=header.flag,
            sys_flag=sys_flag,
            born_timestamp=header.born_timestamp,
            born_host=_born_host(peer.address),
            store_host=self._addresses.store_host,
            reconsume_times=header.reconsume_times or 0,
        )

    def is_plain(self, topic: str, properties: dict[str, str]) -> bool:
        """Returns whether no redirect asks for the message and none of its properties is the
        broker's to write: then they are stored as they came, with the broker's own behind them."""
        redirects = self._redirects
        return (
            _REWRITTEN.isdisjoint(properties)
            and redirects.properties.isdisjoint(properties)
            and not topic.startswith(redirects.prefixes)
        )

    def write_as_it_came(
        self, message: StoredMessage, text: str, properties: dict[str, str]
    ) -> str:
        """Writes the properties of a plain message, `text` or parsed `properties`, with the
        broker's own behind them; returns the message's type."""
        message.properties = rejoin_properties(text, properties) + joined_own_properties(
            self._config
        )
        if text.isascii():
            # Then what is parsed says the same as what is stored.
            message.parsed = properties
        # Without what makes it special there are two types that it may have.
        return FIFO_TYPE if props.SHARDING_KEY in properties else NORMAL_TYPE

    def _route(self, draft: Draft) -> str:
        """Sends a message through the redirects and writes its properties, with the broker's own
        among them; returns the topic that it is for, whatever it waits in."""
        properties = draft.properties
        self._redirects.route_by_topic(draft)
        target = draft.message.topic
        properties.pop(props.POP_CK, None)
        if draft.is_batch:
            # The batch's own id must not hide those that its messages have.
            properties.pop(props.UNIQ_KEY, None)
        elif props.UNIQ_KEY not in properties:
            properties[props.UNIQ_KEY] = self._next_unique_id()
        properties.update(own_properties(self._config))
        self._redirects.route_by_property(draft)
        draft.write_properties()
        if draft.message.properties.isascii():
            draft.message.parsed = properties
        return target

    def _recall_handle(self, draft: Draft) -> str | None:
        """Returns the handle by which a message that waits for a time of its own can be recalled;
        None for every other one, and for what is sent to the timer's topic itself."""
        if draft.message.topic != names.TIMER_TOPIC:
            return None
        properties = draft.properties
        topic = properties.get(props.REAL_TOPIC, names.RETRY_PREFIX)
        out = props.number(properties.get(props.TIMER_OUT_MS))
        if topic.startswith(names.RETRY_PREFIX) or out is None:
            return None
        # A time that asks for the very slot: its start would ask for the one before.
        time_ms = out + 1
        broker, unique_id = self._config.broker_name, properties[props.UNIQ_KEY]
        return RecallHandle(topic, broker, str(time_ms), unique_id).encode()

    def _answer(self, sent: _Sent, code: ResponseCode, appended: Appended) -> None:
        """Tells the sender how its append ended; the commit calls it."""
        request = sent.request
        self._checks.in_flight -= len(request.body)
        if code in STORED:
            # Where it is stored, which a redirect may have changed.
            topic = sent.message.topic
            self.count(topic, sent.type, sent.queue_id, sent.since, appended, sent.messages)
        if request.flag & ONEWAY_FLAG:
            sent.reply(request.response(code))
            return
        response = self.response(code, appended, sent.queue_id, sent.unique_id)
        if sent.recall_handle is not None and code in STORED:
            response.ext_fields["recallHandle"] = sent.recall_handle
        response.opaque, response.serialization = request.opaque, request.serialization
        sent.reply(response)

    def count(
        self,
        topic: str,
        type_: str | None,
        queue_id: int,
        since: float,
        appended: Appended,
        messages: int = 1,
    ) -> None:
        """Counts what a send stored; `since` is what the clock of latencies told when it came."""
        self._stats.stored(topic, queue_id, since)
        if type_ is not None:
            self._incoming.count(topic, type_, messages, appended)
            if self._sizes is not None:
                self._sizes.record(TopicAndType(topic, type_), messages, appended)

    def response(
        self, code: ResponseCode, appended: Appended, queue_id: int, unique_id: str | None
    ) -> RemotingCommand:
        """Returns the answer to a send that is not oneway, but for its opaque."""
        fields: dict[str, str] = {}
        if code in STORED:
            # What `header_to_fields` makes of a SendMessageResponseHeader, without the way there.
            fields = {
                "msgId": appended.message_ids,
                "queueId": str(queue_id),
                "queueOffset": str(appended.queue_offset),
            }
            if unique_id is not None:
                fields["transactionId"] = unique_id
        fields |= answered_properties(self._config)
        return RemotingCommand(code, fields, flag=RESPONSE_FLAG, remark=REMARKS.get(code))


def _batch_of(draft: Draft) -> Batch:
    """Returns the messages of a batch, with the draft's properties behind their own; raises
    `RequestError` (MESSAGE_ILLEGAL) where the body is no batch, or one that may not be."""
    if transaction_value(draft.message.sys_flag):
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            "a batch may not be part of a transaction: send single messages",
        )
    try:
        batch = decode_batch(draft.message.body, MAX_BATCHED)
    except ValueError as error:
        raise RequestError(ResponseCode.MESSAGE_ILLEGAL, f"no batch: {error}") from error
    batch.properties = _separated(batch.properties)
    batch.common = draft.message.properties
    return batch


def _in_logic_queue(reply: Reply, queue: LogicQueue) -> Reply:
    """Returns how an answer leaves that says where in its logic queue a message is."""

    def rewrite(response: RemotingCommand) -> None:
        fields = response.ext_fields
        if "queueOffset" in fields:
            fields["queueId"] = str(queue.id)
            offset = logic_offset_if_known(queue.leader, int(fields["queueOffset"]))
            fields["queueOffset"] = str(offset)
        reply(response)

    return rewrite


def _separated(own: Sequence[bytes]) -> Sequence[bytes]:
    """Returns the properties of batched messages with the last separator, which 4.9's leave out."""
    ends = {each[-1:] for each in own}
    if ends <= {b"", b"\x02"}:
        return own
    return [each if each[-1:] in (b"", b"\x02") else each + b"\x02" for each in own]
