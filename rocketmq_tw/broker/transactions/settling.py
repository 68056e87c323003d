"""Settles half messages: they are committed, rolled back, put back for another check, or given up.

The message that a half message becomes is stored first; the op message that says that it is settled
is the last record of the same turn, so both are written with one call. A crash can only tear the
log between the two, at its very end: then `takeover.py` finds the message without its op message,
and that is written then (docs/formats/transactions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.transactions.book import HalfBook, State
from rocketmq_tw.broker.transactions.halves import (
    Half,
    asked_again,
    given_up,
    op_message,
    real_message,
    resumed,
)
from rocketmq_tw.broker.writing.commit import STORED
from rocketmq_tw.broker.writing.incoming import RETURN_PREFIXES
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Draft
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC
from rocketmq_tw.message.properties import waits_for_store
from rocketmq_tw.message.types import TRANSACTION_TYPE
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Properties of a half message by which the real one is not redirected.
_OF_HALVES = frozenset({props.TRAN_MSG, props.REAL_TOPIC, props.REAL_QID})

log = Logger()


class SettlingObserver(Protocol):
    """Hears what becomes of half messages."""

    def put_back(self, copy: StoredMessage) -> None:
        """Hears that the log took `copy` at the end of the half messages' queue; it may not be
        written."""
        ...

    def reopened(self, offset: int) -> None:
        """Hears that the half message at `offset` is pending again: the log did not take what would
        have settled it."""
        ...

    def settled(self, half: Half, state: State) -> None:
        """Notes that `half` is settled for good."""
        ...


class _Ops:
    """Half messages that one op message will name, and those who wait until it is safe."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.size = 0
        self.safe = Waiters[ResponseCode]()


def _size_of(offset: int) -> int:
    """Bytes that an op message takes for an offset."""
    return len(str(offset)) + 1


