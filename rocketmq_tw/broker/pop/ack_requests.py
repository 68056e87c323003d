"""Requests 200051, 200151 and 200053: a consumer is done with what it popped, or wants it hidden
for a longer or shorter time (docs/formats/pop.md)."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.pop.check_points import (
    FOREVER_MS,
    PoppedQueue,
    ReviveLog,
    all_stored,
    is_revive_queue,
    new_check_point,
)
from rocketmq_tw.broker.pop.checks import PopChecks
from rocketmq_tw.broker.pop.gathered_acks import NO_OFFSETS, GatheredAcks
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.revive_part import Reviving
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.message.extra_info import (
    ORDER_REVIVE_QUEUE,
    ExtraInfo,
    parse_extra_info,
    topic_of_kind,
)
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.turns import turns_of
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.base import decode_request
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAck, BatchAckMessageRequestBody, BatchAckMsg
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pop import (
    ENDS_ATTEMPT_FLAG,
    REFUSES_MISSING_FLAG,
    UNDELIVERED_FLAG,
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)

#: Check points of one batch, and bytes of bits that name their messages: a pop gives 32 messages,
#: which lie far apart where a filter passed over others.
MOST_ACKS = 4096
#: Values in such a body: a check point has nine, and each stands in braces.
_MOST_VALUES = 12 * MOST_ACKS
MOST_BYTES = 64 * 1024
#: Messages of one check point that a batch may name; a check point has at most 127.
MOST_OF_ONE = 256
#: Check points that are dealt with in one go.
FEW_ACKS = 100
#: A message that is hidden several times in a millisecond takes times to come for names, up to so
#: many ms.
_NAMES_MS = 1_000
#: For so many ms a message is hidden still that no consumer got: the time of a pop is its name, so
#: that the next one has to have another.
_UNDELIVERED_MS = 1

#: The distances that each byte of a BitSet names, from the first of its eight.
_DISTANCES = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


class OrderlyAcks:
    """Acknowledges messages of orderly groups, which have no check points, and hides them."""

    def __init__(self, offsets: OffsetTable, order: OrderBook) -> None:
        self._offsets = offsets
        self._order = order

    def acknowledge(
        self,
        queue: PoppedQueue,
        offset: int,
        pop_time: int,
        start: int,
        client: str,
        *,
        refuses_void: bool = False,
    ) -> None:
        """Notes that a message is consumed, and commits the group's offset in the name of `client`,
        an address; raises `RequestError` where the group did not pop it, with `refuses_void` also
        where it was popped again since, so that it comes once more. `start`: where its pop began.

        Where it is not known what was popped, of which a kill or a change of the master is the
        reason, only the message at the group's offset moves it on: those in front of another one
        may not be acknowledged, and would never come again."""
        topic, group, queue_id = queue
        committed = self._offsets.query(group, topic, queue_id)
        if offset < committed:
            return
        try:
            if queue in self._order:
                following = self._order.acknowledge(queue, offset, pop_time, committed)
            else:
                # The group's offset may not have been copied either.
                begin = committed if committed >= 0 else min(max(start, 0), offset)
                following = offset + 1 if offset == begin else begin
        except ValueError as error:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"{group} did not pop message {offset} of {topic} {queue_id}: {error}",
            ) from None
        if following is None and refuses_void:
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                f"message {offset} of {topic} {queue_id} is delivered again to {group} since",
            )
        if following is None or following == committed:
            return
        if not self._offsets.has_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, following, client)

    def hide(
        self,
        queue: PoppedQueue,
        offset: int,
        pop_time: int,
        visible_at: int,
        *,
        ends_attempt: bool = False,
        is_undelivered: bool = False,
    ) -> bool:
        """Hides a message until `visible_at`, in ms; False where it was acknowledged before, or is
        delivered again. With `ends_attempt` its attempt does not pop it again. One that
        `is_undelivered` counts as if it had not been popped."""
        topic, group, queue_id = queue
        if offset < self._offsets.query(group, topic, queue_id):
            return False
        if ends_attempt and not self._order.end_attempt(queue, pop_time):
            return False
        if is_undelivered:
            self._order.note_undelivered(queue, offset, pop_time)
        return self._order.hide(queue, offset, pop_time, visible_at)


class AckRequests:
    """Answers acknowledgements once they are stored."""

    def __init__(
        self,
        host: Host,
        checks: PopChecks,
        store: IMessageStore,
        revive_log: ReviveLog,
        orderly: OrderlyAcks,
        reviving: Reviving,
    ) -> None:
        self._config = host.config
        self._store_config = host.store_config
        self._now_ms = host.now_ms
        self._in_slices = host.in_slices
        self._checks = checks
        self._store = store
        self._revive_log = revive_log
        self._gathered = GatheredAcks(revive_log, turns_of(host.reactor))
        self._orderly = orderly
        self._reviving = reviving

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.hide,
        }

    def ack(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand | None:
        """Answers 200051: one message is consumed; None where it is answered later."""
        if self._gathered.put_alike(request, peer):
            return None
        header = request.header(AckMessageRequestHeader)
        # Stock takes an offset that is one behind the last.
        offsets = self._checks.is_popped(header.topic, header.queue_id, header.offset, last=1)
        info = parse_extra_info(header.extra_info)
        if info.is_orderly:
            self._checks.may_go_on_in_order()
            queue = (header.topic, header.consumer_group, header.queue_id)
            self._orderly.acknowledge(
                queue,
                header.offset,
                info.pop_time,
                info.start_offset,
                peer.address,
                refuses_void=_refuses_void(request),
            )
            return request.response()
        revive_queue, ack = self._revive_queue(info), _ack_of(header, info)
        # Of a check point that waits all may be acknowledged: nobody looks who else popped them.
        waits = self._check_popper(ack, revive_queue)
        self._gathered.put(ack, revive_queue, request, peer, offsets if waits else NO_OFFSETS)
        return None

    def ack_batch(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 200151: messages of several check points are consumed; those that no queue has
        are passed over, as in stock, unless the request is to be refused then."""
        body = decode_request(BatchAckMessageRequestBody, request.body, max_values=_MOST_VALUES)
        if not body.acks:
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                "the request names no message: list check points in its acks",
            )
        if len(body.acks) > MOST_ACKS or sum(len(ack.bits) for ack in body.acks) > MOST_BYTES:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(body.acks)} check points at once: use several requests",
            )
        for ack in body.acks:
            named = int.from_bytes(ack.bits, "little").bit_count()
            if named > MOST_OF_ONE:
                raise RequestError(
                    ResponseCode.INVALID_PARAMETER,
                    f"{named} messages of one check point: name at most {MOST_OF_ONE}",
                )
        acks: list[tuple[BatchAckMsg, int]] = []
        refuses = _refuses_void(request)
        taken = self._in_slices(self._take_batch(body, peer, acks, refuses_void=refuses))
        return taken.addCallback(lambda _: self._put_acks(acks)).addCallback(
            lambda _: request.response()
        )

    def _take_batch(
        self,
        body: BatchAckMessageRequestBody,
        peer: IPeer,
        acks: list[tuple[BatchAckMsg, int]],
        *,
        refuses_void: bool,
    ) -> Iterator[None]:
        """Adds to `acks` what is to be stored, with its revive queue; `FEW_ACKS` in a step. Raises
        `RequestError` for a check point that may not be acknowledged so."""
        for number, batch in enumerate(body.acks, start=1):
            if refuses_void:
                self._check_there(batch)
            ack = self._ack_of_batch(batch, body.broker_name, peer, refuses_void=refuses_void)
            if ack is not None:
                self._check_popper(ack, batch.revive_queue_id)
                acks.append((ack, batch.revive_queue_id))
            if number % FEW_ACKS == 0:
                yield

    @inlineCallbacks
    def _put_acks(self, acks: Sequence[tuple[BatchAckMsg, int]]) -> Generator[Any, Any, None]:
        """Fires once all are stored; each `FEW_ACKS` of them behind the former ones."""
        for start in range(0, len(acks), FEW_ACKS):
            few = acks[start : start + FEW_ACKS]
            yield all_stored(self._revive_log.put_ack(ack, queue) for ack, queue in few)

    def hide(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 200053: the message is visible again at another time. A check point of its own
        takes the place of its former one."""
        header = request.header(ChangeInvisibleTimeRequestHeader)
        self._checks.is_popped(header.topic, header.queue_id, header.offset)
        self._checks.may_hide(header.invisible_time)
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
        revive_queue, ack = self._revive_queue(info), _ack_of(header, info)
        known = self._reviving.when_known(revive_queue, ack)
        if known is None:
            return self._hide(request, header, ack, revive_queue)
        return known.addCallback(lambda _: self._hide(request, header, ack, revive_queue))

    def _hide(
        self,
        request: RemotingCommand,
        header: ChangeInvisibleTimeRequestHeader,
        ack: AckMsg,
        revive_queue: int,
    ) -> Deferred[RemotingCommand]:
        """Stores the new check point; `ack` is the acknowledgement of the former one."""
        self._check_popper(ack, revive_queue)
        if self._gathered.has(ack, revive_queue) or self._reviving.is_done(revive_queue, ack):
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                f"{header.consumer_group} has no message {header.offset} of {header.topic}"
                f" {header.queue_id} to hide: it was acknowledged, or is delivered again",
            )
        now = self._now_ms()
        if now <= ack.pop_time < now + _NAMES_MS:
            # The new one would have the name of a former one, and be acknowledged with it.
            now = ack.pop_time + 1
        point = new_check_point(
            header.topic,
            header.consumer_group,
            header.queue_id,
            [header.offset],
            header.offset,
            now,
            header.invisible_time,
            ack.broker_name or "",
        )
        response = ChangeInvisibleTimeResponseHeader(
            pop_time=now, invisible_time=header.invisible_time, revive_qid=revive_queue
        )
        stored = self._revive_log.replace(ack, point, revive_queue)
        return stored.addCallback(lambda _: request.response(header=response))

    def _hide_orderly(
        self,
        request: RemotingCommand,
        header: ChangeInvisibleTimeRequestHeader,
        info: ExtraInfo,
    ) -> RemotingCommand:
        queue = (header.topic, header.consumer_group, header.queue_id)
        response = ChangeInvisibleTimeResponseHeader()
        fields = request.ext_fields
        is_undelivered = fields.get(UNDELIVERED_FLAG) == "true"
        invisible_ms = _UNDELIVERED_MS if is_undelivered else header.invisible_time
        visible_at = min(self._now_ms() + invisible_ms, FOREVER_MS)
        if self._orderly.hide(
            queue,
            header.offset,
            info.pop_time,
            visible_at,
            ends_attempt=fields.get(ENDS_ATTEMPT_FLAG) == "true",
            is_undelivered=is_undelivered,
        ):
            response = ChangeInvisibleTimeResponseHeader(
                pop_time=info.pop_time,
                invisible_time=visible_at - info.pop_time,
                revive_qid=info.revive_queue_id,
            )
        return request.response(header=response)

    def _most_invisible_ms(self) -> int:
        """Returns the longest invisible time in ms: what stock's timer takes, which brings a check
        point a second early."""
        return self._store_config.timer_max_delay_sec * 1000 + 1000

    def _check_there(self, ack: BatchAck) -> None:
        """Raises `RequestError` where the queue has not all messages of a check point that a batch
        names."""
        topic = topic_of_kind(ack.topic, ack.group, ack.retry)
        named = list(_named_offsets(ack.start_offset, ack.bits))
        # What lies between the first and the last is there as well.
        for offset in {*named[:1], *named[-1:]}:
            self._checks.is_popped(topic, ack.queue_id, offset, last=1)

    def _ack_of_batch(
        self, ack: BatchAck, broker_name: str | None, peer: IPeer, *, refuses_void: bool
    ) -> BatchAckMsg | None:
        """Returns what is to be stored of it; None where that is nothing."""
        topic = topic_of_kind(ack.topic, ack.group, ack.retry)
        queue = (topic, ack.group, ack.queue_id)
        first = self._store.min_queue_offset(topic, ack.queue_id)
        end = self._store.max_queue_offset(topic, ack.queue_id)
        offsets = [
            offset
            for offset in _named_offsets(ack.start_offset, ack.bits)
            if first <= offset <= end
        ]
        if ack.revive_queue_id == ORDER_REVIVE_QUEUE:
            self._checks.may_go_on_in_order()
            for offset in offsets:
                self._orderly.acknowledge(
                    queue,
                    offset,
                    ack.pop_time,
                    ack.start_offset,
                    peer.address,
                    refuses_void=refuses_void,
                )
            return None
        if not offsets:
            return None
        self._check_revive_queue(ack.revive_queue_id)
        return BatchAckMsg(
            ack_offset=-1,
            ack_offsets=offsets,
            broker_name=broker_name,
            group=ack.group,
            pop_time=ack.pop_time,
            queue_id=ack.queue_id,
            start_offset=ack.start_offset,
            topic=topic,
        )

    def _check_popper(self, ack: AckMsg, revive_queue_id: int) -> bool:
        """Raises `RequestError` where it is known that nothing would be acknowledged, since another
        group popped the message, or it is of another topic. Returns whether it is known to wait for
        this acknowledgement."""
        key = self._reviving.popped_by(revive_queue_id, ack)
        if key is None:
            return False
        topic, group = key[:2]
        if (topic, group) != (ack.topic, ack.group):
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                f"{ack.group} did not pop the message of {ack.topic} {ack.queue_id}: {group} popped"
                f" it from {topic}, name these",
            )
        return True

    def _revive_queue(self, info: ExtraInfo) -> int:
        self._check_revive_queue(info.revive_queue_id)
        return info.revive_queue_id

    def _check_revive_queue(self, queue_id: int) -> None:
        queues = self._config.revive_queue_num
        if not is_revive_queue(self._store, self._revive_log.topic, queues, queue_id):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"there is no revive queue {queue_id}: the broker has {queues} (reviveQueueNum)",
            )


def _refuses_void(request: RemotingCommand) -> bool:
    """Returns whether what would acknowledge nothing is to be refused, which stock passes over."""
    return request.ext_fields.get(REFUSES_MISSING_FLAG) == "true"


def _named_offsets(start: int, bits: bytes) -> Iterator[int]:
    """Yields the offsets that the bytes of a Java BitSet name, behind `start`."""
    for number, byte in enumerate(bits):
        if byte:
            for distance in _DISTANCES[byte]:
                yield start + 8 * number + distance


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
