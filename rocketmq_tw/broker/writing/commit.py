"""Writes appended messages at the end of a turn, and answers their senders when that is safe.

All appends of one reactor turn are written with one call at its end. Then their answers leave
together and they are dispatched, before the next requests are read: a client that has its answer
finds its message, unless thousands of keys would keep others waiting.

When `done` is called, what flushDiskType and brokerRole promise holds: with ASYNC_FLUSH the
operating system has the bytes, with SYNC_FLUSH they are on stable storage; and where there is a
replicator, so many replicas have them as it waits for. Promises: docs/durability.md, "Answers that
wait for disk and replicas".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, fail, inlineCallbacks, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.writing.append_times import AppendTimes
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.broker.writing.flush import Flusher
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.replication.interfaces import IReplicator
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.failures import FailuresInARow
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.turns import turns_of
from rocketmq_tw.store.errors import IllegalMessageError, NotWritableError, StoreError
from rocketmq_tw.store.interface import Appended, IMessageStore
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Called once with how an append ended. FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT and
#: SLAVE_NOT_AVAILABLE mean that the message is stored but the promise is not kept yet.
Done = Callable[[ResponseCode, Appended], None]
#: Appends one message to the turn that is about to be written, in any role; raises `RequestError`.
AppendLast = Callable[[StoredMessage, Done], None]

#: Codes of `Done` by which the message is in the log.
STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
#: The codes of `STORED` after which nothing takes the message any more. After the others a power
#: loss, or the next master, may.
SAFE = STORED - {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT}

log = Logger()


def _call_directly(work: Callable[..., None], *args: Any) -> None:
    work(*args)


#: What to call with the end of an append, its place, and whether it waits for disk and replicas.
_Entry = tuple[Done, Appended, bool]


class _Waiting:
    """Appends of one turn that wait together for the disk or for replicas."""

    __slots__ = ("began", "end_offset", "entries", "flush_code", "replica_code", "timeout")

    def __init__(self, entries: list[_Entry], began: float) -> None:
        self.entries = entries
        self.began = began
        self.end_offset = entries[-1][1].end_offset
        self.flush_code: ResponseCode | None = ResponseCode.SUCCESS
        self.replica_code: ResponseCode | None = ResponseCode.SUCCESS
        self.timeout: Alarm | None = None


class Commit:
    """Appends messages to the store, and tells when they are stored and safe.

    A failed write ends all appends of its turn with SYSTEM_ERROR, a failed sync all that wait for
    one; the store decides what it accepts after that.
    """

    def __init__(
        self,
        store: IMessageStore,
        config: MessageStoreConfig,
        clock: IReactorTime,
        flusher: Flusher,
        dispatcher: Dispatcher,
        role: RoleHolder,
        *,
        gather: Callable[..., None] = _call_directly,
    ) -> None:
        """`gather` carries out what writes to many peers (`Listener.gather`)."""
        self._gather = gather
        self._at_turn_end = turns_of(clock).at_turn_end
        self._store = store
        self._config = config
        self._clock = clock
        self._flusher = flusher
        self._dispatcher = dispatcher
        self._role = role
        #: Asked about each message that waits, while there is one.
        self.replicator: IReplicator | None = None
        #: Whether it is asked about the others as well: what it does not confirm may be lost.
        self.all_wait = False
        self._written = Listeners[()]("the log was written")
        self._appends: list[_Entry] = []
        self._turn_is_open = False
        self._is_ending_turn = False
        #: When the first append of the turn came. One look at the clock serves all of them.
        self._turn_began = 0.0
        self.times = AppendTimes()
        self._last_appends: list[Callable[[AppendLast], None]] = []
        self._stopped = False
        self._write_failures = FailuresInARow(
            log, "the log could not be written, and what this turn appended is refused"
        )
        #: Why the last write of the log failed; empty where it did not.
        self.failure = ""
        # With SYNC_FLUSH the store shows messages only once they are durable.
        flusher.on_round(dispatcher.dispatch)

    def stop(self) -> Deferred[None]:
        """Accepts nothing any more; fires once all that was accepted is durable and answered."""
        self._stopped = True
        self._dispatcher.stop()
        self._write_now()
        self._dispatcher.dispatch_waiting()
        self._flusher.when_flushed(self._store.end_offset, lambda _durable: None)
        return self._flusher.stop()

    def on_written(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` after each write of the log, before anyone is answered; what is
        returned ends that."""
        return self._written.add(callback)

    def append(
        self,
        message: StoredMessage,
        done: Done,
        *,
        batch: Batch | None = None,
        wait: bool = True,
    ) -> None:
        """Appends one message, or instead of it a batch (see `IMessageStore.append`); `done` is
        called later with how it ended.

        `wait` False: answered once written, whatever flush and replicas are configured to be.
        Raises `RequestError` where the store refuses; then `done` is not called.
        """
        self._check(wait=wait)
        try:
            appended = self._store.append(message, batch=batch)
        except StoreError as error:
            raise self._refused(error) from error
        self._appends.append((done, appended, wait))
        if not self._turn_is_open:
            self._open_turn()

    def append_if_accepted(self, message: StoredMessage, done: Done, *, wait: bool) -> bool:
        """Appends one message as `append` does; False where that would refuse it. Nothing is
        counted then: `append` tells why."""
        try:
            self._check(wait=wait)
            appended = self._store.append(message)
        except (RequestError, StoreError, OSError):
            return False
        self._appends.append((done, appended, wait))
        if not self._turn_is_open:
            self._open_turn()
        return True

    @property
    def answers_in_turn(self) -> bool:
        """Whether what is appended now is answered when this turn of the reactor ends, and waits
        neither for a disk nor for replicas."""
        return self.replicator is None and self._config.flush_disk_type != "SYNC_FLUSH"

    def safe(self) -> Deferred[ResponseCode]:
        """Fires with how a message would end that is appended now and waits; appends none. All that
        was appended before is as safe by then as messages are promised to be, and in its queues as
        far as those may show it. Raises `RequestError` where `append` does."""
        self._check(wait=True)
        end = self._store.end_offset
        safe: Deferred[ResponseCode] = Deferred()

        def done(code: ResponseCode, _: Appended) -> None:
            if self._store.dispatched_offset < end:
                self._dispatcher.dispatch()
            safe.callback(code)

        entry = (done, Appended(end, end, 0, 0, ""), True)
        if self._turn_is_open:
            self._appends.append(entry)
        elif self.answers_in_turn:
            done(ResponseCode.SUCCESS, entry[1])
        else:
            self._answer_or_wait([entry], self._clock.seconds())
        return safe

    def _check(self, *, wait: bool) -> None:
        """Raises `RequestError` where nothing may be appended now."""
        if self._stopped:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is stopping")
        if not self._role.is_master:
            raise refusal_of(self._role.role)
        if wait and (refusal := self.refusal_for_replicas()):
            raise RequestError(ResponseCode.SYSTEM_ERROR, refusal)

    def refusal_for_replicas(self) -> str:
        """Says why a master takes no message that waits for replicas now; empty while it does."""
        if self.replicator is None or not self._role.is_master:
            return ""
        return self.replicator.refusal()

    def append_last(self, callback: Callable[[AppendLast], None]) -> None:
        """Calls `callback` once when all else of this turn is appended: what it appends, by what it
        is called with or by `append`, is written with that, behind it. `done` of the former is
        called once it is written."""
        self._last_appends.append(callback)
        if not self._turn_is_open:
            self._open_turn()

    def append_raw(self, offset: int, data: bytes) -> Deferred[int]:
        """Appends a master's bytes to the log of this slave and writes them at once; fires as
        `settled` does. Fails with the `StoreError` that refuses."""
        if self._stopped:
            return fail(NotWritableError("the broker is stopping"))
        try:
            self._store.append_raw(offset, data)
            self._write()
        except StoreError as error:
            return fail(error)
        self._dispatcher.dispatch_later()
        return self.settled()

    def confirmed(self) -> None:
        """Fills the queues at once where the store's dispatch limit has moved on: a master's
        readers see what it held back before senders are told that it is safe."""
        if not self._role.is_master:
            self._dispatcher.dispatch_later()
        elif not self._is_ending_turn:
            self._gather(self._dispatcher.dispatch)

    def settled(self) -> Deferred[int]:
        """Fires with the log's end, as written now, once all before it is as safe as flushDiskType
        promises; fails with `NotWritableError`."""
        end = self._store.written_offset
        if self._config.flush_disk_type != "SYNC_FLUSH":
            return succeed(end)
        settled: Deferred[int] = Deferred()

        def flushed(durable: bool) -> None:
            if durable:
                settled.callback(end)
            else:
                settled.errback(NotWritableError("the log could not be made durable"))

        self._flusher.when_flushed(end, flushed)
        return settled

    def flushed(self) -> Deferred[bool]:
        """Fires once all that is appended by now is on stable storage: True, or False where that
        cannot be."""
        self._write_now()
        durable: Deferred[bool] = Deferred()
        self._flusher.when_flushed(self._store.end_offset, durable.callback)
        return durable

    @inlineCallbacks
    def make_durable(self) -> Generator[Deferred[bool], Any, None]:
        """Fires as `flushed` does; fails with `NotWritableError` where that cannot be."""
        if not (yield self.flushed()):
            raise NotWritableError("the log could not be made durable: see its first failure")

    def _refused(self, error: StoreError) -> RequestError:
        """Counts an append that the store refused; returns what its sender is told."""
        self.times.failed += 1
        if isinstance(error, IllegalMessageError):
            return RequestError(ResponseCode.MESSAGE_ILLEGAL, str(error))
        return RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, str(error))

    def _open_turn(self) -> None:
        self._turn_is_open = True
        self._turn_began = self._clock.seconds()
        self._at_turn_end(self._write_now)

    def _write_now(self) -> None:
        if self._turn_is_open:
            self._end_turn()

    def _append_last(self) -> None:
        def append(message: StoredMessage, done: Done) -> None:
            try:
                appended = self._store.append(message)
            except StoreError as error:
                raise self._refused(error) from error
            self._appends.append((done, appended, False))

        callbacks, self._last_appends = self._last_appends, []
        for callback in callbacks:
            try:
                callback(append)
            except Exception:
                log.failure("appending the last of a turn failed")

    def _end_turn(self) -> None:
        if self._last_appends:
            self._append_last()
        self._turn_is_open = False
        appends, self._appends = self._appends, []
        began = self._turn_began
        try:
            self._write()
        except Exception:
            self._write_failures.failed(Failure())
            self._answer_all(appends, ResponseCode.SYSTEM_ERROR, began)
            return
        self._write_failures.succeeded()
        self._is_ending_turn = True
        self._written.tell()
        self._is_ending_turn = False
        if self.answers_in_turn:
            self._answer_all(appends, ResponseCode.SUCCESS, began)
        else:
            self._answer_or_wait(appends, began)
        # Senders go on meanwhile.
        self._gather(self._dispatcher.dispatch)

    def _write(self) -> None:
        try:
            self._store.write_pending()
        except Exception as error:
            self.failure = str(error)
            raise
        self.failure = ""

    def _answer_or_wait(self, appends: list[_Entry], began: float) -> None:
        entries = appends if self.all_wait else [entry for entry in appends if entry[2]]
        if len(entries) < len(appends):
            at_once = [entry for entry in appends if not entry[2]]
            self._answer_all(at_once, ResponseCode.SUCCESS, began)
        if not entries:
            return
        waiting = _Waiting(entries, began)
        sync_flush = self._config.flush_disk_type == "SYNC_FLUSH"
        if sync_flush:
            waiting.flush_code = None
        if self.replicator is not None:
            waiting.replica_code = None
            # Only those who must wait have one; the role may have changed since the append.
            replicated = self.replicator.wait(waiting.end_offset)
            replicated.addErrback(self._replication_failed)
            replicated.addCallback(self._replicated, waiting)
        if sync_flush:
            waiting.timeout = Alarm(
                self._clock,
                partial(self._flush_ended, waiting, ResponseCode.FLUSH_DISK_TIMEOUT),
            )
            waiting.timeout.set(self._config.sync_flush_timeout / 1000)
            self._flusher.when_flushed(
                waiting.end_offset,
                lambda durable: self._flush_ended(
                    waiting, ResponseCode.SUCCESS if durable else ResponseCode.SYSTEM_ERROR
                ),
            )

    def _replicated(self, code: int, waiting: _Waiting) -> None:
        waiting.replica_code = ResponseCode(code)
        self._settle(waiting)

    def _replication_failed(self, failure: Failure) -> int:
        log.failure("asking the replicas failed", failure=failure)
        return ResponseCode.SYSTEM_ERROR

    def _flush_ended(self, waiting: _Waiting, code: ResponseCode) -> None:
        if waiting.timeout is not None:
            waiting.timeout.cancel()
        if waiting.flush_code is None:
            waiting.flush_code = code
            self._settle(waiting)

    def _settle(self, waiting: _Waiting) -> None:
        flush, replica = waiting.flush_code, waiting.replica_code
        if flush is None or replica is None:
            return
        flush_counts = flush is ResponseCode.SYSTEM_ERROR or replica is ResponseCode.SUCCESS
        entries, waiting.entries = waiting.entries, []
        self._answer_all(entries, flush if flush_counts else replica, waiting.began)

    def _answer_all(self, entries: Sequence[_Entry], code: ResponseCode, began: float) -> None:
        times = self.times
        times.count(len(entries), self._clock.seconds() - began)
        if code is not ResponseCode.SUCCESS and code not in STORED:
            times.failed += len(entries)
        self._gather(_call_all, entries, code)


def refusal_of(role: Role) -> RequestError:
    """Returns the refusal of a message in a role that stores none."""
    return RequestError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"a broker that is {role.words} stores nothing: send to the master",
    )


def _call_all(entries: Sequence[_Entry], code: ResponseCode) -> None:
    for done, appended, _ in entries:
        try:
            done(code, appended)
        except Exception:
            log.failure("answering the append at {at} failed", at=appended.physical_offset)
