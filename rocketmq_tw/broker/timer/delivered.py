"""Finds the deliveries of the timer that a cut takes off the log: their messages wait again.

Delivered messages say so in their properties, but so may any message of a client, or a copy that an
application made. Such a claim counts only where the timer's own entry for it is found, or the
message that waited in the timer's topic (docs/formats/timers.md, "The order of things").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rocketmq_tw.broker.assembly.truncation import LogCut
from rocketmq_tw.broker.timer.books import TimerBooks
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import number, parse_properties
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.store.interface import IMessageStore

#: Entries of the timer log that are looked at in one step.
SLICE = 500
#: Claims that are kept until they are compared with the timer log, and all that are kept.
MOST_COMPARED = 10_000
MOST_CLAIMS = 100_000
#: Messages of the timer's topic that are searched, at most, for those that have no entry here.
_MOST_BACK = 30_000
#: TIMER_ENQUEUE_MS where stock delivered a message without letting it wait.
_NEVER = (1 << 63) - 1


class _Claim(NamedTuple):
    """The properties that a message in the timer's topic and its delivery have in common."""

    topic: str
    queue_id: str | None
    out: int
    unique_id: str | None
    #: How often it had rolled before; -1 for a delivery to its own topic.
    rolls: int = -1


class DeliveredBehind:
    """Looks through what `cut` takes away; `find` tells the result."""

    def __init__(self, store: IMessageStore, books: TimerBooks, cut: LogCut) -> None:
        self._cut = cut
        cut.need_messages_of(TIMER_TOPIC)
        cut.observe(self._look_at)
        self._store = store
        self._rules = books.rules
        self._files = books.files
        #: The first slot of which something was delivered; None where there is none.
        self.first: int | None = None
        #: The first message in the timer's topic that was delivered and has no entry here: a slave
        #: hears of those late that wait for a short time, and stock lets some not wait at all.
        self.first_missing: int | None = None
        #: Slot -> the claims of messages that may have waited for it.
        self._claims: dict[int, set[_Claim]] = defaultdict(set)
        self._count = 0
        #: All claims, or as many as there is room for.
        self._all: set[_Claim] = set()

    def _look_at(self, head: RecordHead) -> Iterator[None] | None:
        if b"TIMER_DEQUEUE_MS" in head.properties:
            self._note_claim(head)
        return self._compare() if self._count >= MOST_COMPARED else None

    def find(self) -> Iterator[None]:
        """Finds `first` and `first_missing`, in steps, once the cut's end of the log was gone
        through; nothing may be added to the timer's files meanwhile."""
        yield from self._compare()
        yield from self._find_missing()

    def _note_claim(self, head: RecordHead) -> None:
        rules = self._rules
        properties = parse_properties(head.properties)
        write = number(properties.get(props.TIMER_ENQUEUE_MS))
        claim = _claim(properties)
        if write is None or claim is None:
            return
        rolled = head.topic == TIMER_TOPIC
        if rolled:
            rolls = number(properties.get(props.TIMER_ROLL_TIMES)) or 0
            claim = claim._replace(rolls=rolls - 1)
        elif (head.topic, str(head.queue_id)) != (claim.topic, claim.queue_id):
            return
        # However long ago: it may have been delivered late, or by a clock that was behind.
        if claim.out >= 0 and len(self._all) < MOST_CLAIMS:
            self._all.add(claim)
        if write == _NEVER:
            return
        # It waited for its own slot, for a part of the time, or, late, for the first one left.
        for slot in {claim.out, write, rules.target(claim.out, write)[0]}:
            is_slot = slot >= 0 and slot == rules.slot_of(slot)
            if is_slot and (self.first is None or slot < self.first):
                self._claims[slot].add(claim)
                self._count += 1

    def _compare(self) -> Iterator[None]:
        """Finds the first slot of which a claim holds; later slots need no look."""
        for slot in sorted(self._claims):
            if self.first is not None and slot >= self.first:
                break
            if self._files.wheel.get(slot) is not None:
                yield from self._confirm(slot, self._claims[slot])
        self._claims.clear()
        self._count = 0

    def _confirm(self, slot: int, claims: set[_Claim]) -> Iterator[None]:
        """Looks for an entry of `slot` with one of `claims`, whose message the cut does not take
        away."""
        found = self._files.wheel.get(slot)
        assert found is not None
        rules, hashes = self._rules, {java_hash_code(claim.topic) for claim in claims}
        for count, (_, unit) in enumerate(self._files.log.reader().chain(found.last), 1):
            fits = unit.topic_hash in hashes and rules.slot_of(unit.time_ms) == slot
            if (
                fits
                and 0 <= unit.offset < self._cut.end
                and self._claim_at(unit.offset, unit.rolls) in claims
            ):
                self.first = slot
                return
            if count % SLICE == 0:
                yield

    def _claim_at(self, offset: int, rolls: bool) -> _Claim | None:
        """Returns the claim that the delivery of a waiting message, at a place of the log, would
        make."""
        message = self._store.message_at(offset)
        if message is None or message.topic != TIMER_TOPIC:
            return None
        properties = parse_properties(message.properties)
        claim = _claim(properties)
        if claim is None or not rolls:
            return claim
        return claim._replace(rolls=number(properties.get(props.TIMER_ROLL_TIMES)) or 0)

    def _find_missing(self) -> Iterator[None]:
        """Finds the first message without an entry, among the last ones in front of the cut."""
        store, wanted, cut = self._store, self._all, self._cut
        offset = cut.end_of(TIMER_TOPIC, 0)
        least = max(store.min_queue_offset(TIMER_TOPIC, 0), offset - _MOST_BACK)
        first = cut.position(TIMER_TOPIC, 0, least)
        if not wanted or first is None:
            return
        entered: dict[int, int] = {}
        yield from self._files.offsets_from(first, entered)
        while wanted and offset > least:
            offset -= 1
            position = cut.position(TIMER_TOPIC, 0, offset)
            if position is not None and position not in entered:
                claims = {self._claim_at(position, rolls) for rolls in (False, True)}
                if claims & wanted:
                    wanted -= claims
                    self.first_missing = offset
            if offset % 50 == 0:
                yield


def _claim(properties: Mapping[str, str]) -> _Claim | None:
    topic, out = properties.get(props.REAL_TOPIC), number(properties.get(props.TIMER_OUT_MS))
    if topic is None or out is None:
        return None
    return _Claim(topic, properties.get(props.REAL_QID), out, properties.get(props.UNIQ_KEY))
