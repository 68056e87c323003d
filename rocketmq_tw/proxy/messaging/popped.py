"""The requests of consumers to brokers: messages are popped, acknowledged, hidden for another time,
made dead letters (200050, 200051, 200151, 200053, 36)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
from twisted.logger import Logger

from rocketmq_tw.message.extra_info import (
    ExtraInfo,
    PoppedOffsets,
    kind_of,
    parse_extra_info,
)
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import dlq_topic
from rocketmq_tw.message.properties import FIRST_POP_TIME, POP_CK, UNIQ_KEY, parse_properties
from rocketmq_tw.message.record import RecordError, decode_records
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.brokers import IBrokers, IProxyClient
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.checks import check_broker
from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle
from rocketmq_tw.proxy.messaging.statuses import StatusError, broker_code
from rocketmq_tw.proxy.proto.messages import Code
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import BodyError, RequestError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.pop import (
    ENDS_ATTEMPT_FLAG,
    REFUSES_MISSING_FLAG,
    UNDELIVERED_FLAG,
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketmq_tw.wire.headers.pull import UNIQUE_KEY_FLAG, QueryMessageRequestHeader
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader

#: Seconds that a broker gets to answer an acknowledgement or a change of the invisible time.
ACK_TIMEOUT_SECONDS = 3.0
#: Seconds that an answer to a pop may come late.
_LATE_SECONDS = 3.0
#: Messages that are looked at to find a dead letter.
_MOST_FOUND = 32
#: So much earlier than it was, in ms, the index of a broker may say that a message was stored.
_INDEX_MS = 1_000
#: Later than all times, in ms.
_ALWAYS = (1 << 63) - 1
#: Codes of brokers for what no pop of theirs gave.
_NOT_POPPED = frozenset(
    {ResponseCode.MESSAGE_ILLEGAL, ResponseCode.NO_MESSAGE, ResponseCode.TOPIC_NOT_EXIST}
)
#: How brokers, ours and stock's, begin a refusal where the log has nothing at an offset: they have
#: one code for this and for what is their own fault.
_NO_SUCH_RECORD = ("no message starts at the offset", "look message by offset failed")
#: Codes of brokers that have nothing to pop.
_NOTHING = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})
#: The delay level of a message that is delivered no more.
_NEVER = -1
#: The largest distance from the beginning of a check point that has a bit in a batch.
_MOST_BITS = 8192

_log = Logger()


@attrs.frozen
class PoppedMessage:
    """A message that was popped. `properties` are its own and the time of its first pop."""

    stored: StoredMessage
    properties: dict[str, str]
    handle: ReceiptHandle

    @property
    def message_id(self) -> str:
        """The unique id that its producer gave it; the offset id where it has none."""
        stored = self.stored
        return self.properties.get(UNIQ_KEY) or offset_message_id(
            *stored.store_host, stored.physical_offset
        )


class Poll:
    """A pop, which its broker holds for the header's poll time where there is nothing."""

    def __init__(
        self,
        brokers: IBrokers,
        times: BrokerTimes,
        broker_name: str,
        header: PopMessageRequestHeader,
        client: IProxyClient | None = None,
    ) -> None:
        self._brokers = brokers
        self._times = times
        self._broker_name = broker_name
        self._header = header
        self._client = client
        self._request = RemotingCommand.request(RequestCode.POP_MESSAGE, header)
        self._seconds = header.poll_time / 1000 + _LATE_SECONDS

    async def messages(self) -> list[PoppedMessage]:
        """Asks the broker, once; returns what that brings, nothing where there is nothing. Raises
        `StatusError` for what a broker refuses, and `RemotingError`."""
        header, asked_at = self._header, self._times.now
        answer = await self._brokers.ask(
            self._broker_name, self._request, self._seconds, self._client
        )
        if answer.code == ResponseCode.SUCCESS:
            popped = read_popped(answer, self._broker_name, is_orderly=bool(header.order))
        elif answer.code in _NOTHING:
            popped = []
        else:
            raise _refusal(answer, f"a pop of {header.topic}")
        if self._times.stood_still(asked_at):
            # The answer may have waited here for long: others may have its messages by now.
            return [each for each in popped if self._is_hidden(each.handle, asked_at)]
        # The answer to a pop that came too late to be held has no time.
        if popped:
            self._times.heard(self._broker_name, popped[0].handle.info.pop_time, asked_at)
        elif time_ms := answer.header(PopMessageResponseHeader).pop_time:
            self._times.heard(self._broker_name, time_ms, asked_at)
        return popped

    def _is_hidden(self, handle: ReceiptHandle, asked_at: float) -> bool:
        """Returns whether a message that was popped at `asked_at` or later is hidden still."""
        times = self._times
        if times.has_heard_of(self._broker_name):
            return times.left_ms(handle) > 0
        return handle.info.invisible_time > (times.now - asked_at) * 1000

    def withdraw(self) -> bool:
        """Has it be held no more, where that can be; returns whether it can. What was popped by
        then comes still."""
        return self._brokers.withdraw(self._request, self._client)