class Settling:
    """Settles the half messages of `book` until `scope`, the role's, is over.

    Where a method says that it fires, it is with a code as `PutResult` has it.
    """

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        writing: Writing,
        book: HalfBook,
        observer: SettlingObserver,
        scope: Scope,
    ) -> None:
        self.book = book
        self._host = host
        self._addresses = addresses
        self._writing = writing
        self._observer = observer
        self._scope = scope
        self._ops = _Ops()
        #: Whether `_ops` are to be written at the end of this turn.
        self._is_due = False
        self._retry = Alarm(host.reactor, self._write_at_turn_end)
        scope.on_end(self._stop)

    def _stop(self) -> None:
        self._retry.cancel()
        self._ops.safe.fire(Failure(role_is_over()))

    def commit(
        self,
        half: Half,
        current: int,
        done: Callable[[ResponseCode], object],
        *,
        wait: bool = False,
    ) -> None:
        """Stores the real message of `half`, whose last copy is at `current`; `done` is called once
        it is stored, or with `wait`, or where the message wants that, once it is safe. Raises
        `RequestError` where the store refuses, settling nothing.

        It goes straight to the log, which is a master's here: most half messages end so, and the
        sink would choose the same at a cost (ARCHITECTURE.md, *Send*).
        """
        self._check()
        message = real_message(half)
        redirects = self._writing.redirects
        if not half.properties.keys() & redirects.properties <= _OF_HALVES:
            properties = {
                name: value for name, value in half.properties.items() if name not in _OF_HALVES
            }
            draft = Draft(message, properties)
            if redirects.route_by_property(draft):
                draft.write_properties()
        topic = message.topic

        def ended(code: ResponseCode, appended: Appended) -> None:
            if code in STORED:
                if not topic.startswith(RETURN_PREFIXES):
                    self._writing.incoming.count(topic, TRANSACTION_TYPE, 1, appended)
                self._finished(half, State.COMMITTED)
            else:
                self._failed(half, current, State.COMMITTED)
            done(code)

        self._writing.commit.append(message, ended, wait=wait or waits_for_store(half.properties))
        self.settle(current, State.COMMITTED)

    def roll_back(self, half: Half, current: int) -> Deferred[ResponseCode]:
        """Fires once the log safely says that `half`, whose last copy is at `current`, is rolled
        back. Raises, or fails with, `RequestError` where it cannot."""
        self._check()
        self.settle(current, State.ROLLED_BACK)
        self._finished(half, State.ROLLED_BACK)
        return self._ops.safe.wait()

    @inlineCallbacks
    def safe(self) -> Generator[Deferred[ResponseCode], ResponseCode, ResponseCode]:
        """Fires once all that is settled by now is as safe as an answer to it promises (see
        `Commit.safe`); a half message that the log did not settle is pending again by then. Fails
        with `RequestError` where the broker is no master any more, or stores nothing."""
        self._check()
        code = yield self._ops.safe.wait() if self._ops.safe else self._writing.commit.safe()
        self._check()
        return code

    def put_back(self, half: Half, checks: int) -> tuple[StoredMessage, Deferred[ResponseCode]]:
        """Puts a copy at the queue's end that counts `checks`; returns it, and what fires once it
        is stored. Raises as `commit` does."""
        copy = asked_again(half, checks)
        origin = half.origin
        stored = self._replace(half, half.offset, copy, State.MOVED, wait=False)
        self._observer.put_back(copy)
        self.book.moved(origin, copy.queue_offset)
        return copy, stored

    def resume(self, half: Half) -> Deferred[ResponseCode]:
        """Puts a copy at the queue's end that counts no check; fires once it is safe. Raises as
        `commit` does."""
        copy = resumed(half)
        if half.message.topic == HALF_TOPIC and self.book.is_pending(half.offset):
            safe = self._replace(half, half.offset, copy, State.MOVED, wait=True)
        else:
            safe = self._put(copy, wait=True).addCallback(lambda result: result.code)
        self._observer.put_back(copy)
        if half.names_origin or half.message.topic == HALF_TOPIC:
            self.book.moved(half.origin, copy.queue_offset)
        return safe

    def give_up(self, half: Half) -> Deferred[ResponseCode]:
        """Moves the half message to the topic of undecided ones that are given up; fires once it is
        stored. Raises as `commit` does."""
        return self._replace(half, half.offset, given_up(half), State.GIVEN_UP, wait=False)

    def settle(self, offset: int, state: State) -> None:
        """Makes the half message at `offset` settled, and writes that at the turn's end."""
        self.book.settle(offset, state)
        size = _size_of(offset)
        most = self._host.config.transaction_op_msg_max_size
        if self._ops.offsets and self._ops.size + size > most:
            # Now, so that no op message stands behind a message that only a later one settles.
            ops = self._take_ops()
            put = self._writing.sink.put(self._op_message(ops))
            put.addCallbacks(self._op_ended, self._op_refused, (ops,), errbackArgs=(ops,))
        self._ops.offsets.append(offset)
        self._ops.size += size
        self._write_at_turn_end()

    def _check(self) -> None:
        if self._scope.is_over:
            raise role_is_over()

    def _put(self, message: StoredMessage, *, wait: bool) -> Deferred[PutResult]:
        """Raises `RequestError` where the sink refuses at once."""
        put = self._writing.sink.put(message, wait=wait)
        refusals: list[Failure] = []
        if put.called:
            put.addErrback(refusals.append)
        if refusals:
            refusals[0].raiseException()
        return put

    def _replace(
        self, half: Half, offset: int, message: StoredMessage, state: State, *, wait: bool
    ) -> Deferred[ResponseCode]:
        def ended(result: PutResult) -> ResponseCode:
            if result.is_stored:
                self._finished(half, state)
            else:
                self._failed(half, offset, state)
            return result.code

        def refused(failure: Failure) -> Failure:
            self._reopen(half, offset, state)
            return failure

        put = self._put(message, wait=wait)
        self.settle(offset, state)
        return put.addCallbacks(ended, refused)

    def _failed(self, half: Half, offset: int, state: State) -> None:
        """Takes back that it is settled, unless the log says so."""
        if not self._reopen(half, offset, state):
            self._finished(half, state)

    def _reopen(self, half: Half, offset: int, state: State) -> bool:
        """Makes it pending again, unless the log says that it is settled."""
        if not self.book.reopen(offset):
            return False
        if state is State.MOVED:
            self.book.moved(half.origin, offset)
        self._observer.reopened(offset)
        return True

    def _finished(self, half: Half, state: State) -> None:
        if state is not State.MOVED:
            self.book.forget_copies(half.origin)
            self._observer.settled(half, state)

    # Op messages

    def _write_at_turn_end(self) -> None:
        """Has the last record of this turn name all that is settled by then, and by none yet."""
        if self._is_due or self._scope.is_over:
            return
        self._is_due = True
        ops = _Ops()

        def compose() -> StoredMessage | None:
            nonlocal ops
            self._is_due = False
            if not self._ops.offsets:
                return None
            ops = self._take_ops()
            return self._op_message(ops)

        def refused(failure: Failure) -> None:
            self._is_due = False
            self._op_refused(failure, ops)

        put = self._writing.sink.at_turn_end(compose)
        put.addCallbacks(lambda result: self._op_ended(result, ops), refused)

    def _take_ops(self) -> _Ops:
        ops, self._ops = self._ops, _Ops()
        return ops

    def _op_message(self, ops: _Ops) -> StoredMessage:
        return op_message(ops.offsets, self._addresses.store_host, self._host.now_ms())

    def _op_ended(self, result: PutResult | None, ops: _Ops) -> None:
        if result is None:
            return
        if not result.is_stored:
            self._not_written(ops)
            return
        self.book.confirm(ops.offsets)
        self.book.op_written(result.appended.queue_offset, max(ops.offsets))
        if ops.safe:
            maybeDeferred(self._writing.commit.safe).addBoth(ops.safe.fire)

    def _op_refused(self, failure: Failure, ops: _Ops) -> None:
        count = len(ops.offsets)
        if isinstance(failure.value, RequestError):
            why = failure.value.remark
            log.warn("{n} half messages are not noted as settled: {why}", n=count, why=why)
        else:
            log.failure("{n} half messages are not noted as settled", failure=failure, n=count)
        self._not_written(ops)

    def _not_written(self, ops: _Ops) -> None:
        """Notes half messages again whose message is in the log without the op message; the other
        ones are pending again by now."""
        if self._scope.is_over:
            ops.safe.fire(Failure(role_is_over()))
            return
        later = self._ops
        again = [offset for offset in ops.offsets if self.book.is_unwritten(offset)]
        later.offsets = again + later.offsets
        later.size += sum(map(_size_of, again))
        if ops.safe:
            later.safe.wait().addBoth(ops.safe.fire)
        if later.offsets:
            self._retry.set_if_unset(RETRY_USUAL)


def role_is_over() -> RequestError:
    """Returns the refusal of a decision once the role is over."""
    return RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is no master any more")
