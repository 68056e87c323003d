"""Acknowledgements that come together are stored together.

A consumer acknowledges the messages of a pop at about the same time, and stock's clients send a
request for each. The revive topic has one record for those of a reactor turn, the `bAck` that a
batch acknowledgement is stored as (docs/formats/pop.md).

These requests differ in nothing but the offset, and in the last word of the extra info, which is
the offset too. So one of them is read and checked, and the others are taken for their likeness.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence

from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.handlers import refusal
from rocketmq_tw.broker.pop.check_points import ReviveLog, check_stored
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.message.extra_info import SEPARATOR
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.turns import IReactorTurns
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAckMsg
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Messages of one record; a pop gives 32.
MOST_MESSAGES = 128
NO_OFFSETS = range(0)

#: A request, and the peer that its answer goes to.
_Asked = tuple[RemotingCommand, IPeer]

#: An offset as clients write it, which means one number however it is read.
_plain_offset = re.compile("0|[1-9][0-9]{0,17}").fullmatch
#: Separators of an extra info of which the last of eight parts is the offset.
_SEPARATORS = 7

log = Logger()


class _Gathered:
    """Acknowledgements of one check point, the first of which is `first`."""

    __slots__ = ("alike", "asked", "first", "key", "offsets", "revive_queue_id")

    def __init__(self, key: Hashable, first: AckMsg, revive_queue_id: int) -> None:
        self.key = key
        self.first = first
        self.revive_queue_id = revive_queue_id
        self.offsets: list[int] = []
        self.asked: list[_Asked] = []
        #: The offsets of requests that may be taken for their likeness.
        self.alike = NO_OFFSETS

    def as_one(self) -> AckMsg:
        """Returns one acknowledgement of all messages."""
        first = self.first
        if len(self.offsets) == 1:
            return first
        return BatchAckMsg(
            ack_offset=-1,
            ack_offsets=self.offsets,
            broker_name=first.broker_name,
            group=first.group,
            pop_time=first.pop_time,
            queue_id=first.queue_id,
            start_offset=first.start_offset,
            topic=first.topic,
        )


class GatheredAcks:
    """Gathers the acknowledgements of a reactor turn, puts them into `revive_log` at its end, and
    answers their requests once they are stored."""

    def __init__(self, revive_log: ReviveLog, turns: IReactorTurns) -> None:
        self._revive_log = revive_log
        self._turns = turns
        #: By revive queue and all that names the check point.
        self._gathered: dict[Hashable, _Gathered] = {}
        #: By what requests that are alike have in common.
        self._alike: dict[Hashable, _Gathered] = {}

    def put(
        self,
        ack: AckMsg,
        revive_queue_id: int,
        request: RemotingCommand,
        peer: IPeer,
        alike: range = NO_OFFSETS,
    ) -> None:
        """Stores the acknowledgement of one message, and answers `request` then. `alike`: for these
        offsets `put_alike` takes requests of this turn that are like it."""
        if not self._gathered:
            # Written and flushed with all else of the turn, where that goes into one log.
            last = self._revive_log.at_turn_end(self._store_all)
            last.addErrback(lambda _: self._turns.at_turn_end(self._store_all))
        key = _key_of(ack, revive_queue_id)
        gathered = self._gathered.get(key)
        if gathered is None:
            gathered = self._gathered[key] = _Gathered(key, ack, revive_queue_id)
        if alike:
            common = _in_common(request.ext_fields)
            if common is not None and common[-1].count(SEPARATOR) == _SEPARATORS:
                gathered.alike = alike
                self._alike[common] = gathered
        self._add(gathered, ack.ack_offset, request, peer)

    def has(self, ack: AckMsg, revive_queue_id: int) -> bool:
        """Returns whether the message of an acknowledgement is being acknowledged in this turn."""
        gathered = self._gathered.get(_key_of(ack, revive_queue_id))
        return gathered is not None and ack.ack_offset in gathered.offsets

    def put_alike(self, request: RemotingCommand, peer: IPeer) -> bool:
        """Does what `put` does with a request that is like a former one of this turn; False, and
        nothing is done, where it has to be read."""
        fields = request.ext_fields
        gathered = self._alike.get(_in_common(fields)) if self._alike else None
        if gathered is None:
            return False
        offset = int(fields["offset"])
        if offset not in gathered.alike:
            return False
        self._add(gathered, offset, request, peer)
        return True

    def _add(self, gathered: _Gathered, offset: int, request: RemotingCommand, peer: IPeer) -> None:
        gathered.offsets.append(offset)
        gathered.asked.append((request, peer))
        if len(gathered.offsets) == MOST_MESSAGES:
            gathered.alike = NO_OFFSETS
            del self._gathered[gathered.key]
            self._store(gathered)

    def _store_all(self) -> None:
        gathered, self._gathered, self._alike = self._gathered, {}, {}
        for of_one in gathered.values():
            self._store(of_one)

    def _store(self, gathered: _Gathered) -> None:
        put = self._revive_log.put_ack(gathered.as_one(), gathered.revive_queue_id)
        put.addBoth(_answer, gathered.asked)


def _key_of(ack: AckMsg, revive_queue_id: int) -> Hashable:
    """Returns all that names the check point of an acknowledgement."""
    return (
        revive_queue_id,
        ack.topic,
        ack.group,
        ack.queue_id,
        ack.start_offset,
        ack.pop_time,
        ack.broker_name,
    )


def _in_common(fields: Mapping[str, str]) -> tuple[str | None, str | None, str | None, str] | None:
    """Returns what the header of an acknowledgement has in common with others of its check point:
    all but the offset, as text. None where it does not end with the offset."""
    offset, info = fields.get("offset", ""), fields.get("extraInfo", "")
    if not info.endswith(SEPARATOR + offset) or _plain_offset(offset) is None:
        return None
    return (
        fields.get("consumerGroup"),
        fields.get("topic"),
        fields.get("queueId"),
        info[: -len(offset)],
    )


def _answer(result: PutResult | Failure, asked: Sequence[_Asked]) -> None:
    """Answers requests whose acknowledgements were put with this result."""
    failure = result if isinstance(result, Failure) else None
    if isinstance(result, PutResult):
        try:
            check_stored(result)
        except RequestError:
            failure = Failure()
    for request, peer in asked:
        try:
            peer.reply(request.response() if failure is None else refusal(failure, request, peer))
        except Exception:
            log.failure("answering an acknowledgement of {peer} failed", peer=peer.address)
