"""The two ports of the receiver service: messages to Spark's receiver, confirmations of jobs."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet import protocol
from twisted.protocols.basic import LineOnlyReceiver
from twisted.protocols.policies import TimeoutMixin
from twisted.python.failure import Failure

from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.spark.dstreams.blocks import encode_block
from rocketmq_tw.spark.dstreams.control import (
    MAX_CONTROL_LINE,
    Answer,
    ControlError,
    decode_confirmation,
)
from rocketmq_tw.spark.dstreams.records import Record
from rocketmq_tw.spark.dstreams.unconfirmed import Unconfirmed
from rocketmq_tw.structs import msgspec

#: How long records wait for others to share a block, and how many may.
_BLOCK_SECONDS = 0.05
_BLOCK_RECORDS = 500
_BLOCK_BYTES = 1024 * 1024
_IDLE_SECONDS = 60


class Owner(Protocol):
    """The service, as the ports ask it."""

    reactor: Any
    #: What every confirmation has to bring; empty where nothing is asked for.
    secret: str
    unconfirmed: Unconfirmed

    def feed_connected(self, feed: ReceiverFeed) -> None: ...

    def feed_lost(self, feed: ReceiverFeed) -> None: ...


class ReceiverFeed(protocol.Protocol):
    """The connection of Spark's receiver: gets all that is open, then what comes."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._waiting: list[Record] = []
        self._waiting_bytes = 0
        self._flushing = Alarm(owner.reactor, self._flush)

    def connectionMade(self) -> None:
        self._owner.feed_connected(self)

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        self._flushing.cancel()
        self._owner.feed_lost(self)

    def give(self, record: Record) -> None:
        """Sends the record, with others that come at nearly the same time."""
        self._waiting.append(record)
        self._waiting_bytes += len(record.body)
        if len(self._waiting) >= _BLOCK_RECORDS or self._waiting_bytes >= _BLOCK_BYTES:
            self._flush()
        else:
            self._flushing.set_if_unset(_BLOCK_SECONDS)

    def drop(self) -> None:
        assert self.transport is not None
        self.transport.abortConnection()  # type: ignore[attr-defined]

    def _flush(self) -> None:
        records, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        if records:
            assert self.transport is not None
            self.transport.write(encode_block(records))


class ControlPort(LineOnlyReceiver, TimeoutMixin):
    """The connection of a job that confirms."""

    delimiter = b"\n"
    MAX_LENGTH = MAX_CONTROL_LINE

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def connectionMade(self) -> None:
        self.setTimeout(_IDLE_SECONDS)

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        self.setTimeout(None)

    def lineReceived(self, line: bytes) -> None:
        self.resetTimeout()
        try:
            request = decode_confirmation(line, self._owner.secret)
        except ControlError as error:
            answer = Answer(error=str(error))
        else:
            count = self._owner.unconfirmed.confirm(request.ranges())
            answer = Answer(confirmed=count, open=len(self._owner.unconfirmed))
        self.sendLine(msgspec.json.encode(answer))
