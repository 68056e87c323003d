"""The way of plain sends: request 310 for a topic that exists, with a message that nothing makes
special, in the JSON that stock's clients write, or from a proxy in this process.

They are stored without a command for the request or its answer; their checks, messages, places and
counts are those of `send.py`. Whatever is not plain, or would be refused, is left as it came and
goes the general way.
"""

from __future__ import annotations

from rocketmq_tw.broker.sending.checks import SendChecks, check_room
from rocketmq_tw.broker.sending.send import SendRequests
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.commit import STORED, Done
from rocketmq_tw.broker.writing.incoming import RETURN_PREFIXES
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.memo import remembered
from rocketmq_tw.message.model import transaction_value
from rocketmq_tw.message.properties import (
    MSG_REGION,
    TRACE_ON,
    TRAN_MSG,
    UNIQ_KEY,
    parse_properties,
    waits_for_store,
)
from rocketmq_tw.message.types import check_message_type
from rocketmq_tw.net.interfaces import IFramePeer, IPeer
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, VERSION_5_3_3, SerializeType
from rocketmq_tw.wire.frame import Frame, encode_frame
from rocketmq_tw.wire.headers.send import JsonSend, SendMessageRequestHeader, read_json_send

_CODE = int(RequestCode.SEND_MESSAGE_V2)
_JSON = SerializeType.JSON
_SUCCESS = ResponseCode.SUCCESS
_HALF = TRAN_MSG.encode()
_json = msgspec.json.Encoder().encode


class PlainSends:
    """Takes the plain sends of a master: from clients (`FrameHandler`), and from a proxy in this
    process."""

    def __init__(
        self,
        config: BrokerConfig,
        sends: SendRequests,
        checks: SendChecks,
        writing: Writing,
        tables: Tables,
        stats: Stats,
    ) -> None:
        """`sends`: the general way."""
        self._config = config
        self._sends = sends
        self._checks = checks
        self._stats = stats
        self._commit = writing.commit
        self._mappings = tables.mappings
        self._topics = tables.topics
        self._announcements = tables.announcements

    def take(self, frame: Frame, peer: IFramePeer) -> bool:
        """See `FrameHandler`."""
        if _HALF in frame.header or not peer.accepts(frame, _CODE):
            # Of all that is special these come often; they are not read in vain.
            return False
        since = self._stats.seconds()
        body = frame.body
        try:
            request: JsonSend = read_json_send(frame.header)
            opaque, header = request.opaque, request.fields
            text = header.properties
            if (
                request.code != _CODE
                or request.flag & RESPONSE_FLAG
                or frame.serialization != _JSON
                or peer.has_open(opaque)
                or not _is_utf8(frame.header)
                or text is None
                or not self._may_be_plain(header)
            ):
                return False
            properties = parse_properties(text)
            unique_id = properties.get(UNIQ_KEY)
            if unique_id is None:
                return False
        except Exception:
            # The general way meets it again and says what it is.
            return False
        oneway, queue_id = bool(request.flag & ONEWAY_FLAG), header.queue_id

        def done(code: ResponseCode, appended: Appended) -> None:
            if code is _SUCCESS:
                answer = b"" if oneway else self._answer(opaque, queue_id, unique_id, appended)
                peer.reply_encoded(opaque, answer)
                return
            response = self._sends.response(code, appended, queue_id, unique_id)
            response.opaque = opaque
            response.flag |= request.flag & ONEWAY_FLAG
            peer.reply(response)

        if not self._store(header, text, properties, body, peer, done, since):
            return False
        peer.opened(_CODE, opaque, len(body), oneway=oneway)
        return True

    @property
    def answers_in_turn(self) -> bool:
        """Whether what is stored now is answered when this turn of the reactor ends."""
        return self._commit.answers_in_turn

    def store(
        self,
        header: SendMessageRequestHeader,
        properties: dict[str, str],
        body: bytes,
        peer: IPeer,
        done: Done,
    ) -> bool:
        """Stores a message of this process where it is a plain one. `properties`, which are kept,
        say what the text in the header says, `UNIQ_KEY` among them. Returns False where it goes the
        general way; else `done` is called later with how it ended."""
        since, text = self._stats.seconds(), header.properties
        if text is None or not self._may_be_plain(header):
            return False
        return self._store(header, text, properties, body, peer, done, since)

    def _may_be_plain(self, header: SendMessageRequestHeader) -> bool:
        """Returns whether nothing but its properties can make a message special."""
        name = header.topic
        return not (
            header.batch
            or transaction_value(header.sys_flag)
            or header.queue_id < 0
            or self._topics.get(name) is None
            or name in self._mappings
            or name.startswith(RETURN_PREFIXES)
            or self._announcements.under_way(name) is not None
        )

    def _store(
        self,
        header: SendMessageRequestHeader,
        text: str,
        properties: dict[str, str],
        body: bytes,
        peer: IPeer,
        done: Done,
        since: float,
    ) -> bool:
        """Stores what `_may_be_plain`. `text` is the header's, `properties` what it says; `since`
        is what the clock of latencies told when it came."""
        name = header.topic
        try:
            if not self._sends.is_plain(name, properties):
                return False
            topic = self._checks.check(header, body, peer)
            if self._config.enable_topic_message_type_check:
                check_message_type(topic, properties)
            message = self._sends.message(header, topic, body, peer)
            type_ = self._sends.write_as_it_came(message, text, properties)
            check_room(message, None)
        except Exception:
            # The general way meets it again and says what it is.
            return False
        queue_id, size = header.queue_id, len(body)

        def ended(code: ResponseCode, appended: Appended) -> None:
            self._checks.in_flight -= size
            try:
                if code in STORED:
                    self._sends.count(name, type_, queue_id, since, appended)
            finally:
                # Whoever sent it waits, whatever becomes of the figures.
                done(code, appended)

        wait = waits_for_store(properties)
        if not self._commit.append_if_accepted(message, ended, wait=wait):
            return False
        self._checks.in_flight += size
        return True

    def _answer(self, opaque: int, queue_id: int, unique_id: str, appended: Appended) -> bytes:
        """Returns what `encode_command` makes of `SendRequests.response` for a message that is
        stored as promised."""
        if not (unique_id.isascii() and unique_id.isalnum()):
            unique_id = _json(unique_id)[1:-1].decode()
        header = (
            f'{{"code":0,"extFields":{{"msgId":"{appended.message_ids}",'
            f'"queueId":"{queue_id}","queueOffset":"{appended.queue_offset}",'
            f'"transactionId":"{unique_id}",{_own(self._config.region_id, self._config.trace_on)}'
            f'"flag":{RESPONSE_FLAG},"language":"PYTHON","opaque":{opaque},'
            f'"serializeTypeCurrentRPC":"JSON","version":{VERSION_5_3_3}}}'
        )
        return encode_frame(_JSON, header.encode())


def _is_utf8(header: bytes) -> bool:
    """Returns True for a header that is all UTF-8, since fields that nobody knows are passed over
    unread; raises `UnicodeDecodeError` for another one."""
    return header.isascii() or bool(header.decode())


@remembered(16)
def _own(region: str, trace_on: bool) -> str:
    """Returns the fields that each answer has of the broker, and the end of the fields."""
    own = {MSG_REGION: region, TRACE_ON: "true" if trace_on else "false"}
    return _json(own)[1:].decode() + ","