class PopClient:
    """Asks the brokers that have the messages."""

    def __init__(self, brokers: IBrokers, times: BrokerTimes) -> None:
        self._brokers = brokers
        self._times = times

    async def acknowledge(
        self, topic: str, group: str, handle: ReceiptHandle, client: IProxyClient | None = None
    ) -> None:
        """Says that one message is consumed; raises `StatusError` for what a broker refuses, and
        `RemotingError`."""
        info = handle.info
        header = AckMessageRequestHeader(
            consumer_group=group,
            topic=handle.topic(topic, group),
            queue_id=info.queue_id,
            extra_info=str(info),
            offset=info.offset,
            bname=info.broker_name,
        )
        # In order a broker of ours knows whether it comes to nothing.
        fields = {REFUSES_MISSING_FLAG: "true"} if info.is_orderly else {}
        await self._ask(info.broker_name, RequestCode.ACK_MESSAGE, header, client, fields=fields)

    async def acknowledge_all(
        self,
        topic: str,
        group: str,
        handles: Sequence[ReceiptHandle],
        client: IProxyClient | None = None,
    ) -> None:
        """Says with one request that messages of one broker are consumed; raises as `acknowledge`
        does where any of them is refused: then each has to be said alone. Stock's brokers pass over
        what the topic has not."""
        broker_name = handles[0].info.broker_name
        check_broker(self._brokers, broker_name)
        body = BatchAckMessageRequestBody(
            broker_name=broker_name, acks=list(_batches(topic, group, handles))
        )
        request = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, body=encode_body(body))
        request.ext_fields[REFUSES_MISSING_FLAG] = "true"
        answer = await self._brokers.ask(broker_name, request, ACK_TIMEOUT_SECONDS, client)
        if answer.code != ResponseCode.SUCCESS:
            raise _refusal(answer, f"acknowledgements of {topic}")

    async def bury(
        self,
        topic: str,
        group: str,
        handle: ReceiptHandle,
        message_id: str,
        client: IProxyClient | None = None,
    ) -> None:
        """Makes a message a dead letter of its group, then acknowledges it: where that fails it is
        delivered once more. Raises as `acknowledge` does where it is no
        dead letter."""
        await self.forward(topic, group, handle, message_id, client)
        try:
            await self.acknowledge(topic, group, handle, client)
        except (StatusError, RequestError, RemotingError) as error:
            _log.warn(
                "a dead letter of {group} is not acknowledged, and comes again: {error}",
                group=group,
                error=error,
            )

    async def forward(
        self,
        topic: str,
        group: str,
        handle: ReceiptHandle,
        message_id: str,
        client: IProxyClient | None = None,
        timeout: float = ACK_TIMEOUT_SECONDS,
    ) -> None:
        """Makes a message, which is to be acknowledged then, a dead letter of its group; raises as
        `acknowledge` does."""
        header = ConsumerSendMsgBackRequestHeader(
            offset=handle.log_offset,
            group=group,
            delay_level=_NEVER,
            origin_msg_id=message_id or None,
            origin_topic=handle.topic(topic, group),
            max_reconsume_times=0,
            bname=handle.info.broker_name,
        )
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        try:
            await self._ask(handle.info.broker_name, code, header, client, timeout)
        except StatusError as error:
            if error.message.startswith(_NO_SUCH_RECORD):
                raise StatusError(Code.INVALID_RECEIPT_HANDLE, error.message) from None
            raise

    async def is_dead_letter(
        self,
        group: str,
        handle: ReceiptHandle,
        message_id: str,
        client: IProxyClient | None = None,
    ) -> bool:
        """Returns whether its broker shows a message among the dead letters of its group that came
        there since it was popped; raises `BodyError` and `RemotingError`."""
        info = handle.info
        header = QueryMessageRequestHeader(
            topic=dlq_topic(group),
            key=message_id,
            max_num=_MOST_FOUND,
            begin_timestamp=info.pop_time - _INDEX_MS,
            end_timestamp=_ALWAYS,
            bname=info.broker_name,
        )
        request = RemotingCommand.request(RequestCode.QUERY_MESSAGE, header)
        request.ext_fields[UNIQUE_KEY_FLAG] = "true"
        answer = await self._brokers.ask(info.broker_name, request, ACK_TIMEOUT_SECONDS, client)
        if answer.code != ResponseCode.SUCCESS:
            return False
        found = _records(answer, info.broker_name)
        return any(stored.store_timestamp >= info.pop_time for stored in found)

    async def hide(
        self,
        topic: str,
        group: str,
        handle: ReceiptHandle,
        invisible_ms: int,
        client: IProxyClient | None = None,
        timeout: float = ACK_TIMEOUT_SECONDS,
        *,
        ends_attempt: bool = False,
        is_undelivered: bool = False,
    ) -> ReceiptHandle:
        """Hides a message for a time from now on, and returns its handle from now on; raises as
        `acknowledge` does. With `ends_attempt` the attempt that popped it, in an orderly group,
        does not pop it again at a broker of ours; it is refused where that has done so before. In
        such a group a broker of ours gives others at once what `is_undelivered`, and does not count
        the delivery."""
        info = handle.info
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=group,
            topic=handle.topic(topic, group),
            queue_id=info.queue_id,
            extra_info=str(info),
            offset=info.offset,
            invisible_time=invisible_ms,
            bname=info.broker_name,
        )
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        flags = {ENDS_ATTEMPT_FLAG: ends_attempt, UNDELIVERED_FLAG: is_undelivered}
        fields = {name: "true" for name, is_set in flags.items() if is_set}
        asked_at = self._times.now
        answer = await self._ask(info.broker_name, code, header, client, timeout, fields)
        found = answer.header(ChangeInvisibleTimeResponseHeader)
        if not found.pop_time:
            # Brokers answer so for orderly groups.
            raise StatusError(
                Code.INVALID_RECEIPT_HANDLE,
                "the message was acknowledged before, or is delivered again: leave it",
            )
        if not info.is_orderly and not self._times.stood_still(asked_at):
            # In order it is the time of the pop still.
            self._times.heard(info.broker_name, found.pop_time, asked_at)
        return ReceiptHandle(
            info._replace(
                start_offset=info.offset,
                pop_time=found.pop_time,
                invisible_time=found.invisible_time,
                revive_queue_id=found.revive_qid,
            ),
            handle.log_offset,
        )

    async def _ask(
        self,
        broker_name: str,
        code: RequestCode,
        header: Header,
        client: IProxyClient | None,
        timeout: float = ACK_TIMEOUT_SECONDS,
        fields: Mapping[str, str] = {},
    ) -> RemotingCommand:
        check_broker(self._brokers, broker_name)
        request = RemotingCommand.request(code, header)
        request.ext_fields.update(fields)
        answer = await self._brokers.ask(broker_name, request, timeout, client)
        if answer.code in _NOT_POPPED:
            raise StatusError(Code.INVALID_RECEIPT_HANDLE, answer.remark or "no such message")
        if answer.code != ResponseCode.SUCCESS:
            raise _refusal(answer, f"request {code}")
        return answer


