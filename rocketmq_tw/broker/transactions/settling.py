"""How half messages leave: committed, rolled back, put back for another check, or given up.

Whatever a half message becomes is appended first; the op message that says that it is settled is
the last record of the same turn, so both are written with one call. A crash can only tear the log
between the two, at its very end: then `takeover` finds the message without its op and writes that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.transactions.book import HalfBook, State
from rocketmq_tw.broker.transactions.halves import (
    Half,
    asked_again,
    given_up,
    op_message,
    real_message,
    resumed,
)
from rocketmq_tw.broker.writing.commit import STORED, AppendLast, Commit
from rocketmq_tw.broker.writing.redirects import Draft, Redirects
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC
from rocketmq_tw.message.properties import waits_for_store
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Seconds until op messages that the store did not take are tried again.
RETRY_DELAY = 1.0
#: What a half message has that the real one is not redirected by.
_OF_HALVES = frozenset({props.TRAN_MSG, props.REAL_TOPIC, props.REAL_QID})

#: Told of a half message that is settled for good, with what became of it.
Settled = Callable[[Half, State], None]
#: Told of the offset of one that waits again, since the log did not take what would settle it.
Reopened = Callable[[int], None]

log = Logger()


class Settling:
    """Settles the half messages of one `book`."""

    def __init__(
        self,
        book: HalfBook,
        commit: Commit,
        redirects: Redirects,
        config: BrokerConfig,
        clock: IReactorTime,
        store_host: Callable[[], tuple[str, int]],
        now_ms: Callable[[], int],
        settled: Settled,
        reopened: Reopened,
        put_in_queue: Callable[[StoredMessage], None],
    ) -> None:
        """`put_in_queue` is told of each copy that goes to the queue's end."""
        self.book = book
        self._commit = commit
        self._redirects = redirects
        self._config = config
        self._clock = clock
        self._store_host = store_host
        self._now_ms = now_ms
        self._settled = settled
        self._reopened = reopened
        self._put_in_queue = put_in_queue
        self._ops: list[int] = []
        self._ops_size = 0
        self._asked = False
        self._waiting: list[Deferred[ResponseCode]] = []
        self._stopped = False
        self._retry: IDelayedCall | None = None

    def stop(self) -> None:
        """Nothing is settled, or tried again, any more."""
        self._stopped = True
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        waiting, self._waiting = self._waiting, []
        for written in waiting:
            written.errback(_no_master())

    def commit(self, half: Half, current: int, *, wait: bool = False) -> Deferred[ResponseCode]:
        """Stores the real message of `half`, for which the copy at `current` stands; fires with how
        that ended, with `wait` once it is safe, whatever the message says. Raises `RequestError`
        where the store refuses, settling nothing."""
        self._check()
        message = real_message(half)
        properties = {
            name: value for name, value in half.properties.items() if name not in _OF_HALVES
        }
        if not self._redirects.properties.isdisjoint(properties):
            draft = Draft(message, properties)
            if self._redirects.route_by_property(draft):
                draft.write_properties()
        wait = wait or waits_for_store(half.properties)
        return self._replace(half, current, message, State.COMMITTED, wait=wait)

    def roll_back(self, half: Half, current: int) -> Deferred[ResponseCode]:
        """Fires with how it ended once the log says so of the copy at `current`; fails where it
        cannot."""
        self._check()
        self.settle(current, State.ROLLED_BACK)
        self._finished(half, State.ROLLED_BACK)
        return self._ops_written()

    @inlineCallbacks
    def safe(self) -> Generator[Deferred[ResponseCode], ResponseCode, ResponseCode]:
        """Fires once all that is settled by now is as safe as an answer to it promises, with how
        that ended (see `Commit.safe`); what the log did not take is pending again by then. Fails
        with `RequestError` where the broker is no master any more, or stores nothing."""
        self._check()
        code = yield self._ops_written() if self._waiting else self._commit.safe()
        self._check()
        return code

    def _check(self) -> None:
        if self._stopped:
            raise _no_master()

    def _ops_written(self) -> Deferred[ResponseCode]:
        """Fires once the op messages that are asked for are written and safe."""
        written: Deferred[ResponseCode] = Deferred()
        self._waiting.append(written)
        return written

    def put_back(self, half: Half, checks: int) -> tuple[StoredMessage, Deferred[ResponseCode]]:
        """Puts a copy at the queue's end that counts `checks`; gives it and fires with how that
        ended. Raises as `commit` does."""
        copy = asked_again(half, checks)
        origin = half.origin
        done = self._replace(half, half.offset, copy, State.MOVED, wait=False)
        self._put_in_queue(copy)
        self.book.moved(origin, copy.queue_offset)
        return copy, done

    def resume(self, half: Half) -> Deferred[ResponseCode]:
        """Puts a copy at the queue's end of which no check counts; fires and raises as `commit`
        does."""
        copy, ended = resumed(half), Deferred[ResponseCode]()
        if half.message.topic == HALF_TOPIC and self.book.is_pending(half.offset):
            ended = self._replace(half, half.offset, copy, State.MOVED, wait=True)
        else:
            self._commit.append(copy, lambda code, _: ended.callback(code))
        self._put_in_queue(copy)
        if half.names_origin or half.message.topic == HALF_TOPIC:
            self.book.moved(half.origin, copy.queue_offset)
        return ended

    def give_up(self, half: Half) -> Deferred[ResponseCode]:
        """Moves it to where nobody is asked any more; fires and raises as `commit` does."""
        return self._replace(half, half.offset, given_up(half), State.GIVEN_UP, wait=False)

    def settle(self, offset: int, state: State) -> None:
        """Writes, at the turn's end, that one is settled."""
        self.book.settle(offset, state)
        size = len(str(offset)) + 1
        most = self._config.transaction_op_msg_max_size
        if self._ops and self._ops_size + size > most:
            # Now, so that no op message stands behind what only a later one says to be settled.
            self._write_ops(lambda message, done: self._commit.append(message, done, wait=False))
        self._ops.append(offset)
        self._ops_size += size
        self._ask_for_end()

    def _replace(
        self, half: Half, offset: int, message: StoredMessage, state: State, *, wait: bool
    ) -> Deferred[ResponseCode]:
        ended: Deferred[ResponseCode] = Deferred()

        def done(code: ResponseCode, appended: Appended) -> None:
            if code not in STORED and self.book.reopen(offset):
                if state is State.MOVED:
                    self.book.moved(half.origin, offset)
                self._reopened(offset)
            else:
                self._finished(half, state)
            ended.callback(code)

        self._commit.append(message, done, wait=wait)
        self.settle(offset, state)
        return ended

    def _finished(self, half: Half, state: State) -> None:
        if state is not State.MOVED:
            self.book.forget_copies(half.origin)
            self._settled(half, state)

    # Op messages

    def _ask_for_end(self) -> None:
        if not self._asked:
            self._asked = True
            self._commit.append_last(self._turn_ends)

    def _turn_ends(self, append: AppendLast) -> None:
        self._asked = False
        if self._ops:
            self._write_ops(append)

    def _write_ops(self, append: AppendLast) -> None:
        offsets, self._ops, self._ops_size = self._ops, [], 0
        waiting, self._waiting = self._waiting, []

        def done(code: ResponseCode, appended: Appended) -> None:
            if code in STORED:
                for offset in offsets:
                    self.book.confirm(offset)
                self.book.op_written(appended.queue_offset, max(offsets))
                if waiting:
                    maybeDeferred(self._commit.safe).addBoth(_tell, waiting)
            else:
                self._not_written(offsets, waiting)

        try:
            append(op_message(offsets, self._store_host(), self._now_ms()), done)
        except RequestError as error:
            log.warn("{n} half messages are not noted as settled: {why}", n=len(offsets), why=error)
            self._not_written(offsets, waiting)
        except Exception:
            log.failure("{n} half messages are not noted as settled", n=len(offsets))
            self._not_written(offsets, waiting)

    def _not_written(self, offsets: list[int], waiting: list[Deferred[ResponseCode]]) -> None:
        """What stands in the log without its op is said again; what does not is pending by now."""
        again = [offset for offset in offsets if self.book.is_unwritten(offset)]
        self._ops = again + self._ops
        self._ops_size = sum(len(str(offset)) + 1 for offset in self._ops)
        self._waiting = waiting + self._waiting
        if self._ops and not (self._retry and self._retry.active()):
            self._retry = self._clock.callLater(RETRY_DELAY, self._ask_for_end)


def _no_master() -> RequestError:
    return RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is no master any more")


def _tell(result: ResponseCode | Failure, waiting: Sequence[Deferred[ResponseCode]]) -> None:
    for each in waiting:
        each.callback(result)
