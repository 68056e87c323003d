"""Request 200050: messages for one member of a group, hidden from the others until their time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import randrange

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.handlers import answer_later
from rocketmq_tw.broker.filters.filters import MessageFilters
from rocketmq_tw.broker.interfaces import EVERY_MESSAGE, Appended, MessageFilter
from rocketmq_tw.broker.pop.check_points import ReviveMessages
from rocketmq_tw.broker.pop.checks import PopChecks
from rocketmq_tw.broker.pop.extra_info import ORDER_REVIVE_QUEUE
from rocketmq_tw.broker.pop.held_pops import HeldPops, HoldResult
from rocketmq_tw.broker.pop.positions import Claim, Positions
from rocketmq_tw.broker.pop.reads import Popped, PopReads, Wanted
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.writing.commit import STORED, Commit
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import pop_retry_topic
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader

#: Messages of one pop: a check point has a bit for each.
MOST_MESSAGES = 32
#: Milliseconds past the end of its poll time after which nobody waits for a pop any more.
LATE_MS = 500
#: Check points that wait at once; what is popped beyond them would take more and more memory.
MOST_PENDING = 1_000_000

log = Logger()


class PopRequests:
    """`pending` tells how many check points wait."""

    def __init__(
        self,
        config: BrokerConfig,
        checks: PopChecks,
        filters: MessageFilters,
        reads: PopReads,
        positions: Positions,
        held: HeldPops,
        commit: Commit,
        messages: ReviveMessages,
        topics: TopicTable,
        now_ms: Callable[[], int],
        pending: Callable[[], int],
    ) -> None:
        self._config = config
        self._checks = checks
        self._filters = filters
        self._reads = reads
        self._positions = positions
        self._held = held
        self._commit = commit
        self._messages = messages
        self._topics = topics
        self._now_ms = now_ms
        self._pending = pending
        self._number = 0

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.POP_MESSAGE: self._filters.budget.retrying(self.pop)}

    def pop(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        """The answer; None where the request is held and answered later."""
        header = request.header(PopMessageRequestHeader)
        now = self._now_ms()
        if header.born_time == 0:
            header.born_time = now
            request.ext_fields["bornTime"] = str(now)
        if now - header.born_time - header.poll_time > LATE_MS:
            # With a header: clients read it of every answer that is no failure.
            return request.response(
                ResponseCode.POLLING_TIMEOUT,
                f"the pop is late: its bornTime is {now - header.born_time} ms ago, its pollTime"
                f" {header.poll_time} ms",
                header=PopMessageResponseHeader(),
            )
        topic = self._check(header)
        wanted = self._wanted(header, now)
        popped = self._take(header, topic, wanted)
        if popped.count:
            return self._stored(request, header, wanted, popped)
        code = self._hold(request, header, wanted, peer)
        if popped.rest > 0:
            self._held.wake((header.topic, header.consumer_group, header.queue_id))
        if code is None:
            return None
        return self._response(request, code, wanted, popped)

    # Checks

    def _check(self, header: PopMessageRequestHeader) -> TopicConfig:
        if header.max_msg_nums > MOST_MESSAGES:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"{header.max_msg_nums} messages are too many for one pop: ask for {MOST_MESSAGES}",
            )
        if self._pending() >= MOST_PENDING:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{MOST_PENDING} check points wait for acknowledgements: pop more later",
            )
        return self._checks.may_pop(header.topic, header.consumer_group, header.queue_id)

    def _wanted(self, header: PopMessageRequestHeader, now: int) -> Wanted:
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
            filter=self._filter(header),
            pop_time=now,
            revive_queue_id=revive_queue_id,
        )

    def _filter(self, header: PopMessageRequestHeader) -> MessageFilter:
        if not header.exp:
            return EVERY_MESSAGE
        return self._filters.of_expression(header.exp, header.exp_type)

    # Taking

    def _take(self, header: PopMessageRequestHeader, topic: TopicConfig, wanted: Wanted) -> Popped:
        """From the group's retry topic first, now and then, so that neither waits for ever."""
        popped = Popped()
        luck = randrange(100)
        retry_first = luck < self._config.pop_from_retry_probability
        if retry_first and not wanted.is_orderly:
            self._take_retries(wanted, luck, popped)
        if header.queue_id >= 0:
            self._reads.take(wanted, topic.topic_name, header.queue_id, popped)
        else:
            self._take_all(wanted, topic, luck, popped)
        if not retry_first and not wanted.is_orderly and popped.count < wanted.max_count:
            self._take_retries(wanted, luck, popped)
        return popped

    def _take_retries(self, wanted: Wanted, luck: int, popped: Popped) -> None:
        """From one of the two: an answer says of its messages only that they are retried."""
        before = popped.count
        for version in self._retry_versions(luck):
            topic = self._topics.get(pop_retry_topic(wanted.topic, wanted.group, version))
            if topic is not None and popped.count == before:
                self._take_all(wanted, topic, luck, popped)

    def _retry_versions(self, luck: int) -> Sequence[int]:
        if not self._config.enable_retry_topic_v2:
            return (1,)
        if not self._config.retrieve_message_from_pop_retry_topic_v1:
            return (2,)
        return (1, 2) if luck % 2 == 0 else (2, 1)

    def _take_all(self, wanted: Wanted, topic: TopicConfig, luck: int, popped: Popped) -> None:
        queues = topic.read_queue_nums
        for step in range(queues):
            self._reads.take(wanted, topic.topic_name, (luck + step) % queues, popped)

    # Answering

    def _stored(
        self,
        request: RemotingCommand,
        header: PopMessageRequestHeader,
        wanted: Wanted,
        popped: Popped,
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """The answer, once all its check points are stored."""
        if popped.rest > 0:
            self._held.wake((header.topic, header.consumer_group, header.queue_id))
        if not popped.points:
            return self._response(request, ResponseCode.SUCCESS, wanted, popped)
        answer: Deferred[RemotingCommand] = Deferred()
        left = len(popped.points)
        failure: ResponseCode | None = None

        def done_with(claim: Claim) -> Callable[[ResponseCode, Appended], None]:
            def done(code: ResponseCode, appended: Appended) -> None:
                nonlocal left, failure
                left -= 1
                if code in STORED:
                    self._positions.stored(claim)
                else:
                    self._positions.failed(claim)
                    failure = code
                if left:
                    return
                if failure is None:
                    answer.callback(self._response(request, ResponseCode.SUCCESS, wanted, popped))
                else:
                    answer.errback(_not_stored(failure.name))

            return done

        for index, (point, claim) in enumerate(popped.points):
            message = self._messages.check_point(point, wanted.revive_queue_id)
            try:
                self._commit.append(message, done_with(claim))
            except RequestError as error:
                for _, unstored in popped.points[index:]:
                    self._positions.failed(unstored)
                # What is stored of it is seen again once its time is over.
                raise _not_stored(error.remark) from error
        return answer

    def _hold(
        self, request: RemotingCommand, header: PopMessageRequestHeader, wanted: Wanted, peer: IPeer
    ) -> ResponseCode | None:
        """None where it is held; otherwise the code that says why it is not."""
        if header.poll_time <= 0:
            return ResponseCode.POLLING_TIMEOUT
        request.body = b""
        result = self._held.hold(
            (header.topic, header.consumer_group, max(header.queue_id, -1)),
            header.born_time + header.poll_time,
            wanted.filter,
            peer,
            lambda: answer_later(self._filters.budget.retrying(self.pop), request, peer),
        )
        if result is HoldResult.HELD:
            return None
        full = result is HoldResult.FULL
        return ResponseCode.POLLING_FULL if full else ResponseCode.POLLING_TIMEOUT

    def _response(
        self, request: RemotingCommand, code: ResponseCode, wanted: Wanted, popped: Popped
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


def _not_stored(why: str) -> RequestError:
    return RequestError(
        ResponseCode.SYSTEM_ERROR, f"what was popped cannot be hidden from others: {why}"
    )
