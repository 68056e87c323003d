"""The table of how far each consumer group has consumed each queue: `config/consumerOffset.json` in
stock's form (docs/formats/config-files.md).

The file is written at intervals, not at each commit: after a crash a group may see messages again
that it had consumed since, and never misses any. An offset changes only by a client's commit or an
administrator's reset; one that is far behind, or cannot be read, is never taken for 0. What other
members of the group have is brought together with it in `reconciling.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.logger import Logger

from rocketmq_tw.broker.tables.log_place import LogPlace
from rocketmq_tw.broker.tables.offsets.own_changes import OwnChanges
from rocketmq_tw.broker.tables.offsets.pairs import PairIndex, PullOffsets
from rocketmq_tw.broker.tables.offsets.resets import PendingResets
from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import LMQ_PREFIX, pair_key, split_pair
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import DataVersion, decode_table, encode_body
from rocketmq_tw.wire.bodies.queues import ConsumerOffsetTable
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Pairs of a topic and a group that clients may make; anybody may name any two that there are.
MAX_PAIRS = 1_000_000
#: In whose names the broker itself commits: where these go back, the log says so.
BROKER_NAMES = frozenset({"pop", "revive", "the broker"})
#: Pairs that one step looks at.
_STEP = 500

log = Logger()


class OffsetTable(WriteBehindTable):
    """(group, topic) → queue id → the offset of the next message to consume."""

    def __init__(
        self,
        config: BrokerConfig,
        file: TableFile,
        now_ms: Callable[[], int],
        *,
        lmq: bool = False,
        former: TableFile | None = None,
    ) -> None:
        """`lmq`: the offsets of groups of light queues stand by themselves in the file, as stock
        has them; `former` is read where there is no file yet."""
        super().__init__(file.write)
        self._lmq = lmq
        self._former = former
        self._config = config
        self._file = file
        self._now_ms = now_ms
        self._offsets: dict[str, dict[int, int]] = {}
        self._resets = PendingResets()
        #: Told group, topic and queue id of each reset.
        self.was_reset: Listeners[str, str, int] = Listeners("an offset was reset")
        #: Told group, topic, queue id and the smaller offset where a client or an administrator
        #: puts a group back; no topic, -1 and 0 where the group's offsets are removed.
        self.was_put_back: Listeners[str, str, int, int] = Listeners("a group was put back")
        #: As of which place offsets are: what was popped in front of it is counted
        #: (`broker/pop/popped_since.py`).
        self.as_of = LogPlace()
        self._pairs = PairIndex()
        #: Keys of `_offsets` that count as removed and are freed in steps.
        self._removed: set[str] = set()
        self.pulled = PullOffsets()
        self._commits = 0
        #: What was changed on this broker while it acted for its master.
        self.own = OwnChanges()
        self.data_version = DataVersion(timestamp=now_ms())

    def load(self) -> None:
        """Reads the file; raises what the file's reading raises where it is damaged."""
        table = self._file.read(lambda data: decode_table(ConsumerOffsetTable, data))
        if table is None and self._former is not None:
            table = self._former.read(lambda data: decode_table(ConsumerOffsetTable, data))
        if table is not None:
            join_light_offsets(table)
            self._offsets = table.offset_table
            self._pairs.fill(self._offsets)
            self.data_version = table.data_version or self.data_version
            self.own.load(table.put_back_queues or {})
            self.as_of.place = table.log_place

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: str = "") -> None:
        """Sets the offset; one below the last is accepted too, since clients may rewind. Raises
        `RequestError` where it would be one pair too many."""
        key = pair_key(topic, group)
        queues = self._offsets.get(key)
        if self._removed:
            queues = self._find(key)
        if queues is None:
            if len(self._offsets) >= MAX_PAIRS:
                raise RequestError(
                    ResponseCode.SYSTEM_ERROR,
                    f"{MAX_PAIRS} pairs of topic and group have offsets: delete topics or groups"
                    " that nobody needs",
                )
            queues = self.add(key)
        before = queues.get(queue_id)
        if before is not None and offset < before:
            log.warn(
                "{client} put {group!r} back from {before} to {offset} in {topic!r} {queue}",
                client=client,
                group=group,
                before=before,
                offset=offset,
                queue=queue_id,
                topic=topic,
            )
        queues[queue_id] = offset
        is_back = before is not None and offset < before
        if self.own.are_noted:
            self._note_own(key, queue_id, put_back=is_back)
        if is_back and client not in BROKER_NAMES:
            self.note_put_back(group, topic, queue_id, offset)
        self._dirty = True
        self._commits += 1
        if self._commits % self._config.consumer_offset_update_version_step == 0:
            self.data_version = self.data_version.next(self._now_ms())

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the offset, a pending reset's before the committed one; -1 where there is
        neither."""
        key = pair_key(topic, group)
        reset = self._resets.find(key, queue_id)
        if reset is not None:
            return reset
        return (self._find(key) or {}).get(queue_id, -1)

    def all(self) -> Mapping[str, dict[int, int]]:
        """Returns `topic@group` → queue id → offset, the live table; pairs that are removed may
        still be in it."""
        return self._offsets

    def of(self, group: str, topic: str) -> Mapping[int, int]:
        """Returns queue id → offset, of one group in one topic."""
        return self._find(pair_key(topic, group)) or {}

    def topics_of(self, group: str) -> set[str]:
        """Returns the topics in which a group has offsets."""
        topics = self._pairs.topics_of(group)
        if self._removed:
            return {topic for topic in topics if pair_key(topic, group) not in self._removed}
        return topics

    def groups_of(self, topic: str) -> set[str]:
        """Returns the groups that have offsets in a topic."""
        groups = self._pairs.groups_of(topic)
        if self._removed:
            return {group for group in groups if pair_key(topic, group) not in self._removed}
        return groups

    def told_of_group(self, group: str) -> Iterator[str]:
        """Yields a text for each queue in which a group has an offset."""
        return self._describe((topic, group) for topic in self.topics_of(group))

    def told_of_topic(self, topic: str) -> Iterator[str]:
        """Yields a text for each offset in a topic."""
        return self._describe((topic, group) for group in self.groups_of(topic))

    def _describe(self, pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
        for topic, group in pairs:
            for queue_id, offset in self.of(group, topic).items():
                yield f"{group} in {topic} {queue_id}: {offset}"

    def clone(self, source: str, target: str, topic: str) -> None:
        """Gives the group `target` the offsets of `source` in a topic."""
        queues = self._find(pair_key(topic, source))
        if queues is not None:
            key = pair_key(topic, target)
            own = self.add(key)
            back = [each for each, offset in queues.items() if offset < own.get(each, -1)]
            own.update(queues)
            for queue_id in back:
                self.note_put_back(target, topic, queue_id, queues[queue_id])
            if self.own.are_noted:
                for queue_id in queues:
                    self._note_own(key, queue_id, put_back=True)
            self._dirty = True

    def add(self, key: str) -> dict[int, int]:
        """Returns the live offsets of a pair by queue id, which is made where it is not there."""
        queues = self._find(key)
        if queues is None:
            queues = self._offsets[key] = {}
            self._pairs.add(key)
        return queues

    def remove(self, key: str) -> None:
        """Removes a pair, if it is there, and what is known of it."""
        self._removed.discard(key)
        if self._offsets.pop(key, None) is not None:
            self._pairs.discard(key)
            self._dirty = True
        self._resets.forget([key])
        self.own.forget_pair(key)

    def remove_group(self, group: str) -> Iterator[None]:
        """Removes the group's offsets at once; the steps free their memory."""
        keys = [pair_key(topic, group) for topic in self._pairs.take_group(group)]
        if keys:
            self.note_put_back(group, "", -1, 0)
        return self._remove_all(keys, self.pulled.remove_group(group))

    def remove_topic(self, topic: str) -> Iterator[None]:
        """Removes the offsets in a topic at once; the steps free their memory."""
        keys = [pair_key(topic, group) for group in self._pairs.take_topic(topic)]
        return self._remove_all(keys, self.pulled.remove_topic(topic))

    def _remove_all(self, keys: Sequence[str], pulled: Iterator[None]) -> Iterator[None]:
        self._removed.update(keys)
        self._resets.forget(keys)
        if keys:
            self._dirty = True
            # So that a slave that is down sees, once it is back, that this is no older table.
            self.data_version = self.data_version.next(self._now_ms())
        return self._free(keys, pulled)

    def _free(self, keys: Iterable[str], pulled: Iterator[None]) -> Iterator[None]:
        for number, key in enumerate(keys, 1):
            # It may have been made anew since.
            if key in self._removed:
                self.remove(key)
            if number % _STEP == 0:
                yield
        yield from pulled

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets the offset and holds it against commits until a pull has taken it up; -1: the group
        has none in the queue from then on."""
        key = pair_key(topic, group)
        self.pulled.clear(group, topic)
        # First: it forgets what is known of a pair that was removed and is not freed yet.
        queues = self.add(key)
        self._resets.set(key, queue_id, offset)
        if offset < 0:
            queues.pop(queue_id, None)
        else:
            queues[queue_id] = offset
        self.note_put_back(group, topic, queue_id, max(0, offset))
        if self.own.are_noted:
            self._note_own(key, queue_id, put_back=True)
        self._dirty = True
        self.was_reset.tell(group, topic, queue_id)

    def _note_own(self, key: str, queue_id: int, *, put_back: bool) -> None:
        self.own.note(key, queue_id, put_back=put_back)
        if put_back:
            # Copies of the former offsets, which others may have, are older.
            self.data_version = self.data_version.next(self._now_ms())

    def note_put_back(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Tells that a group was put back to `offset` in a queue; see `was_put_back`."""
        if self.as_of.is_kept:
            # The log does not say that an offset went back.
            self.as_of.place = None
        self.was_put_back.tell(group, topic, queue_id, offset)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Returns whether a reset waits for a pull; commits are ignored until then."""
        return self._resets.find(pair_key(topic, group), queue_id) is not None

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Ends a reset that waits and returns its offset, with which the pull answers, 0 where the
        group is to have none; None where no reset waits."""
        offset = self._resets.take(pair_key(topic, group), queue_id)
        return None if offset is None else max(0, offset)

    def end_role(self) -> None:
        """Forgets resets that wait and where pulls go on: another master may move the offsets until
        this broker has its next role, and slaves never heard of either."""
        self._resets.clear()
        self.pulled = PullOffsets()

    def put_first(self, group: str, topic: str) -> None:
        """Makes `encode` read this pair's offsets before any other's, so that in the file no other
        offset is older than them."""
        key = pair_key(topic, group)
        queues = self._find(key)
        if queues is not None and next(iter(self._offsets)) != key:
            self._offsets = {key: queues} | self._offsets

    def clamp(self, end_of: Callable[[str, int], int | None]) -> Iterator[None]:
        """Sets offsets beyond `end_of(topic, queue_id)` back to it, in steps, as the log was cut
        there. None: the queue is not cut."""
        for table in (self.pulled.all(), self._offsets, self._resets.all()):
            for number, (key, queues) in enumerate(list(table.items()), 1):
                topic, _ = split_pair(key)
                for queue_id, offset in queues.items():
                    end = end_of(topic, queue_id)
                    if end is not None and offset > end:
                        queues[queue_id] = end
                        self._dirty = True
                if number % _STEP == 0:
                    yield

    def encoder(self) -> Callable[[], bytes]:
        """Returns what makes all offsets with the version, as the file and the wire have them, in
        any thread, also while offsets change: each one is as it was at some moment of the call."""
        # Before the first offset is read.
        return partial(self.encode, self.as_of.now())

    def encode(self, log_place: int | None = None) -> bytes:
        """Returns what `encoder` tells of; `log_place` as of which place of the log."""
        version = self.data_version
        parts, light = [], {}
        for key, queues in list(self._offsets.items()):
            if key in self._removed:
                continue
            if self._lmq and split_pair(key)[1].startswith(LMQ_PREFIX):
                offset = queues.get(0)
                if offset is not None:
                    light[key] = offset
                continue
            offsets = ",".join(
                [f"{queue_id}:{offset}" for queue_id, offset in list(queues.items())]
            )
            parts.append(b"%b:{%b}" % (encode_body(key), offsets.encode()))
        entries: Any = msgspec.Raw(b"{" + b",".join(parts) + b"}")
        return encode_body(
            ConsumerOffsetTable(
                offset_table=entries,
                data_version=version,
                lmq_offset_table=light if self._lmq else None,
                put_back_queues=self.own.put_back() or None,
                log_place=log_place,
            )
        )

    def _encoder(self) -> Callable[[], bytes]:
        return self.encoder()

    def _find(self, key: str) -> dict[int, int] | None:
        if key in self._removed:
            self.remove(key)
        return self._offsets.get(key)


def join_light_offsets(table: ConsumerOffsetTable) -> None:
    """Moves the offsets of groups of light queues among the others, as offsets of queue 0."""
    for key, offset in (table.lmq_offset_table or {}).items():
        table.offset_table[key] = {0: offset}
    table.lmq_offset_table = None
