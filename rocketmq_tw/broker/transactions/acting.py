"""Half messages while a slave acts for its master: they move to another group.

The log of an acting master stays a copy, so it can neither take a half message back to ask about it
nor an op message. Each half message that waits is therefore sent to another group's master as a
half message, which asks its producer; a decision that comes here before that is carried out here,
one that comes behind it is passed on. That the half messages are settled here only the offsets of
half and op queue say, which a master that comes back takes over with the consumer offsets.

Rules: docs/formats/transactions.md, "While a slave acts for its master".
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, gatherResults, inlineCallbacks, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.transactions.book import HalfBook, State
from rocketmq_tw.broker.transactions.halves import Half, real_message
from rocketmq_tw.broker.transactions.requests import (
    UNDECIDED,
    check_decision,
    decided_state,
    read_half,
    when_taken_over,
)
from rocketmq_tw.broker.transactions.role_work import Kept, RoleWork
from rocketmq_tw.broker.transactions.takeover import Takeover
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.sink import PutResult, attempt
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.message.model import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import EndTransactionRequestHeader

#: Half messages that are sent at once.
_BATCH = 64
#: Half messages whose place at the other broker is remembered, the last ones; for decisions about
#: others that broker asks.
MOST_PLACES = 100_000

#: Properties that the other broker gives its own values.
_BROKERS_OWN = (
    props.REAL_TOPIC,
    props.REAL_QID,
    props.TRAN_PREPARED_QUEUE_OFFSET,
    props.TRANSACTION_CHECK_TIMES,
)

log = Logger()


class MovedHalf(NamedTuple):
    """Where a half message is now: broker, offset in its half queue, and in its log."""

    address: str
    queue_offset: int
    offset: int


class ActingWork(RoleWork[HalfBook]):
    """Moves half messages and answers decisions, until `scope`, the role's, is over."""

    # All are sent at once, and the log they come from may lose them meanwhile.
    keeps_bodies = True

    def __init__(
        self, host: Host, writing: Writing, brokers: BrokerClient, kept: Kept, scope: Scope
    ) -> None:
        super().__init__(host, writing, kept, scope)
        self._config = host.config
        self._brokers = brokers
        self._store = writing.store
        self._sink = writing.sink
        #: Those that are not settled, by queue offset, in the order of the queue.
        self._waiting: dict[int, Half] = {}
        self._places: dict[int, MovedHalf] = {}
        #: Puts whose end is not known yet, by the half message's queue offset.
        self._under_way: dict[int, Waiters[None]] = {}
        self._idle = Waiters[None]()

    def handlers(self) -> dict[int, Handler]:
        """See `RoleWork`."""
        return {RequestCode.END_TRANSACTION: self.decide}

    @inlineCallbacks
    def end(self) -> Generator[Deferred[Any], Any, None]:
        """See `RoleWork`."""
        yield super().end()
        if self._under_way:
            yield self._idle.wait()
        self.note()
        if self.book is not None:
            start = self.book.start
            left = (half.origin for half in self._waiting.values() if half.origin < start)
            self._progress.moved_until, self._progress.not_moved = start, frozenset(left)

    # Moving

    def _took_over(self, takeover: Takeover) -> HalfBook:
        book = takeover.book
        for offset, state in takeover.found:
            book.settle(offset, state, written=True)
        for offset, half in sorted(takeover.waiting.items()):
            if self._progress.was_moved(half.origin):
                # The master came back without its slave's progress, and asked about it once more.
                book.settle(offset, State.MOVED, written=True)
            else:
                self._waiting[offset] = half
        if self._waiting:
            log.info("{n} half messages move to another group", n=len(self._waiting))
        self._move_some(book)
        return book

    def _move_some(self, book: HalfBook) -> None:
        """Sends some of those that wait, then the next ones."""
        if self._scope.is_over:
            return
        # All at once: one that is refused at once changes their order.
        free = (half for half in self._waiting.values() if self._is_free(half))
        some = list(islice(free, _BATCH))
        moves = [self._put(half, State.MOVED, _as_sent(half)) for half in some]
        if moves:
            gatherResults(moves).addCallback(self._moved_some, book)

    def _moved_some(self, stored: Sequence[bool], book: HalfBook) -> None:
        self.note()
        refused = stored.count(False)
        if refused:
            log.warn(
                "{n} of {m} half messages were taken by no other group; trying again",
                n=refused,
                m=len(stored),
            )
        seconds = RETRY_USUAL if refused else 0
        self._scope.later(self._host.reactor, seconds, lambda: self._move_some(book))

    def _is_free(self, half: Half) -> bool:
        return half.offset not in self._under_way

    def _put(self, half: Half, state: State, message: StoredMessage) -> Deferred[bool]:
        """Gives another broker what `half` becomes; fires with whether it took it."""
        ended = self._under_way[half.offset] = Waiters()

        def put_ended(stored: bool) -> bool:
            del self._under_way[half.offset]
            if stored:
                self._settle(half, state)
            elif half.offset in self._waiting:
                # Behind the others: one that nobody takes holds none of them up.
                self._waiting[half.offset] = self._waiting.pop(half.offset)
            ended.fire(None)
            if not self._under_way:
                self._idle.fire(None)
            return stored

        def placed(result: PutResult) -> PutResult:
            if state is State.MOVED:
                self._note_place(half.offset, result.appended)
            return result

        put = self._sink.put(message, wait=True).addCallback(placed)
        return attempt(put).addCallback(lambda result: put_ended(result.is_stored))

    def _settle(self, half: Half, state: State) -> None:
        assert self.book is not None, "nothing is settled before the takeover is over"
        self.book.settle(half.offset, state, written=True)
        if self._waiting.pop(half.offset, None) is not None:
            self._counts.settled(half.real_topic, state, half.message.born_timestamp)

    def _note_place(self, offset: int, appended: Appended) -> None:
        try:
            at = parse_offset_message_id(appended.message_ids)
        except ValueError:
            return
        address = join_address(at.host, at.port)
        self._places[offset] = MovedHalf(address, appended.queue_offset, at.offset)
        if len(self._places) > MOST_PLACES:
            del self._places[next(iter(self._places))]

    # Decisions

    def decide(
        self, request: RemotingCommand, peer: IPeer
    ) -> Deferred[RemotingCommand] | RemotingCommand:
        """Answers 37, with the checks of a master."""
        header = request.header(EndTransactionRequestHeader)
        state = decided_state(header)
        if state is None:
            return request.response(remark=UNDECIDED)
        half = read_half(self._store, header.commit_log_offset)
        check_decision(header, half, self._config, self._host.now_ms)

        def ready(book: HalfBook) -> Deferred[RemotingCommand]:
            current = book.current(half.origin, half.offset)
            under_way = self._under_way.get(current)
            free = succeed(None) if under_way is None else under_way.wait()
            return free.addCallback(lambda _: self._decide(request, header, current, state))

        return when_taken_over(self, ready)

    def _decide(
        self,
        request: RemotingCommand,
        header: EndTransactionRequestHeader,
        current: int,
        state: State,
    ) -> Deferred[RemotingCommand] | RemotingCommand:
        half, place = self._waiting.get(current), self._places.get(current)
        if place is not None:
            return Deferred.fromCoroutine(self._pass_on(request, header, place))
        if half is None or self._scope.is_over:
            raise RequestError(
                ResponseCode.ILLEGAL_OPERATION,
                "it waits here no more: where it is undecided, another broker asks",
            )
        if current in self._under_way:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "it is just being decided; decide again")
        if state is State.ROLLED_BACK:
            self._settle(half, state)
            return request.response()

        def committed(stored: bool) -> RemotingCommand:
            if stored:
                return request.response()
            remark = "no other broker took the message; commit again"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)

        return self._put(half, state, _as_committed(half)).addCallback(committed)

    async def _pass_on(
        self, request: RemotingCommand, header: EndTransactionRequestHeader, place: MovedHalf
    ) -> RemotingCommand:
        passed = msgspec.structs.replace(
            header, tran_state_table_offset=place.queue_offset, commit_log_offset=place.offset
        )
        who = f"{place.address} has it now, and will ask"
        code = RequestCode.END_TRANSACTION
        answer = await self._brokers.ask_at(place.address, code, passed, who=who)
        return request.response(answer.code, answer.remark)


def _as_sent(half: Half) -> StoredMessage:
    """Returns `half` as its producer sent it."""
    properties = {
        name: value for name, value in half.properties.items() if name not in _BROKERS_OWN
    }
    message = real_message(half)
    return msgspec.structs.replace(
        message,
        sys_flag=message.sys_flag & ~TRANSACTION_ROLLBACK | TRANSACTION_PREPARED,
        properties=join_properties(properties | {props.TRAN_MSG: "true"}),
        parsed=None,
    )


def _as_committed(half: Half) -> StoredMessage:
    """Returns the message that `half` becomes, as a producer would send it: what it is to wait for
    it waits for at the other broker. It says that it is passed on: its type, which that one may
    check, was checked when it was sent."""
    properties = {
        name: value for name, value in half.properties.items() if name not in _BROKERS_OWN
    }
    properties.pop(props.TRAN_MSG, None)
    message = real_message(half)
    return msgspec.structs.replace(
        message,
        sys_flag=message.sys_flag & ~TRANSACTION_ROLLBACK,
        properties=join_properties(properties | {props.TRANSFER_FLAG: "true"}),
        prepared_transaction_offset=0,
        parsed=None,
    )
