"""Requests 200052 and 200054: what could be popped, without popping it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import randrange

from rocketmq_tw.broker.assembly.handlers import answer_later
from rocketmq_tw.broker.pop.check_points import PoppedQueue
from rocketmq_tw.broker.pop.checks import PopChecks
from rocketmq_tw.broker.pop.held_pops import HeldPops, HoldResult
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.positions import Positions
from rocketmq_tw.broker.pop.queues import PopQueues
from rocketmq_tw.broker.pop.reads import QueueReads
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import EVERY_MESSAGE
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PopMessageResponseHeader,
)

#: Bytes of one peek.
_PEEK_BYTES = 256 * 1024


class PeekAndNotify:
    """Shows the messages with which a pop would begin, and tells when there are some; notifications
    that wait are held in `notified`."""

    def __init__(
        self,
        checks: PopChecks,
        queues: PopQueues,
        positions: Positions,
        reads: QueueReads,
        order: OrderBook,
        notified: HeldPops,
        stats: Stats,
    ) -> None:
        self._checks = checks
        self._queues = queues
        self._positions = positions
        self._reads = reads
        self._order = order
        self._notified = notified
        self._stats = stats

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {RequestCode.PEEK_MESSAGE: self.peek, RequestCode.NOTIFICATION: self.notify}

    def peek(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 200052: the messages with which a pop would begin."""
        since = self._stats.seconds()
        header = request.header(PeekMessageRequestHeader)
        parts: list[bytes] = []
        count = rest = size = 0
        for queue in self._queues_of(header):
            begin = self._positions.peek(queue)
            rest += max(self._positions.end(queue) - begin, 0)
            wanted = header.max_msg_nums - count
            if wanted > 0 and size < _PEEK_BYTES:
                _, read = self._reads.read(
                    queue, begin, wanted, _PEEK_BYTES - size, is_first=not count
                )
                if read is None:
                    # No queue behind it is asked, which may have smaller ones: they come in turn.
                    size = _PEEK_BYTES
                    continue
                parts.append(read.data)
                count += read.messages
                size += len(read.data)
        if count:
            self._stats.answered(header.topic, header.consumer_group, header.queue_id, since)
        return request.response(
            ResponseCode.SUCCESS if count else ResponseCode.PULL_NOT_FOUND,
            "FOUND" if count else "NO_MESSAGE_IN_QUEUE",
            header=PopMessageResponseHeader(rest_num=rest),
            body=b"".join(parts),
        )

    def notify(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand | None:
        """Answers 200054: whether there is something to pop; None where the request is held until
        there may be."""
        header = request.header(NotificationRequestHeader)
        return self._tell(request, header, peer, self._notified.end_of(header))

    def _resume(self, end_ms: int, request: RemotingCommand, peer: IPeer) -> RemotingCommand | None:
        return self._tell(request, request.header(NotificationRequestHeader), peer, end_ms)

    def _tell(
        self, request: RemotingCommand, header: NotificationRequestHeader, peer: IPeer, end_ms: int
    ) -> RemotingCommand | None:
        has_messages = self._has_messages(header)
        full = False
        if not has_messages and header.poll_time > 0:
            request.body = b""
            result = self._notified.hold(
                (header.topic, header.consumer_group, max(header.queue_id, -1)),
                end_ms,
                EVERY_MESSAGE,
                peer,
                lambda: answer_later(partial(self._resume, end_ms), request, peer),
            )
            if result is HoldResult.HELD:
                request.suspended = True
                return None
            full = result is HoldResult.FULL
        return request.response(
            header=NotificationResponseHeader(has_msg=has_messages, polling_full=full)
        )

    def _has_messages(self, header: NotificationRequestHeader) -> bool:
        for queue in self._queues_of(header):
            if header.order and self._order.is_blocked(queue, header.attempt_id, 0):
                continue
            if self._positions.end(queue) > self._positions.peek(queue):
                return True
        return False

    def _queues_of(
        self, header: PeekMessageRequestHeader | NotificationRequestHeader
    ) -> Iterator[PoppedQueue]:
        """Returns the queues to look at; raises `RequestError` where they may not be popped
        from."""
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        self._checks.may_pop(topic, group, queue_id)
        return self._queues.to_peek_at(topic, group, queue_id, randrange(100))
