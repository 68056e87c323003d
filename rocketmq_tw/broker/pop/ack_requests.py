"""Requests 200051, 200151 and 200053: a consumer is done with what it popped, or wants it hidden
for a longer or shorter time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.interfaces import Appended, IMessageStore
from rocketmq_tw.broker.pop.check_points import FOREVER_MS, ReviveMessages, new_check_point
from rocketmq_tw.broker.pop.checks import PopChecks
from rocketmq_tw.broker.pop.extra_info import (
    ORDER_REVIVE_QUEUE,
    ExtraInfo,
    parse_extra_info,
    topic_of_kind,
)
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.positions import PoppedQueue
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.writing.commit import STORED, Commit
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.base import decode_request
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAck, BatchAckMessageRequestBody, BatchAckMsg
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)

#: Check points of one batch, and distances of their messages that are looked at: a pop gives 32
#: messages, which lie further apart where a filter passed over others.
MOST_ACKS = 4096
MOST_BYTES = 64 * 1024


class AckRequests:
    """`released(queue)` is told of each queue that an orderly group may pop again, or later."""

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        checks: PopChecks,
        store: IMessageStore,
        commit: Commit,
        messages: ReviveMessages,
        offsets: OffsetTable,
        order: OrderBook,
        now_ms: Callable[[], int],
        released: Callable[[PoppedQueue], None],
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._checks = checks
        self._store = store
        self._commit = commit
        self._messages = messages
        self._offsets = offsets
        self._order = order
        self._now_ms = now_ms
        self._released = released

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.hide,
        }

    def ack(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answered once it is stored that the message is consumed."""
        header = request.header(AckMessageRequestHeader)
        # Stock takes an offset that is one behind the last.
        self._checks.is_popped(header.topic, header.queue_id, header.offset, last=1)
        info = parse_extra_info(header.extra_info)
        if info.is_orderly:
            queue = (header.topic, header.consumer_group, header.queue_id)
            self._ack_orderly(queue, header.offset, info.pop_time, peer)
            return request.response()
        message = self._messages.ack(_ack_of(header, info), self._revive_queue(info))
        return self._stored(request, [message])

    def ack_batch(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """All of several check points; what is no message is passed over, as in stock."""
        body = decode_request(BatchAckMessageRequestBody, request.body)
        if not body.acks:
            raise RequestError(ResponseCode.NO_MESSAGE, "the request names no message")
        if len(body.acks) > MOST_ACKS or sum(len(ack.bits) for ack in body.acks) > MOST_BYTES:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(body.acks)} check points at once: use several requests",
            )
        messages: list[StoredMessage] = []
        for ack in body.acks:
            message = self._ack_some(ack, body.broker_name, peer)
            if message is not None:
                messages.append(message)
        return self._stored(request, messages) if messages else request.response()

    def hide(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """A check point of its own takes over the message, then its former one is done with it: in
        the log they stand in this order, so that at no time neither has it."""
        header = request.header(ChangeInvisibleTimeRequestHeader)
        self._checks.is_popped(header.topic, header.queue_id, header.offset)
        info = parse_extra_info(header.extra_info)
        if info.is_orderly:
            return self._hide_orderly(request, header, info)
        most = self._most_invisible_ms()
        if header.invisible_time > most:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"{header.invisible_time} ms are too long, the message stays hidden as it was: ask"
                f" for an invisibleTime of at most {most} ms (timerMaxDelaySec)",
            )
        now = self._now_ms()
        if now == info.pop_time:
            # It would have the name of the former one, and be acknowledged with it.
            now += 1
        point = new_check_point(
            header.topic,
            header.consumer_group,
            header.queue_id,
            [header.offset],
            header.offset,
            now,
            header.invisible_time,
            info.broker_name,
        )
        revive_queue = self._revive_queue(info)
        return self._stored(
            request,
            [
                self._messages.check_point(point, revive_queue),
                self._messages.ack(_ack_of(header, info), revive_queue),
            ],
            ChangeInvisibleTimeResponseHeader(
                pop_time=now,
                invisible_time=header.invisible_time,
                revive_qid=info.revive_queue_id,
            ),
        )

    # Orderly

    def _ack_orderly(self, queue: PoppedQueue, offset: int, pop_time: int, peer: IPeer) -> None:
        topic, group, queue_id = queue
        if offset < self._offsets.query(group, topic, queue_id):
            return
        try:
            following = self._order.acknowledge(queue, offset, pop_time)
        except ValueError as error:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{group} did not pop message {offset} of {topic} {queue_id}: {error}",
            ) from None
        if following is not None:
            if not self._offsets.has_reset(group, topic, queue_id):
                self._offsets.commit(group, topic, queue_id, following, peer.address)
            self._released(queue)

    def _hide_orderly(
        self,
        request: RemotingCommand,
        header: ChangeInvisibleTimeRequestHeader,
        info: ExtraInfo,
    ) -> RemotingCommand:
        queue = (header.topic, header.consumer_group, header.queue_id)
        response = ChangeInvisibleTimeResponseHeader()
        if header.offset >= self._offsets.query(queue[1], queue[0], queue[2]):
            visible_at = min(self._now_ms() + header.invisible_time, FOREVER_MS)
            self._order.hide(queue, header.offset, info.pop_time, visible_at)
            self._released(queue)
            response = ChangeInvisibleTimeResponseHeader(
                pop_time=info.pop_time,
                invisible_time=visible_at - info.pop_time,
                revive_qid=info.revive_queue_id,
            )
        return request.response(header=response)

    # Check points

    def _most_invisible_ms(self) -> int:
        """What stock's timer takes, which brings a check point a second early."""
        return self._store_config.timer_max_delay_sec * 1000 + 1000

    def _ack_some(
        self, ack: BatchAck, broker_name: str | None, peer: IPeer
    ) -> StoredMessage | None:
        """The message that says it; None where there is nothing to store."""
        topic = topic_of_kind(ack.topic, ack.group, ack.retry)
        queue = (topic, ack.group, ack.queue_id)
        first = self._store.min_queue_offset(topic, ack.queue_id)
        end = self._store.max_queue_offset(topic, ack.queue_id)
        bits = int.from_bytes(ack.bits, "little")
        offsets = [
            ack.start_offset + distance
            for distance in range(bits.bit_length())
            if bits >> distance & 1 and first <= ack.start_offset + distance <= end
        ]
        if ack.revive_queue_id == ORDER_REVIVE_QUEUE:
            for offset in offsets:
                self._ack_orderly(queue, offset, ack.pop_time, peer)
            return None
        if not offsets:
            return None
        self._check_revive_queue(ack.revive_queue_id)
        stored = BatchAckMsg(
            ack_offset=-1,
            ack_offsets=offsets,
            broker_name=broker_name,
            group=ack.group,
            pop_time=ack.pop_time,
            queue_id=ack.queue_id,
            start_offset=ack.start_offset,
            topic=topic,
        )
        return self._messages.ack(stored, ack.revive_queue_id)

    def _revive_queue(self, info: ExtraInfo) -> int:
        self._check_revive_queue(info.revive_queue_id)
        return info.revive_queue_id

    def _check_revive_queue(self, queue_id: int) -> None:
        queues = self._config.revive_queue_num
        if not 0 <= queue_id < queues:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"there is no revive queue {queue_id}: the broker has {queues} (reviveQueueNum)",
            )

    def _stored(
        self,
        request: RemotingCommand,
        messages: Sequence[StoredMessage],
        header: ChangeInvisibleTimeResponseHeader | None = None,
    ) -> Deferred[RemotingCommand]:
        """The answer, once all of `messages` are stored."""
        answer: Deferred[RemotingCommand] = Deferred()
        left = len(messages)
        failure: ResponseCode | None = None

        def done(code: ResponseCode, appended: Appended) -> None:
            nonlocal left, failure
            left -= 1
            if code not in STORED:
                failure = code
            if left:
                return
            if failure is None:
                answer.callback(request.response(header=header))
            else:
                answer.callback(
                    request.response(
                        ResponseCode.SYSTEM_ERROR, f"it could not be stored: {failure.name}"
                    )
                )

        for message in messages:
            self._commit.append(message, done)
        return answer


def _ack_of(
    header: AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader, info: ExtraInfo
) -> AckMsg:
    return AckMsg(
        ack_offset=header.offset,
        broker_name=info.broker_name,
        group=header.consumer_group,
        pop_time=info.pop_time,
        queue_id=header.queue_id,
        start_offset=info.start_offset,
        topic=header.topic,
    )
