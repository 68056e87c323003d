"""The way of plain sends: request 310 for a topic that exists, with a message that nothing makes
special, in the JSON that stock's clients write.

They go from frame to answer without a command for either; their checks, messages, places and counts
are those of `send.py`. Whatever is not plain, or would be refused, is left as it came and goes the
general way.
"""

from __future__ import annotations

from rocketmq_tw.broker.sending.checks import SendChecks, check_room
from rocketmq_tw.broker.sending.send import SendRequests
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.commit import STORED
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
from rocketmq_tw.net.interfaces import IFramePeer
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import ONEWAY_FLAG, RESPONSE_FLAG, VERSION_5_3_3, SerializeType
from rocketmq_tw.wire.frame import Frame, encode_frame
from rocketmq_tw.wire.headers.send import JsonSend, read_json_send

_CODE = int(RequestCode.SEND_MESSAGE_V2)
_JSON = SerializeType.JSON
_SUCCESS = ResponseCode.SUCCESS
_HALF = TRAN_MSG.encode()
_json = msgspec.json.Encoder().encode


class PlainSends:
    """Takes the plain sends of a master (`FrameHandler`), for as long as it is one."""

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
        self._append = writing.commit.append_if_accepted
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
            name, text = header.topic, header.properties
            if (
                request.code != _CODE
                or request.flag & RESPONSE_FLAG
                or frame.serialization != _JSON
                or peer.has_open(opaque)
                or not _is_utf8(frame.header)
                or text is None
                or header.batch
                or transaction_value(header.sys_flag)
                or header.queue_id < 0
                or self._topics.get(name) is None
                or name in self._mappings
                or name.startswith(RETURN_PREFIXES)
                or self._announcements.under_way(name) is not None
            ):
                return False
            properties = parse_properties(text)
            unique_id = properties.get(UNIQ_KEY)
            if unique_id is None or not self._sends.is_plain(name, properties):
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
        oneway, queue_id, size = bool(request.flag & ONEWAY_FLAG), header.queue_id, len(body)

        def done(code: ResponseCode, appended: Appended) -> None:
            self._checks.in_flight -= size
            if code in STORED:
                self._sends.count(name, type_, queue_id, since, appended)
            if code is _SUCCESS:
                answer = b"" if oneway else self._answer(opaque, queue_id, unique_id, appended)
                peer.reply_encoded(opaque, answer)
                return
            response = self._sends.response(code, appended, queue_id, unique_id)
            response.opaque = opaque
            response.flag |= request.flag & ONEWAY_FLAG
            peer.reply(response)

        if not self._append(message, done, wait=waits_for_store(properties)):
            return False
        self._checks.in_flight += size
        peer.opened(_CODE, opaque, size, oneway=oneway)
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
