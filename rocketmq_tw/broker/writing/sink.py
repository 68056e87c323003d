"""Puts the messages that the broker makes itself where they belong.

Delay levels, timers, transactions, pops and messages that consumers send back all store messages
that no producer sent to this broker just now. They put them into the broker's only sink and do not
ask whose log takes them: a master stores them itself, a slave that acts for its master ("Slave
Acting Master") sends them to another broker of the cluster. Rules for acting masters:
docs/acting.md, "What happens to what waits".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from twisted.internet.defer import Deferred, fail
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Attribute, Interface, implementer

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.writing.commit import SAFE, STORED, AppendLast, Commit, refusal_of
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

log = Logger()


class PutResult(NamedTuple):
    """How a put ended, and the place that the message got, or would have got."""

    code: ResponseCode
    appended: Appended

    @property
    def is_stored(self) -> bool:
        """Whether the message is in the log; what was promised of it need not hold yet."""
        return self.code in STORED

    @property
    def is_safe(self) -> bool:
        """Whether the message is in the log, and what the configuration promises holds."""
        return self.code in SAFE


class IMessageSink(Interface):
    """Takes messages to be stored."""

    is_one_log: bool = Attribute(
        "Whether what is put stands in one log in the order in which it was put: none is stored"
        " where one in front of it is lost."
    )

    def put(message: StoredMessage, *, wait: bool = False) -> Deferred[PutResult]:
        """Stores `message`; fires once it is written, with `wait` once flush and replicas have what
        the configuration promises, also where that did not succeed: the result tells. Fails with
        `RequestError` where the message is refused, and with any other error where something else
        goes wrong, which a local log does before it returns; it never raises."""

    def at_turn_end(
        compose: Callable[[], StoredMessage | None],
    ) -> Deferred[PutResult | None]:
        """Calls `compose` at the end of this reactor turn, once all else of it is in the sink: the
        turn's one write also takes what `compose` puts, and behind that the message that it
        returns. Fires once that message is written, with None where it returned None. Fails with
        what it raised, or with `RequestError` where its message is refused; at once, and without a
        call, where the sink has no such write."""


class Attempt(NamedTuple):
    """How one attempt ended to store a message that must be stored in the end."""

    is_stored: bool
    #: Why it was not; empty where it was.
    why: str = ""
    #: No sink will ever take the message: what stands behind it must not wait for that.
    is_hopeless: bool = False


def attempt(put: Deferred[PutResult]) -> Deferred[Attempt]:
    """Fires with how `put` ended; it never fails. What is no refusal is logged."""

    def refused(failure: Failure) -> Attempt:
        error = failure.value
        if isinstance(error, RequestError):
            return Attempt(False, error.remark, error.code == ResponseCode.MESSAGE_ILLEGAL)
        log.failure("storing a message of the broker's own failed", failure=failure)
        return Attempt(False, repr(error))

    return put.addCallbacks(
        lambda result: Attempt(True) if result.is_stored else Attempt(False, result.code.name),
        refused,
    )


@implementer(IMessageSink)
class LocalLog:
    """Puts messages into the broker's own log."""

    is_one_log = True

    def __init__(self, commit: Commit) -> None:
        self._commit = commit

    def put(self, message: StoredMessage, *, wait: bool = False) -> Deferred[PutResult]:
        """See `IMessageSink`."""
        ended: Deferred[PutResult] = Deferred()

        def done(code: ResponseCode, appended: Appended) -> None:
            ended.callback(PutResult(code, appended))

        try:
            self._commit.append(message, done, wait=wait)
        except Exception:
            # A refusal is a failed Deferred, never raised.
            return fail()
        return ended

    def at_turn_end(
        self, compose: Callable[[], StoredMessage | None]
    ) -> Deferred[PutResult | None]:
        """See `IMessageSink`."""
        ended: Deferred[PutResult | None] = Deferred()

        def done(code: ResponseCode, appended: Appended) -> None:
            ended.callback(PutResult(code, appended))

        def last(append: AppendLast) -> None:
            try:
                message = compose()
                if message is not None:
                    append(message, done)
            except Exception:
                ended.errback()
            else:
                if message is None:
                    ended.callback(None)

        self._commit.append_last(last)
        return ended


@implementer(IMessageSink)
class SinkOfRole:
    """Puts messages into the sink of the role that the broker has at that moment; refuses them with
    SERVICE_NOT_AVAILABLE in a role without one."""

    def __init__(self, holder: RoleHolder, sinks: Mapping[Role, IMessageSink]) -> None:
        self._holder = holder
        #: Role -> where it puts messages. A part that reaches other brokers adds its own.
        self.sinks = dict(sinks)

    @property
    def is_one_log(self) -> bool:
        """See `IMessageSink`; what is refused is in none."""
        sink = self.sinks.get(self._holder.role)
        return sink is None or sink.is_one_log

    def put(self, message: StoredMessage, *, wait: bool = False) -> Deferred[PutResult]:
        """See `IMessageSink`."""
        sink = self.sinks.get(self._holder.role)
        return self._refused() if sink is None else sink.put(message, wait=wait)

    def at_turn_end(
        self, compose: Callable[[], StoredMessage | None]
    ) -> Deferred[PutResult | None]:
        """See `IMessageSink`."""
        sink = self.sinks.get(self._holder.role)
        return self._refused() if sink is None else sink.at_turn_end(compose)

    def _refused(self) -> Deferred:
        return fail(refusal_of(self._holder.role))
