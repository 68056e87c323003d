"""A model of what a message store promised: what its queues must have, and what they may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from zlib import crc32

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.queue_extension import UnitExtra
from rocketmq_tw.store.queue_units import UNIT_SIZE
from tests.support.stores import by_key, read_all, small_config

TOPICS = ("A", "B", "C")
QUEUE_IDS = (0, 1)
UNITS_PER_FILE = small_config().mapped_file_size_consume_queue // UNIT_SIZE


class Broken(AssertionError):
    """The store did not keep what it promised."""


@dataclass
class Kept:
    """A message of the model: its body, and where its record stands in the log."""

    body: bytes
    start: int
    end: int


Queues = dict[int, list[Kept]]


@dataclass
class Topic:
    """A topic since it was made: what its queues have, and what they had before deletions that may
    be lost with the power (`former`)."""

    queues: Queues = field(default_factory=lambda: {n: [] for n in QUEUE_IDS})
    former: list[Queues] = field(default_factory=list)
    #: Whether the last deletion was written in part or cut short, so that nothing says which holds.
    unsure: bool = False
    #: What its queues have as long as the log does not reach `begun`, where the first message ends
    #: that tells a copy of the topic's deletion.
    before: Queues | None = None
    begun: int = 0
    #: What queues that got no message since may have instead of nothing: nothing that is left may
    #: tell that theirs are of the topic that was deleted.
    stale: Queues = field(default_factory=dict)
    #: Of which queues that is left as long as the log begins there.
    told: tuple[int, set[int]] = (0, set())

    def begin_anew(self, first: int, oldest: int) -> None:
        """A copy learns of the topic's deletion from the message that queue `first` gets next; the
        log begins at `oldest`. Queues that began behind all others may be of the new topic."""
        old = {n: kept for n, kept in self.queues.items() if kept}
        stay = old.keys() - _gone_with(first, old)
        left = {n: [one for one in kept if one.start >= oldest] for n, kept in old.items()}
        gone = _gone_with(first, {n: kept for n, kept in left.items() if kept})
        if left[first]:
            gone |= {n for n, kept in left.items() if not kept}
        self.before = self.queues
        self.queues = {n: kept if n in stay else [] for n, kept in self.queues.items()}
        self.stale = {n: kept for n, kept in old.items() if n not in stay and n != first}
        self.told = oldest, gone

    def may_have_kept(self, queue_id: int, oldest: int, count: int) -> bool:
        """Whether a queue that ends at `count` may have what it had before."""
        since, gone = self.told
        return 0 < count <= len(self.stale.get(queue_id, ())) and (
            queue_id not in gone or oldest > since
        )


def _gone_with(first: int, queues: Queues) -> set[int]:
    """The ids of queues whose topic was deleted, at the earliest, in front of a message that comes
    into queue `first` of them."""
    gone: set[int] = set()
    end = queues[first][-1].end if first in queues else 0
    for queue_id, kept in sorted(queues.items(), key=lambda one: one[1][0].start):
        if kept[0].start < end:
            gone.add(queue_id)
            end = max(end, kept[-1].end)
    return gone


def key_of(body: bytes) -> str:
    return "k" + body.split()[0].decode()


def bits_of(properties: bytes) -> bytes:
    """What an extension gets of a message: a few bytes or some more, which follow from it."""
    hashed = crc32(properties)
    return hashed.to_bytes(4, "big") * (1 + hashed % 40)


class StoreModel:
    """The topics of a store; `counts` gets what was found that nobody was promised."""

    def __init__(self, counts: Counter[str]) -> None:
        self.topics = {topic: Topic() for topic in TOPICS}
        #: Up to here retention removed the log.
        self.cleaned = 0
        #: Messages that were refused when they were to be written. What a failed write left of them
        #: may be found after a power loss; nobody was promised anything.
        self.refused: dict[bytes, Kept] = {}
        self._counts = counts

    def of(self, names: Iterable[str]) -> list[Topic]:
        """The topics of these names."""
        return [self.topics[name] for name in names]

    def oldest(self, store: MessageStore) -> int:
        """Where the log begins, or began once."""
        return max(store.min_physical_offset, self.cleaned)

    def in_front_of(
        self, name: str, queue_id: int, queue_offset: int, store: MessageStore
    ) -> list[Kept]:
        """What a queue has where a master gives a message that offset."""
        topic = self.topics[name]
        oldest = self.oldest(store)
        if not topic.queues[queue_id] and topic.may_have_kept(queue_id, oldest, queue_offset):
            topic.queues[queue_id] = topic.stale[queue_id]
        topic.stale.pop(queue_id, None)
        return topic.queues[queue_id]

    def record_starts(self, store: MessageStore) -> list[int]:
        """Where the log may be cut: a beginning that a copy has met stays."""
        topics = self.topics.values()
        begun = (topic.begun for topic in topics if topic.begun <= store.end_offset)
        first = max(self.oldest(store), *begun)
        kept = [one for topic in topics for queue in topic.queues.values() for one in queue]
        starts = [one.start for one in kept if one.start >= first and one.end <= store.end_offset]
        ends = [one.end for one in kept if first <= one.end <= store.end_offset]
        return starts or ends[-1:] or [-1]

    def drop_behind(self, end: int) -> None:
        """Nothing behind a log offset is there any more, or ever again."""
        for topic in self.topics.values():
            if topic.before is not None and end < topic.begun:
                topic.queues, topic.before, topic.begun = topic.before, None, 0
                topic.stale = {}
            for queues in (topic.queues, topic.stale, *topic.former):
                for kept in queues.values():
                    while kept and kept[-1].end > end:
                        kept.pop()
        self.refused = {body: one for body, one in self.refused.items() if one.end <= end}

    def forget_behind(self, end: int) -> None:
        for topic in self.topics.values():
            for kept in topic.queues.values():
                while kept and kept[-1].end > end:
                    refused = kept.pop()
                    self.refused[refused.body] = refused

    def settle_deletions(self, store: MessageStore) -> None:
        for topic in self.topics.values():
            if topic.begun <= store.flushed_offset:
                topic.before = None
        if not store.has_unsynced_deletions:
            for topic in self.topics.values():
                if not topic.unsure:
                    topic.former = []

    def check(self, store: MessageStore, promised: int, lost_power: bool) -> None:
        """Compares a store that was opened again; adopts what it has. Raises `Broken`."""
        end = store.end_offset
        for name, topic in self.topics.items():
            if topic.before is not None and end < topic.begun:
                topic.queues, topic.stale = topic.before, {}
            topic.before, topic.begun = None, min(topic.begun, end)
            oldest = self.oldest(store)
            for queue_id, kept in topic.stale.items():
                new = topic.queues[queue_id]
                count = store.max_queue_offset(name, queue_id)
                if (not new or new[0].end > end) and topic.may_have_kept(queue_id, oldest, count):
                    topic.queues[queue_id] = kept
                    self._counts["queues that stayed"] += 1
            topic.stale = {}
            wrong = [self._matches(store, topic.queues, name, promised)]
            if wrong[0] is not None and (lost_power or topic.unsure):
                safe = any(k.end <= promised for kept in topic.queues.values() for k in kept)
                for former in [] if safe else reversed(topic.former):
                    # The deletion is lost, which nobody was told of.
                    wrong.append(self._matches(store, former, name, -1, topic.queues))
                    if wrong[-1] is None:
                        topic.queues = former
                        break
            if wrong[-1] is not None:
                raise Broken("; before its deletion: ".join(map(str, wrong)))
            _adopt(store, name, topic)

    def _matches(
        self,
        store: MessageStore,
        queues: Queues,
        name: str,
        promised: int,
        later: Queues | None = None,
    ) -> str | None:
        """What is wrong where the store has not what the model has; None where all is well, and
        then `queues` has also what nobody was promised and is there. `later`: what was appended
        since these queues were deleted, some of which the log may have."""
        oldest = self.oldest(store)
        wanted = {queue_id: list(kept) for queue_id, kept in queues.items()}
        bodies: set[bytes] = set()
        for queue_id, kept in wanted.items():
            end = store.max_queue_offset(name, queue_id)
            least = sum(one.end <= promised for one in kept)
            found = {m.queue_offset: m for m in read_all(store, name, queue_id)}
            bodies |= {message.body for message in found.values()}
            self._take_unpromised(kept, found, least, (later or {}).get(queue_id, []))
            begins_late = oldest and not found and store.min_queue_offset(name, queue_id) == end
            if begins_late and not least and end > len(kept) and end % UNITS_PER_FILE == 0:
                # A later file of a queue that lost the others: messages may have gone by age.
                kept[:] = [Kept(b"", -1, 0)] * end
                self._counts["queues that begin late"] += 1
                continue
            if not least <= end <= len(kept):
                return f"{name}/{queue_id} ends at {end}: at least {least}, {len(kept)} at most"
            for offset, message in found.items():
                if message.body != kept[offset].body:
                    return f"{name}/{queue_id} has another message at {offset}"
            for offset, one in enumerate(kept[:end]):
                if one.start >= oldest and offset not in found:
                    if later is not None:
                        # Its deletion took it; from now on nobody asks for it.
                        kept[offset] = Kept(one.body, -1, one.end)
                        continue
                    return f"{name}/{queue_id} lacks {offset}, at {one.start} of the log"
            wrong = self._wrong_extra(store, name, queue_id, found, oldest)
            if wrong:
                return wrong
            for message in list(found.values())[-2:]:
                if b"\0" in message.properties or message.physical_offset < oldest:
                    continue
                key = key_of(message.body)
                if message.physical_offset not in by_key(store, name, key, 64, 0, 1 << 62):
                    return f"{name}/{queue_id}: {key} at {message.physical_offset} has no key"
        queues.update(wanted)
        for body in bodies & self.refused.keys():
            del self.refused[body]
            self._counts["refused messages found"] += 1
        return None

    def _wrong_extra(
        self,
        store: MessageStore,
        name: str,
        queue_id: int,
        found: dict[int, StoredMessage],
        oldest: int,
    ) -> str | None:
        """What is wrong with the extension of a queue."""
        first = store.min_queue_offset(name, queue_id)
        units = store.queue_units(name, queue_id, first, store.max_queue_offset(name, queue_id))
        for offset, unit in enumerate(units, first):
            message = found.get(offset)
            if message is None or unit.position < oldest or not (unit.extra or unit.tags_code):
                continue
            wanted = UnitExtra(0, message.store_timestamp, bits_of(message.properties))
            if unit.extra != wanted:
                return f"{name}/{queue_id} has {unit.extra} at {offset} for {wanted}"
            self._counts["extras"] += 1
        return None

    def _take_unpromised(
        self,
        kept: list[Kept],
        found: dict[int, StoredMessage],
        least: int,
        later: list[Kept],
    ) -> None:
        """Puts in what is there behind all that is promised: messages that were refused, and some
        of those behind a deletion that is lost."""
        for offset in sorted(found):
            body = found[offset].body
            if offset < least or (offset < len(kept) and kept[offset].body == body):
                continue
            if offset > len(kept):
                return
            if body in self.refused:
                kept[offset:] = [self.refused[body]]
            elif offset < len(later) and later[offset].body == body:
                kept[offset:] = [later[offset]]


def _adopt(store: MessageStore, name: str, topic: Topic) -> None:
    """What the store has now is what there is from here on."""
    for queue_id, kept in topic.queues.items():
        del kept[store.max_queue_offset(name, queue_id) :]
    topic.former, topic.unsure = [], False
