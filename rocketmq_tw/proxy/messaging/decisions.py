"""Decisions about half messages: each of them is decided once.

A broker of stock's looks in its log alone: it stores a message again that is committed again, or
committed after it was rolled back. So a proxy remembers what brokers answered, and does not ask
them about the same once more. Brokers of ours know what was decided.
"""

from __future__ import annotations

from typing import NamedTuple

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocketmq_tw.net.errors import ConnectError, RemotingError
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.messaging.transaction_ids import TransactionId
from rocketmq_tw.proxy.proto.messages import Code
from rocketmq_tw.runtime.recent import RecentValues
from rocketmq_tw.runtime.shared_results import JoinedResults
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import LanguageCode, RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import EndTransactionRequestHeader
from rocketmq_tw.wire.headers.topics import GetTopicConfigRequestHeader

#: Decisions that are remembered, some 500 bytes each, and for how many seconds: a client may commit
#: long after its checker has.
MOST_DECISIONS = 100_000
DECISION_SECONDS = 3600.0
#: Decisions that brokers have not answered.
MOST_UNDER_WAY = 10_000
#: Seconds for which the answer of a broker is waited for, however long its client waits: one that
#: is missed leaves unknown what was decided.
_ANSWER_SECONDS = 15.0
#: Seconds in which a broker has to say whose it is.
_KIND_SECONDS = 3.0

#: How brokers begin a refusal where the id names no half message of the topic: they have one code
#: for this and for what is their own fault.
_NO_HALF_MESSAGE = (
    "Find prepared transaction message failed",
    "The producer group wrong",
    "The transaction state table offset wrong",
    "The commit log offset wrong",
)
#: How our brokers begin a refusal of what was decided otherwise; they have its code also for a
#: decision that comes too late, and for what another broker asks about.
_OTHERWISE = ("it was committed", "it was rolled back")
_WORDS = {TRANSACTION_COMMIT: "committed", TRANSACTION_ROLLBACK: "rolled back"}
_OTHERS = {TRANSACTION_COMMIT: TRANSACTION_ROLLBACK, TRANSACTION_ROLLBACK: TRANSACTION_COMMIT}


class PlacedHalf(NamedTuple):
    """A half message of a topic, and where it stands."""

    topic: str
    place: TransactionId


class _Decision(NamedTuple):
    """`is_certain`: whether the broker has answered that it took it."""

    value: int
    is_certain: bool


class Decisions:
    """Has brokers commit half messages or roll them back; each of them hears of it once."""

    def __init__(self, clock: IReactorTime, brokers: IBrokers) -> None:
        self._brokers = brokers
        self._known = RecentValues[PlacedHalf, _Decision](clock, DECISION_SECONDS, MOST_DECISIONS)
        self._under_way = JoinedResults[tuple[PlacedHalf, int], None]()

    def are_there(self, half: PlacedHalf) -> bool:
        """Returns whether a half message is decided, as far as is known here, or a broker is being
        asked to do so."""
        known = self._known.get(half)
        if known is not None and known.is_certain:
            return True
        return any((half, value) in self._under_way for value in _WORDS)

    def decide(self, half: PlacedHalf, header: EndTransactionRequestHeader) -> Deferred[None]:
        """Fires once a half message is decided as `header` says, by now or before. Fails with
        `RequestError` or `StatusError` for what its broker refuses, with `StatusError` where it was
        decided otherwise or may be decided, with `RemotingError` where no answer comes. Where it is
        cancelled the broker's answer counts all the same for those that ask later."""
        value = header.commit_or_rollback
        known = self._known.get(half)
        if known is not None and known.is_certain:
            if known.value == value:
                return succeed(None)
            return fail(_otherwise(half, "was", known.value))
        if (half, _OTHERS[value]) in self._under_way:
            return fail(_otherwise(half, "is being", _OTHERS[value]))
        if len(self._under_way) >= MOST_UNDER_WAY and (half, value) not in self._under_way:
            return fail(StatusError(Code.TOO_MANY_REQUESTS, "brokers are slow to take decisions"))
        return self._under_way.get(
            (half, value), lambda: Deferred.fromCoroutine(self._ask(half, header))
        )

    async def _ask(self, half: PlacedHalf, header: EndTransactionRequestHeader) -> None:
        value, name = header.commit_or_rollback, half.place.broker_name
        doubted = self._known.get(half)
        if doubted is not None and not await self._may_ask_again(half, doubted.value, value):
            raise StatusError(
                Code.INVALID_TRANSACTION_ID,
                f"broker {name} did not say whether {half.place.unique_id} was"
                f" {_WORDS[doubted.value]}: unless it was, the broker asks about it",
            )
        request = RemotingCommand.request(RequestCode.END_TRANSACTION, header)
        try:
            answer = await self._brokers.ask(name, request, _ANSWER_SECONDS)
        except ConnectError:
            raise
        except RemotingError:
            self._known.put(half, _Decision(value, is_certain=False))
            raise
        if answer.code == ResponseCode.SUCCESS:
            self._known.put(half, _Decision(value, is_certain=True))
            return
        remark = answer.remark or ""
        if answer.code == ResponseCode.ILLEGAL_OPERATION and remark.startswith(_OTHERWISE):
            # At another proxy, or by its checker.
            raise StatusError(Code.INVALID_TRANSACTION_ID, remark)
        if answer.code == ResponseCode.SYSTEM_ERROR:
            if remark.startswith(_NO_HALF_MESSAGE):
                raise StatusError(Code.INVALID_TRANSACTION_ID, remark)
            # It may have failed behind what it stored.
            self._known.put(half, _Decision(value, is_certain=False))
        raise RequestError(answer.code, remark)

    async def _may_ask_again(self, half: PlacedHalf, before: int, value: int) -> bool:
        """Returns whether a broker that was told `before` and did not answer may be told `value`:
        a second rollback changes nothing, all else needs a broker that knows what was decided."""
        if before == value == TRANSACTION_ROLLBACK:
            return True
        header = GetTopicConfigRequestHeader(topic=half.topic)
        request = RemotingCommand.request(RequestCode.GET_TOPIC_CONFIG, header)
        answer = await self._brokers.ask(half.place.broker_name, request, _KIND_SECONDS)
        # Servers of ours say PYTHON in their answers, stock's say JAVA.
        return answer.language is LanguageCode.PYTHON


def _otherwise(half: PlacedHalf, when: str, value: int) -> StatusError:
    return StatusError(
        Code.INVALID_TRANSACTION_ID,
        f"{half.place.unique_id} {when} {_WORDS[value]}: a transaction is decided once",
    )
