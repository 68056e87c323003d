"""Requests 200050, 200055 and 200056: messages for one member of a group, hidden from the others
until their time (docs/formats/pop.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import randrange

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.handlers import answer_later
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.filters.filters import MessageFilters
from rocketmq_tw.broker.pop.checks import PopChecks
from rocketmq_tw.broker.pop.held_pops import HeldPops, HoldResult
from rocketmq_tw.broker.pop.queues import PopQueues
from rocketmq_tw.broker.pop.reads import Popped, PopReads, Wanted
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.message.extra_info import ORDER_REVIVE_QUEUE
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import EVERY_MESSAGE, MessageFilter
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pop import (
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)

#: Messages of one pop: a check point has a bit for each.
_MOST_MESSAGES = 32
#: Milliseconds past the end of its poll time after which a pop is refused: its client has gone on.
LATE_MS = 500


class PopRequests:
    """Answers pops, or holds them in `held`; all of them where `may_begin` says that it is not
    known yet where they begin."""

    def __init__(
        self,
        host: Host,
        checks: PopChecks,
        filters: MessageFilters,
        queues: PopQueues,
        reads: PopReads,
        held: HeldPops,
        stats: Stats,
        may_begin: Callable[[], bool],
    ) -> None:
        self._config = host.config
        self._now_ms = host.now_ms
        self._elapsed_ms = host.elapsed_ms
        self._checks = checks
        self._filters = filters
        self._queues = queues
        self._reads = reads
        self._held = held
        self._stats = stats
        self._may_begin = may_begin
        self._pop = filters.budget.retrying(self.pop)
        #: Counts pops, which take the revive queues in turn.
        self._number = 0

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.POLLING_INFO: self.polling_info,
            RequestCode.POP_ROLLBACK: self.roll_back,
        }

    def pop(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        """Answers 200050, once what it pops is hidden from others; None where the request is held
        and answered later."""
        header = request.header(PopMessageRequestHeader)
        return self._answer(request, header, peer, self._held.end_of(header), self._elapsed_ms())

    def _resume(
        self, end_ms: int, came: int, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        header = request.header(PopMessageRequestHeader)
        return self._answer(request, header, peer, end_ms, came)

    def _answer(
        self,
        request: RemotingCommand,
        header: PopMessageRequestHeader,
        peer: IPeer,
        end_ms: int,
        came: int,
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        since = self._stats.seconds()
        late_ms = self._elapsed_ms() - end_ms
        if late_ms > LATE_MS:
            if request.suspended:
                # It takes nothing of what it was woken for.
                self._held.wake((header.topic, header.consumer_group, header.queue_id))
            # With a header: clients read it of every answer that is no failure.
            return request.response(
                ResponseCode.POLLING_TIMEOUT,
                f"the pop is late: its bornTime is {header.poll_time + late_ms} ms ago, its"
                f" pollTime {header.poll_time} ms",
                header=PopMessageResponseHeader(),
            )
        topic = self._check(header)
        wanted = self._wanted(header, self._now_ms(), came)
        popped = self._take(header, topic, wanted) if self._may_begin() else Popped()
        code: ResponseCode | None = ResponseCode.SUCCESS
        if not popped.count:
            code = self._hold(request, header, wanted, peer, end_ms)
        if popped.rest > popped.held_back:
            self._held.wake((header.topic, header.consumer_group, header.queue_id))
        if code is None:
            return None
        answer = _response(request, code, wanted, popped)
        if popped.count:
            self._stats.answered(header.topic, header.consumer_group, header.queue_id, since)
        if not popped.points:
            return answer
        return self._reads.store(popped, wanted.revive_queue_id).addCallback(lambda _: answer)

    def polling_info(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 200055: how many pops of the group are held for the queue."""
        header = request.header(PollingInfoRequestHeader)
        topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
        self._checks.may_pop(topic, group, queue_id)
        count = self._held.count((topic, group, max(queue_id, -1)))
        return request.response(header=PollingInfoResponseHeader(polling_num=count))

    def roll_back(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 200056, which brings check points back out of stock's other store for them: there
        is none here, so all are where they belong, and as in stock without it this is no
        failure."""
        return request.response()

    def _check(self, header: PopMessageRequestHeader) -> TopicConfig:
        if header.max_msg_nums < 1:
            # It would be held for the messages that are there, and woken for them, again and again.
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"a pop of {header.max_msg_nums} messages: ask for 1 to {_MOST_MESSAGES}"
                " (maxMsgNums)",
            )
        if header.max_msg_nums > _MOST_MESSAGES:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{header.max_msg_nums} messages are too many for one pop:"
                f" ask for {_MOST_MESSAGES}",
            )
        if header.order:
            self._checks.may_go_on_in_order()
        self._checks.may_hide(header.invisible_time)
        self._reads.check_room()
        return self._checks.may_pop(header.topic, header.consumer_group, header.queue_id)

    def _wanted(self, header: PopMessageRequestHeader, now: int, came: int) -> Wanted:
        if header.order:
            revive_queue_id = ORDER_REVIVE_QUEUE
        else:
            revive_queue_id = self._number % self._config.revive_queue_num
            self._number += 1
        return Wanted(
            topic=header.topic,
            group=header.consumer_group,
            max_count=header.max_msg_nums,
            invisible_time=header.invisible_time,
            init_mode=header.init_mode,
            is_orderly=bool(header.order),
            attempt_id=header.attempt_id,
            came=came,
            filter=self._filter(header),
            pop_time=now,
            revive_queue_id=revive_queue_id,
        )

    def _filter(self, header: PopMessageRequestHeader) -> MessageFilter:
        if not header.exp:
            return EVERY_MESSAGE
        return self._filters.of_expression(header.exp, header.exp_type)

    def _take(self, header: PopMessageRequestHeader, topic: TopicConfig, wanted: Wanted) -> Popped:
        popped = Popped()
        try:
            self._take_some(header, topic, wanted, popped)
        except BaseException:
            self._reads.give_up(popped)
            raise
        return popped

    def _take_some(
        self,
        header: PopMessageRequestHeader,
        topic: TopicConfig,
        wanted: Wanted,
        popped: Popped,
    ) -> None:
        luck = randrange(100)
        retry_first = self._queues.retry_first(luck)
        if retry_first and not wanted.is_orderly:
            self._take_retries(wanted, luck, popped)
        if header.queue_id >= 0:
            self._reads.take(wanted, (header.topic, wanted.group, header.queue_id), popped)
        else:
            self._take_all(wanted, topic, luck, popped)
        if not retry_first and not wanted.is_orderly and popped.count < wanted.max_count:
            self._take_retries(wanted, luck, popped)

    def _take_retries(self, wanted: Wanted, luck: int, popped: Popped) -> None:
        """Takes from one of the two retry topics: an answer says of its messages only that they are
        retried."""
        before = popped.count
        for topic in self._queues.retry_topics(wanted.topic, wanted.group, luck):
            if popped.count == before:
                self._take_all(wanted, topic, luck, popped)

    def _take_all(self, wanted: Wanted, topic: TopicConfig, luck: int, popped: Popped) -> None:
        for queue in self._queues.of_topic(topic, wanted.group, luck):
            self._reads.take(wanted, queue, popped)

    def _hold(
        self,
        request: RemotingCommand,
        header: PopMessageRequestHeader,
        wanted: Wanted,
        peer: IPeer,
        end_ms: int,
    ) -> ResponseCode | None:
        """Returns None where it is held; otherwise the code that says why it is not."""
        if header.poll_time <= 0:
            return ResponseCode.POLLING_TIMEOUT
        request.body = b""
        resume = self._filters.budget.retrying(partial(self._resume, end_ms, wanted.came))
        result = self._held.hold(
            (header.topic, header.consumer_group, max(header.queue_id, -1)),
            end_ms,
            wanted.filter,
            peer,
            lambda: answer_later(resume, request, peer),
        )
        if result is HoldResult.HELD:
            request.suspended = True
            return None
        full = result is HoldResult.FULL
        return ResponseCode.POLLING_FULL if full else ResponseCode.POLLING_TIMEOUT


def _response(
    request: RemotingCommand, code: ResponseCode, wanted: Wanted, popped: Popped
) -> RemotingCommand:
    infos = popped.infos
    return request.response(
        code,
        "FOUND" if code is ResponseCode.SUCCESS else "NO_MESSAGE_IN_QUEUE",
        header=PopMessageResponseHeader(
            pop_time=wanted.pop_time,
            invisible_time=wanted.invisible_time,
            revive_qid=wanted.revive_queue_id,
            rest_num=popped.rest,
            start_offset_info=infos.starts,
            msg_offset_info=infos.offsets,
            order_count_info=infos.counts if wanted.is_orderly else None,
        ),
        body=popped.data,
    )
