"""Requests about transactions: a producer decides (37); an administrator has a half message asked
about again that was given up (323).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.transactions.book import State
from rocketmq_tw.broker.transactions.halves import Half
from rocketmq_tw.broker.transactions.history import History
from rocketmq_tw.broker.transactions.new_halves import NewHalves
from rocketmq_tw.broker.transactions.role_work import RoleWork
from rocketmq_tw.broker.transactions.settling import Settling
from rocketmq_tw.broker.writing.commit import SAFE, STORED
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocketmq_tw.message.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rocketmq_tw.net.changes import who
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import (
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)

#: Requests that may wait until it is known which half messages are pending.
_MAX_WAITING = 10_000

#: The answer to a producer that has not decided.
UNDECIDED = "not decided: the producer will be asked"

_UNKNOWN = 0
_STATES = {TRANSACTION_COMMIT: State.COMMITTED, TRANSACTION_ROLLBACK: State.ROLLED_BACK}
_WORDS = {State.COMMITTED: "committed", State.ROLLED_BACK: "rolled back"}

T = TypeVar("T")
AnswerSteps = Generator[Deferred[Any], Any, RemotingCommand]

log = Logger()


def decided_state(header: EndTransactionRequestHeader) -> State | None:
    """Returns what a decision says; None where it says that nothing is decided. Raises
    `RequestError` for any other value."""
    if header.commit_or_rollback == _UNKNOWN:
        return None
    state = _STATES.get(header.commit_or_rollback)
    if state is None:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"commitOrRollback={header.commit_or_rollback}: give {TRANSACTION_COMMIT} to"
            f" commit, {TRANSACTION_ROLLBACK} to roll back or {_UNKNOWN} for not decided",
        )
    return state


def read_half(store: IMessageStore, position: int) -> Half:
    """Returns the half message at a place of the log; raises `RequestError` where there is none."""
    message = store.message_at(position)
    if message is None or message.topic != HALF_TOPIC:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"Find prepared transaction message failed: none starts at {position}",
        )
    return Half(message)


def check_decision(
    header: EndTransactionRequestHeader,
    half: Half,
    config: BrokerConfig,
    now_ms: Callable[[], int],
) -> None:
    """Raises `RequestError` where a decision is not about `half`, or comes too late."""
    position = header.commit_log_offset
    seconds = half.immunity_seconds
    if seconds is not None and not header.from_transaction_check:
        immune_ms = max(seconds * 1000, config.transaction_time_out)
        late_ms = now_ms() - half.message.born_timestamp - immune_ms
        if late_ms > 0:
            raise RequestError(
                ResponseCode.ILLEGAL_OPERATION,
                f"the decision comes {late_ms} ms after the time that the producer asked for:"
                " the broker asks for it",
            )
    if half.group != header.producer_group:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"The producer group wrong: the message is of {half.group!r},"
            f" not of {header.producer_group!r}",
        )
    if half.offset != header.tran_state_table_offset:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"The transaction state table offset wrong: the message at {position} of the log"
            f" is {half.offset} of its queue, not {header.tran_state_table_offset}",
        )
    if not half.is_whole:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"the half message at {position} of the log does not say for which queue it is",
        )


def when_taken_over(
    work: RoleWork[T], then: Callable[[T], Deferred[RemotingCommand]]
) -> Deferred[RemotingCommand]:
    """Calls `then` with what decisions need, once it is known which half messages wait, and fires
    as that does; fails with `RequestError` where the role ends before, and raises it where too many
    wait for that."""
    if work.taken_over is not None:
        return then(work.taken_over)
    if work.asking >= _MAX_WAITING:
        raise RequestError(
            ResponseCode.SYSTEM_BUSY,
            f"{work.asking} decisions wait until it is known which messages do: decide later",
        )
    return work.when_taken_over().addCallback(then)


class TransactionRequests:
    """Answers decisions (37), and requests to check a half message again (323), while `work` lasts,
    the work of a master."""

    def __init__(
        self, host: Host, store: IMessageStore, work: RoleWork[Settling], new: NewHalves
    ) -> None:
        self._config = host.config
        self._now_ms = host.now_ms
        self._store = store
        self._history = History(store, host.in_slices)
        self._work = work
        self._new = new
        #: Settled half messages are looked up one at a time.
        self._looking_up = Serial()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.END_TRANSACTION: self.end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self.resume,
        }

    def end(
        self, request: RemotingCommand, peer: IPeer
    ) -> Deferred[RemotingCommand] | RemotingCommand | None:
        """Answers request 37, with stock's checks in their order; decisions that stock leaves
        unanswered are answered here. Where it returns None it answers later through the peer."""
        header = request.header(EndTransactionRequestHeader)
        state = decided_state(header)
        if state is None:
            return request.response(remark=UNDECIDED)
        half = self._half(header)
        settling = self._work.taken_over
        if settling is not None:
            return self._decide(request, peer.reply, half, state, settling)

        def decide(settling: Settling) -> Deferred[RemotingCommand]:
            answered: Deferred[RemotingCommand] = Deferred()
            return self._decide(request, answered.callback, half, state, settling) or answered

        return when_taken_over(self._work, decide)

    def _half(self, header: EndTransactionRequestHeader) -> Half:
        """Returns the half message that a decision is about, as stock checks it."""
        half = self._new.recent.pop(header.commit_log_offset, None)
        if half is None:
            half = read_half(self._store, header.commit_log_offset)
        check_decision(header, half, self._config, self._now_ms)
        return half

    def _decide(
        self,
        request: RemotingCommand,
        reply: Callable[[RemotingCommand], object],
        half: Half,
        state: State,
        settling: Settling,
    ) -> Deferred[RemotingCommand] | None:
        """Fires with the answer; returns None where it calls `reply` with it, as for nearly all."""
        book = settling.book
        current = book.current(half.origin, half.offset)
        if not book.is_pending(current):
            known = book.state(current)
            if known in _WORDS:
                return self._decide_again(request, current, state, settling)
            return self._decide_late(request, half, state, settling)
        if state is State.ROLLED_BACK:
            rolled_back = settling.roll_back(half, current)
            return rolled_back.addCallback(lambda code: _rolled_back(request, code))
        settling.commit(half, current, lambda code: reply(_committed(request, code)))
        return None

    @inlineCallbacks
    def _decide_again(
        self, request: RemotingCommand, current: int, state: State, settling: Settling
    ) -> AnswerSteps:
        """Answers for a half message that was decided in this role: that decision may still be on
        its way to the disk and the replicas, or fail."""
        known = settling.book.state(current)
        code = yield settling.safe()
        if code not in SAFE or settling.book.is_pending(current):
            return _unknown_yet(request, code)
        return _decided(request, known, state)

    @inlineCallbacks
    def _decide_late(
        self, request: RemotingCommand, half: Half, state: State, settling: Settling
    ) -> AnswerSteps:
        """Answers for a settled half message: its decision may be in the log already, or it was
        given up. One that was given up may still be decided, once."""
        end = self._store.end_offset
        code = yield settling.safe()
        if code not in SAFE or self._store.dispatched_offset < end:
            return _unknown_yet(request, code)
        return (yield self._looking_up.run(self._look_up, request, half, state, settling))

    @inlineCallbacks
    def _look_up(
        self, request: RemotingCommand, half: Half, state: State, settling: Settling
    ) -> AnswerSteps:
        if (yield self._history.was_committed(half)):
            return _decided(request, State.COMMITTED, state)
        if not (yield self._history.was_given_up(half)):
            was_settled = yield self._history.was_settled(half)
            if state is State.ROLLED_BACK and was_settled:
                return request.response(remark="it waits no more")
            return request.response(
                ResponseCode.ILLEGAL_OPERATION,
                "it was rolled back"
                if was_settled
                else "it waits here no more, and nothing here says what became of it: an acting"
                " master may have moved it to another broker, which asks then, or it is too old",
            )
        if state is State.ROLLED_BACK:
            return request.response(remark="it was given up already")
        # Somebody may have committed it since this decision came.
        end = self._store.end_offset
        code = yield settling.safe()
        if code not in SAFE or self._store.dispatched_offset < end:
            return _unknown_yet(request, code)
        if (yield self._history.was_committed(half)):
            return _decided(request, State.COMMITTED, state)
        current = settling.book.current(half.origin, half.offset)
        committed: Deferred[ResponseCode] = Deferred()
        settling.commit(half, current, committed.callback, wait=True)
        return _committed(request, (yield committed))

    def resume(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers request 323: puts back a message that was given up, as if no producer had been
        asked about it."""
        header = request.header(ResumeCheckHalfMessageRequestHeader)
        try:
            position = parse_offset_message_id(header.msg_id or "").offset
        except ValueError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        message = self._store.message_at(position)
        if message is None or message.topic not in (TRANS_CHECK_MAX_TIME_TOPIC, HALF_TOPIC):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"no half message starts at {position} of the log: give the id of one of"
                f" {TRANS_CHECK_MAX_TIME_TOPIC}",
            )
        half = Half(message)
        if not half.is_whole:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the message at {position} of the log does not say for which queue it is",
            )
        return when_taken_over(
            self._work, lambda settling: self._resume(request, peer, half, settling)
        )

    @inlineCallbacks
    def _resume(
        self, request: RemotingCommand, peer: IPeer, half: Half, settling: Settling
    ) -> AnswerSteps:
        if half.names_origin and settling.book.copy_waits(half.origin):
            code = yield settling.safe()
            if code not in SAFE:
                return _unknown_yet(request, code)
            if settling.book.copy_waits(half.origin):
                return request.response(remark="it waits already")
        was = _standing(half, settling)
        code = yield settling.resume(half)
        if code in STORED:
            log.info(
                "{peer} has half message {id} asked about again, from 0 times (was {was})",
                peer=who(peer),
                id=request.header(ResumeCheckHalfMessageRequestHeader).msg_id,
                was=was,
            )
        if code in SAFE:
            return request.response()
        what = "is put back, but not safe yet" if code in STORED else "was not put back"
        return request.response(
            ResponseCode.SYSTEM_ERROR, f"the message {what}: {code.name}; ask for it again"
        )


