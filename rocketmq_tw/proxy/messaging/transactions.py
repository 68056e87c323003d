"""Transactions: where half messages stand, and the decisions about them.

A client decides by the id of its transaction, which names the place of the half message. A broker
that asks stores the half message anew, or another one does that was given it, so the proxy that
hands the question on (`orphans`) remembers the new place for a while: the client's first id may be
what its decision comes with. Ids of messages are the clients' own, and several may have one: a
place that stands behind the one that is remembered is not given up for it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import check_broker, client_topic
from rocketmq_tw.proxy.messaging.methods import path, seconds_left, unary
from rocketmq_tw.proxy.messaging.statuses import StatusError, broker_status, ok
from rocketmq_tw.proxy.messaging.transaction_ids import TransactionId, parse_transaction_id
from rocketmq_tw.proxy.proto.messages import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    TransactionResolution,
    TransactionSource,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import EndTransactionRequestHeader

#: Half messages that are remembered; brokers ask about those that are forgotten.
MOST_HALVES = 200_000
#: Seconds that a broker gets for a decision.
DECIDE_SECONDS = 3.0

_DECISIONS = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}

#: How brokers begin a refusal where the id names no half message of the topic: they have one code
#: for this and for what is their own fault.
_NO_HALF_MESSAGE = (
    "Find prepared transaction message failed",
    "The producer group wrong",
    "The transaction state table offset wrong",
    "The commit log offset wrong",
)


class HalfPlace(NamedTuple):
    """Where a half message stands: offsets in the queue of half messages and in the log, and until
    when that is remembered, in seconds."""

    broker_name: str
    queue_offset: int
    log_offset: int
    until: float


class HalfPlaces:
    """Half messages that brokers asked about, by topic and id of the message; the last question
    counts."""

    def __init__(self, clock: IReactorTime, keep_seconds: float) -> None:
        self._clock = clock
        self._keep_seconds = keep_seconds
        #: Those that are remembered longest are behind the others. In a dictionary the first one
        #: would be looked for behind all that are gone.
        self._places: OrderedDict[tuple[str, str], HalfPlace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def remember(
        self, topic: str, transaction_id: str, broker_name: str, queue_offset: int, log_offset: int
    ) -> None:
        """Notes where a half message stands."""
        places, now = self._places, self._clock.seconds()
        places.pop((topic, transaction_id), None)
        while places:
            oldest = next(iter(places))
            if len(places) < MOST_HALVES and places[oldest].until > now:
                break
            del places[oldest]
        until = now + self._keep_seconds
        places[topic, transaction_id] = HalfPlace(broker_name, queue_offset, log_offset, until)

    def find(self, topic: str, transaction_id: str) -> HalfPlace | None:
        """Returns where a half message stands; None where that is not known any more. It stays
        known, since a client may repeat its decision."""
        place = self._places.get((topic, transaction_id))
        return place if place is not None and place.until > self._clock.seconds() else None


class TransactionDecisions:
    """Answers EndTransaction."""

    def __init__(self, clock: IReactorTime, brokers: IBrokers, halves: HalfPlaces) -> None:
        self._clock = clock
        self._brokers = brokers
        self._halves = halves

    def methods(self) -> Methods:
        return {
            path("EndTransaction"): unary(EndTransactionRequest, EndTransactionResponse, self._end)
        }

    async def _end(self, request: EndTransactionRequest, call: ICall) -> EndTransactionResponse:
        topic = client_topic(request.topic)
        transaction_id = request.transaction_id
        if not transaction_id.strip():
            raise StatusError(
                Code.INVALID_TRANSACTION_ID, "no transaction id: give that of the send's result"
            )
        decision = _DECISIONS.get(request.resolution)
        if decision is None:
            if request.resolution != TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED:
                raise StatusError(
                    Code.BAD_REQUEST,
                    f"{request.resolution} is no resolution: give COMMIT or ROLLBACK",
                )
            # Not decided yet: the broker asks again.
            return EndTransactionResponse(status=ok())
        place = self._place_of(topic, transaction_id)
        header = EndTransactionRequestHeader(
            producer_group=topic,
            tran_state_table_offset=place.queue_offset,
            commit_log_offset=place.log_offset,
            commit_or_rollback=decision,
            msg_id=request.message_id,
            topic=topic,
            from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
            transaction_id=place.unique_id,
            bname=place.broker_name,
        )
        command = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
        timeout = seconds_left(call, self._clock, DECIDE_SECONDS)
        answer = await self._brokers.ask(place.broker_name, command, timeout)
        remark = answer.remark or ""
        if answer.code == ResponseCode.SYSTEM_ERROR and remark.startswith(_NO_HALF_MESSAGE):
            raise StatusError(Code.INVALID_TRANSACTION_ID, remark)
        return EndTransactionResponse(status=broker_status(answer.code, answer.remark))

    def _place_of(self, topic: str, transaction_id: str) -> TransactionId:
        named = parse_transaction_id(transaction_id)
        unique_id = transaction_id if named is None else named.unique_id
        found = self._halves.find(topic, unique_id)
        if found is not None and (named is None or _is_newer(found, named)):
            return TransactionId(unique_id, *found[:3])
        if named is None:
            raise StatusError(
                Code.INVALID_TRANSACTION_ID,
                f"this proxy does not know the transaction {transaction_id[:100]} of {topic}, or"
                " no more: decide when the broker asks about it",
            )
        check_broker(self._brokers, named.broker_name)
        return named


def _is_newer(found: HalfPlace, named: TransactionId) -> bool:
    """Returns whether a place may be that of a later copy; where brokers differ, one gave it to the
    other."""
    return found.broker_name != named.broker_name or found.log_offset > named.log_offset
