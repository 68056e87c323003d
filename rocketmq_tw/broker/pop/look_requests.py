"""Requests 200052, 200054 to 200056: what could be popped, without popping it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import randrange

from rocketmq_tw.broker.assembly.handlers import answer_later
from rocketmq_tw.broker.interfaces import EVERY_MESSAGE, GetStatus, IMessageStore
from rocketmq_tw.broker.pop.checks import PopChecks
from rocketmq_tw.broker.pop.held_pops import HeldPops, HoldResult
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.reads import PopReads
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import pop_retry_topic
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)

#: Bytes of one peek.
_PEEK_BYTES = 256 * 1024
#: How often, in percent, a group's retry topic is looked at first.
_RETRY_FIRST = 20


class LookRequests:
    """`pops` are the pops that wait, `notified` the notifications."""

    def __init__(
        self,
        config: BrokerConfig,
        checks: PopChecks,
        store: IMessageStore,
        topics: TopicTable,
        reads: PopReads,
        order: OrderBook,
        pops: HeldPops,
        notified: HeldPops,
        now_ms: Callable[[], int],
        told: Callable[[str, str, int, int, float], None],
        seconds: Callable[[], float],
    ) -> None:
        self._config = config
        self._checks = checks
        self._store = store
        self._topics = topics
        self._reads = reads
        self._order = order
        self._pops = pops
        self._notified = notified
        self._now_ms = now_ms
        self._told = told
        self._seconds = seconds

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
            RequestCode.POP_ROLLBACK: self.roll_back,
        }

    def peek(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """What a pop would begin with."""
        header = request.header(PeekMessageRequestHeader)
        group = header.consumer_group
        self._checks.may_pop(header.topic, group, header.queue_id)
        parts: list[bytes] = []
        count = rest = size = 0
        for topic, queue_id in self._queues(header.topic, group, header.queue_id):
            begin = self._reads.begin((topic, group, queue_id))
            rest += max(self._store.max_queue_offset(topic, queue_id) - begin, 0)
            wanted = header.max_msg_nums - count
            if wanted <= 0 or size >= _PEEK_BYTES:
                continue
            began = self._seconds()
            read = self._store.read_queue(topic, queue_id, begin, wanted, _PEEK_BYTES)
            if read.status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY):
                read = self._store.read_queue(
                    topic, queue_id, read.next_offset, wanted, _PEEK_BYTES
                )
            took = self._seconds() - began
            self._told(topic, group, read.messages, len(read.data), took)
            parts.append(read.data)
            count += read.messages
            size += len(read.data)
        return request.response(
            ResponseCode.SUCCESS if count else ResponseCode.PULL_NOT_FOUND,
            "FOUND" if count else "NO_MESSAGE_IN_QUEUE",
            header=PopMessageResponseHeader(rest_num=rest),
            body=b"".join(parts),
        )

    def notify(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand | None:
        """Whether there is something to pop; None where the request waits for it."""
        header = request.header(NotificationRequestHeader)
        if header.born_time == 0:
            header.born_time = self._now_ms()
            request.ext_fields["bornTime"] = str(header.born_time)
        self._checks.may_pop(header.topic, header.consumer_group, header.queue_id)
        has_messages = self._has_messages(header)
        full = False
        if not has_messages and header.poll_time > 0:
            request.body = b""
            result = self._notified.hold(
                (header.topic, header.consumer_group, max(header.queue_id, -1)),
                header.born_time + header.poll_time,
                EVERY_MESSAGE,
                peer,
                lambda: answer_later(self.notify, request, peer),
            )
            if result is HoldResult.HELD:
                return None
            full = result is HoldResult.FULL
        return request.response(
            header=NotificationResponseHeader(has_msg=has_messages, polling_full=full)
        )

    def polling_info(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """How many pops of the group wait for the queue."""
        header = request.header(PollingInfoRequestHeader)
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        self._checks.may_pop(topic, group, queue_id)
        count = self._pops.count((topic, group, max(queue_id, -1)))
        return request.response(header=PollingInfoResponseHeader(polling_num=count))

    def roll_back(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Brings check points back out of stock's other store for them: there is none, so all are
        where they belong, and as in stock without it this is no failure."""
        return request.response()

    def _has_messages(self, header: NotificationRequestHeader) -> bool:
        group = header.consumer_group
        for topic, queue_id in self._queues(header.topic, group, header.queue_id):
            queue = (topic, group, queue_id)
            if header.order and self._order.is_blocked(queue, header.attempt_id, 0):
                continue
            if self._store.max_queue_offset(topic, queue_id) > self._reads.begin(queue):
                return True
        return False

    def _queues(self, topic: str, group: str, queue_id: int) -> Iterator[tuple[str, int]]:
        """The queue, or all of the topic where it is negative, and those of the retry topics, now
        and then in front."""
        luck = randrange(100)
        retries = [
            found
            for version in ((2, 1) if self._config.enable_retry_topic_v2 else (1,))
            if (found := self._topics.get(pop_retry_topic(topic, group, version))) is not None
        ]
        queues = [
            (found.topic_name, number)
            for found in retries
            for number in range(found.read_queue_nums)
        ]
        if luck < _RETRY_FIRST:
            yield from queues
        if queue_id >= 0:
            yield topic, queue_id
        else:
            found = self._topics.get(topic)
            count = 0 if found is None else found.read_queue_nums
            for step in range(count):
                yield topic, (luck + step) % count
        if luck >= _RETRY_FIRST:
            yield from queues