def _standing(half: Half, settling: Settling) -> str:
    """Returns in which state a half message is, and how often its producer was asked."""
    if half.message.topic == TRANS_CHECK_MAX_TIME_TOPIC:
        state = "given up"
    else:
        state = "waiting" if settling.book.is_pending(half.offset) else "settled"
    return f"{state}, asked about {half.checks} times"


def _committed(request: RemotingCommand, code: ResponseCode) -> RemotingCommand:
    if code in SAFE:
        return request.response()
    what = "the commit is not safe yet" if code in STORED else "the message was not stored"
    return request.response(ResponseCode.SYSTEM_ERROR, f"{what}: {code.name}; commit again")


def _rolled_back(request: RemotingCommand, code: ResponseCode) -> RemotingCommand:
    if code in SAFE:
        return request.response()
    return request.response(
        ResponseCode.SYSTEM_ERROR, f"the rollback is not safe yet: {code.name}; roll back again"
    )


def _unknown_yet(request: RemotingCommand, code: ResponseCode) -> RemotingCommand:
    """Returns the answer to a decision while it is not certain that an earlier one holds."""
    why = "is not known yet" if code in SAFE else f"may not hold: {code.name}"
    return request.response(
        ResponseCode.SYSTEM_ERROR, f"what was decided before {why}; decide again"
    )


def _decided(request: RemotingCommand, known: State, state: State) -> RemotingCommand:
    """Returns the answer to a decision for a half message that is already decided as `known`."""
    remark = f"it was {_WORDS[known]} before"
    if known is state:
        return request.response(remark=remark)
    return request.response(ResponseCode.ILLEGAL_OPERATION, remark)