def can_be_batched(handle: ReceiptHandle) -> bool:
    """Returns whether a message can be acknowledged with others: it lies close to the beginning of
    its check point."""
    return 0 <= handle.info.offset - handle.info.start_offset < _MOST_BITS


def _batches(topic: str, group: str, handles: Iterable[ReceiptHandle]) -> Iterable[BatchAck]:
    """Yields the messages of each check point."""
    points: dict[ExtraInfo, int] = {}
    for handle in handles:
        info = handle.info
        point = info._replace(offset=0)
        points[point] = points.get(point, 0) | 1 << info.offset - info.start_offset
    for point, bits in points.items():
        yield BatchAck(
            bits=bits.to_bytes((bits.bit_length() + 7) // 8, "little"),
            group=group,
            invisible_time=point.invisible_time,
            pop_time=point.pop_time,
            queue_id=point.queue_id,
            retry=point.kind,
            revive_queue_id=point.revive_queue_id,
            start_offset=point.start_offset,
            topic=topic,
        )


def read_popped(
    answer: RemotingCommand, broker_name: str, *, is_orderly: bool
) -> list[PoppedMessage]:
    """Returns the messages of a broker's answer to a pop; raises `BodyError` and `RequestError`
    where it is none."""
    header = answer.header(PopMessageResponseHeader)
    offsets = PoppedOffsets(header.start_offset_info, header.order_count_info)
    popped = []
    for stored in _records(answer, broker_name):
        properties = parse_properties(stored.properties)
        info = _noted(stored, header, properties.pop(POP_CK, None))
        if info is None:
            kind, place = kind_of(stored.topic), stored.queue_offset
            start = offsets.start(kind, stored.queue_id)
            info = ExtraInfo(
                place if start is None else start,
                header.pop_time,
                header.invisible_time,
                header.revive_qid,
                kind,
                broker_name,
                stored.queue_id,
                place,
            )
            if is_orderly:
                count = offsets.consumed(kind, stored.queue_id, place)
                stored.reconsume_times = count or stored.reconsume_times
        properties.setdefault(FIRST_POP_TIME, str(header.pop_time))
        popped.append(
            PoppedMessage(stored, properties, ReceiptHandle(info, stored.physical_offset))
        )
    return popped


def _records(answer: RemotingCommand, broker_name: str) -> list[StoredMessage]:
    try:
        return list(decode_records(answer.body))
    except RecordError as error:
        raise BodyError(f"{broker_name} answered with damaged records: {error}") from error


def _noted(
    stored: StoredMessage, header: PopMessageResponseHeader, text: str | None
) -> ExtraInfo | None:
    """Returns the extra info that a broker gave a message that it pops again, whose topic it may
    have changed; None where it gave none, and for one that a producer wrote."""
    if text is None:
        return None
    try:
        info = parse_extra_info(text)
    except RequestError:
        return None
    is_this = (info.pop_time, info.queue_id, info.offset) == (
        header.pop_time,
        stored.queue_id,
        stored.queue_offset,
    )
    return info if is_this else None


def _refusal(answer: RemotingCommand, asked: str) -> StatusError:
    return StatusError(
        broker_code(answer.code, answer.remark),
        answer.remark or f"the broker answered {answer.code} to {asked}",
    )
