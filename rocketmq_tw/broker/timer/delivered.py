"""What stands behind a place of the log and was delivered by the timer: that waits again.

Delivered messages say so in their properties, but so may any message of a client, or a copy that an
application made. What is claimed counts only where the timer's own entry for it is found, or the
message that waited in the timer's topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.timer.rules import TimerRules
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import number, parse_properties
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.store.timer.timer_files import TimerFiles

#: Records that are looked at in one step, and entries of the timer log.
SLICE = 500
#: Claims that are kept before they are compared with the timer log.
MOST_CLAIMS = 10_000
#: As many messages of the timer's topic are looked through for what waited for nothing.
MOST_BACK = 10_000
#: Stock's mark of a message that it delivered without letting it wait.
_NEVER = (1 << 63) - 1


class _Claim(NamedTuple):
    """What a message that waited and the one that was delivered have in common."""

    topic: str
    queue_id: str | None
    out: int
    unique_id: str | None
    #: How often it had rolled before; -1 for what was delivered to its own topic.
    rolls: int = -1


class Delivered:
    """Finds out about what stands behind a place of the log."""

    def __init__(
        self, store: IMessageStore, rules: TimerRules, files: TimerFiles, read_ms: int
    ) -> None:
        """`read_ms`: before which slot all is delivered."""
        self._store = store
        self._rules = rules
        self._files = files
        self._least = read_ms - rules.furthest_ms
        #: The first slot of which something was delivered; None where there is none.
        self.first: int | None = None
        #: The first message in the timer's topic that was delivered without having waited.
        self.first_at_once: int | None = None
        #: Slot -> what is said to have waited for it.
        self._claims: dict[int, set[_Claim]] = defaultdict(set)
        self._count = 0
        #: The same, of what is said never to have waited.
        self._never_waited: dict[int, set[_Claim]] = defaultdict(set)
        self._never_count = 0

    def look(self, position: int) -> Iterator[None]:
        """Goes through the log from `position` on, in steps; nobody writes meanwhile."""
        for count, head in enumerate(self._store.records(position), 1):
            if b"TIMER_DEQUEUE_MS" in head.properties:
                self._see(head)
            if self._count >= MOST_CLAIMS:
                yield from self._compare(position)
            if count % SLICE == 0:
                yield
        yield from self._compare(position)
        for slot, claims in self._never_waited.items():
            yield from self._strike_out(slot, claims, position, only_one=False)
        yield from self._find(position)

    def _see(self, head: RecordHead) -> None:
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
        if write == _NEVER:
            if not rolled and claim.out >= self._least and self._never_count < MOST_CLAIMS:
                self._never_waited[claim.out].add(claim)
                self._never_count += 1
            return
        # It waited for its own slot, for a part of the time, or, late, for the first one left.
        for slot in {claim.out, write, rules.target(claim.out, write)[0]}:
            is_slot = slot >= self._least and slot == rules.slot_of(slot)
            if is_slot and (self.first is None or slot < self.first):
                self._claims[slot].add(claim)
                self._count += 1

    def _compare(self, end: int) -> Iterator[None]:
        """Finds the first slot of which a claim holds; those of later ones are of no interest."""
        for slot in sorted(self._claims):
            if self.first is not None and slot >= self.first:
                break
            claims = self._claims[slot]
            before = len(claims)
            yield from self._strike_out(slot, claims, end, only_one=True)
            if len(claims) < before:
                self.first = slot
        self._claims.clear()
        self._count = 0

    def _strike_out(
        self, slot: int, claims: set[_Claim], end: int, *, only_one: bool
    ) -> Iterator[None]:
        """Takes the claims out that the entries of a slot confirm, or one of them; only messages in
        front of `end` count."""
        found = self._files.wheel.get(slot)
        if found is None:
            return
        rules, hashes = self._rules, {java_hash_code(claim.topic) for claim in claims}
        for count, (_, unit) in enumerate(self._files.log.reader().chain(found.last), 1):
            fits = unit.offset < end and unit.topic_hash in hashes
            if fits and rules.slot_of(unit.time_ms) == slot:
                claim = self._waited(unit.offset, rolls=unit.rolls)
                if claim in claims:
                    claims.discard(claim)
                    if only_one:
                        return
            if not claims:
                return
            if count % SLICE == 0:
                yield

    def _waited(self, offset: int, *, rolls: bool) -> _Claim | None:
        """What a message at a place of the log says that it waits for."""
        message = self._store.message_at(offset)
        if message is None or message.topic != TIMER_TOPIC:
            return None
        properties = parse_properties(message.properties)
        claim = _claim(properties)
        if claim is None or not rolls:
            return claim
        return claim._replace(rolls=number(properties.get(props.TIMER_ROLL_TIMES)) or 0)

    def _find(self, position: int) -> Iterator[None]:
        """Finds the messages that never waited, not far in front of what was delivered."""
        store = self._store
        wanted: set[_Claim] = set().union(*self._never_waited.values())
        end = store.queue_end_at(TIMER_TOPIC, 0, position)
        offset = store.max_queue_offset(TIMER_TOPIC, 0) if end is None else end
        least = max(store.min_queue_offset(TIMER_TOPIC, 0), offset - MOST_BACK)
        while wanted and offset > least:
            offset -= 1
            for unit in store.queue_units(TIMER_TOPIC, 0, offset, 1):
                claim = self._waited(unit.position, rolls=False)
                if claim in wanted:
                    wanted.discard(claim)
                    self.first_at_once = offset
            if offset % 50 == 0:
                yield


def _claim(properties: Mapping[str, str]) -> _Claim | None:
    topic, out = properties.get(props.REAL_TOPIC), number(properties.get(props.TIMER_OUT_MS))
    if topic is None or out is None:
        return None
    return _Claim(topic, properties.get(props.REAL_QID), out, properties.get(props.UNIQ_KEY))
