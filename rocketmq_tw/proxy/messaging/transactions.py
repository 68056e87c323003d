"""Transactions: where half messages stand, and the calls that decide about them.

A client decides by the id of its transaction, which names the place of the half message. A broker
that asks stores the half message anew, or another one does that was given it, so the proxy that
hands the question on (`orphans`) remembers the new place for a while: the client's first id may be
what its decision comes with. Ids of messages are the clients' own, and several may have one: a
place that stands behind the one that is remembered is not given up for it.
"""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import check_broker, client_topic
from rocketmq_tw.proxy.messaging.decisions import (
    DECISION_SECONDS,
    MOST_DECISIONS,
    Decisions,
    PlacedHalf,
)
from rocketmq_tw.proxy.messaging.methods import in_time, path, seconds_left, unary
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok
from rocketmq_tw.proxy.messaging.transaction_ids import TransactionId, parse_transaction_id
from rocketmq_tw.proxy.proto.messages import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    TransactionResolution,
    TransactionSource,
)
from rocketmq_tw.runtime.recent import RecentValues
from rocketmq_tw.wire.headers.send import EndTransactionRequestHeader

#: Half messages that are remembered; brokers ask about those that are forgotten.
MOST_HALVES = 200_000
#: Seconds for which a call waits for the answer to its decision.
DECIDE_SECONDS = 3.0

_DECISIONS = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK,
}


class HalfPlaces:
    """Where half messages stand that brokers asked about, by topic and id of the message; the last
    question counts."""

    def __init__(self, clock: IReactorTime, keep_seconds: float) -> None:
        self._asked = RecentValues[tuple[str, str], TransactionId](clock, keep_seconds, MOST_HALVES)
        #: Those that were decided since. A client's own decision may come much later, with its
        #: first id.
        self._decided = RecentValues[tuple[str, str], TransactionId](
            clock, DECISION_SECONDS, MOST_DECISIONS
        )

    def __len__(self) -> int:
        return len(self._asked) + len(self._decided)

    def remember(self, topic: str, place: TransactionId) -> None:
        """Notes where a half message stands."""
        self._asked.put((topic, place.unique_id), place)

    def keep(self, topic: str, place: TransactionId) -> None:
        """Remembers for longer a place that a broker asked about: it is being decided."""
        key = (topic, place.unique_id)
        if self._asked.get(key) == place:
            self._asked.discard(key)
            self._decided.put(key, place)

    def find(self, topic: str, unique_id: str) -> TransactionId | None:
        """Returns where a half message stands; None where that is not known any more."""
        key = (topic, unique_id)
        return self._asked.get(key) or self._decided.get(key)


class TransactionDecisions:
    """Answers EndTransaction."""

    def __init__(self, clock: IReactorTime, brokers: IBrokers, halves: HalfPlaces) -> None:
        self._clock = clock
        self._brokers = brokers
        self._halves = halves
        self._decisions = Decisions(clock, brokers)

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
        seconds = seconds_left(call, self._clock, DECIDE_SECONDS)
        self._halves.keep(topic, place)
        decided = self._decisions.decide(PlacedHalf(topic, place), header)
        missing = f"{place.broker_name} has not answered the decision"
        await in_time(decided, seconds, self._clock, missing, "decide again")
        return EndTransactionResponse(status=ok())

    def _place_of(self, topic: str, transaction_id: str) -> TransactionId:
        named = parse_transaction_id(transaction_id)
        if named is not None and self._decisions.are_there(PlacedHalf(topic, named)):
            return named
        found = self._halves.find(topic, transaction_id if named is None else named.unique_id)
        if found is not None and (named is None or _is_newer(found, named)):
            return found
        if named is None:
            raise StatusError(
                Code.INVALID_TRANSACTION_ID,
                f"this proxy does not know the transaction {transaction_id[:100]} of {topic}, or"
                " no more: decide when the broker asks about it",
            )
        check_broker(self._brokers, named.broker_name)
        return named


def _is_newer(found: TransactionId, named: TransactionId) -> bool:
    """Returns whether a place may be that of a later copy; where brokers differ, one gave it to the
    other."""
    return found.broker_name != named.broker_name or found.log_offset > named.log_offset
