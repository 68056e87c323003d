"""How far each consumer group has consumed each queue, in `config/consumerOffset.json` in stock's
form (docs/formats/config-files.md).

The file is written at intervals, not at each commit: after a crash a group may see messages again
that it had consumed since, and never misses any. An offset changes only by a client's commit or an
administrator's reset; one that is far behind, or cannot be read, is never taken for 0.

Between a master and its slave the smaller offset of a queue never counts because of who wrote last.
A slave that acts for its master notes what is changed on it (`OwnChanges`). The master that comes
back takes the larger offset of each queue, and the slave's own where the group was put back there
(`taking_back.py`). A slave follows its master's offsets, smaller ones too, but for those that were
changed while it acted: of these a smaller one is a master's that did not take them back, unless it
went back there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from twisted.logger import Logger

from rocketmq_tw.broker.tables.log_place import LogPlace
from rocketmq_tw.broker.tables.offsets.own_changes import OwnChanges
from rocketmq_tw.broker.tables.offsets.pairs import PairIndex, PullOffsets, pair_key, split_key
from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import LMQ_PREFIX
from rocketmq_tw.runtime.listeners import Listeners
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
#: By how much the version grows when a slave begins to act. Its master may have counted on since
#: the last copy, or counts on while it is cut off: ours asks whether the version is newer than its
#: own, and stock's takes offsets back from one that is not behind its own.
_ACTING_LEAP = 1_000_000

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
        self._resets: dict[str, dict[int, int]] = {}
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
        self._own = OwnChanges()
        self._acts = False
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
            self._own.load(table.put_back_queues or {})
            self.as_of.place = table.log_place

    def begin_acting(self) -> None:
        """Notes what is changed from now on, as a slave that acts for its master."""
        self._acts = True
        version = self.data_version
        self.data_version = DataVersion(
            timestamp=self._now_ms(), counter=version.counter + _ACTING_LEAP
        )
        self._dirty = True

    def end_acting(self) -> None:
        """Ends what `begin_acting` began; what was noted counts until a master's are followed."""
        self._acts = False

    def put_back(self) -> dict[str, list[int]]:
        """Returns the queues in which groups were put back while this broker acted."""
        return self._own.put_back()

    def lead(self) -> None:
        """Forgets what was changed while this broker acted: it is the master now."""
        self._own = OwnChanges()

    def commit(self, group: str, topic: str, queue_id: int, offset: int, client: str = "") -> None:
        """Sets the offset; one below the last is accepted too, since clients may rewind. Raises
        `RequestError` where it would be one pair too many."""
        key = f"{topic}@{group}"
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
            queues = self._add(key)
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
        if self._acts:
            self._changed_acting(key, queue_id, put_back=is_back)
        if is_back and client not in BROKER_NAMES:
            self._put_back(group, topic, queue_id, offset)
        self._dirty = True
        self._commits += 1
        if self._commits % self._config.consumer_offset_update_version_step == 0:
            self.data_version = self.data_version.next(self._now_ms())

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Returns the offset, a pending reset's before the committed one; -1 where there is
        neither."""
        key = f"{topic}@{group}"
        reset = self._resets.get(key)
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        return (self._find(key) or {}).get(queue_id, -1)

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
            own = self._add(key)
            back = [each for each, offset in queues.items() if offset < own.get(each, -1)]
            own.update(queues)
            for queue_id in back:
                self._put_back(target, topic, queue_id, queues[queue_id])
            if self._acts:
                for queue_id in queues:
                    self._changed_acting(key, queue_id, put_back=True)
            self._dirty = True

    def remove_group(self, group: str) -> Iterator[None]:
        """Removes the group's offsets at once; the steps free their memory."""
        keys = [pair_key(topic, group) for topic in self._pairs.take_group(group)]
        if keys:
            self._put_back(group, "", -1, 0)
        return self._remove_all(keys, self.pulled.remove_group(group))

    def remove_topic(self, topic: str) -> Iterator[None]:
        """Removes the offsets in a topic at once; the steps free their memory."""
        keys = [pair_key(topic, group) for group in self._pairs.take_topic(topic)]
        return self._remove_all(keys, self.pulled.remove_topic(topic))

    def _remove_all(self, keys: Sequence[str], pulled: Iterator[None]) -> Iterator[None]:
        self._removed.update(keys)
        for key in self._resets.keys() & keys:
            del self._resets[key]
        if keys:
            self._dirty = True
            # So that a slave that is down sees, once it is back, that this is no older table.
            self.data_version = self.data_version.next(self._now_ms())
        return self._free(keys, pulled)

    def _free(self, keys: Iterable[str], pulled: Iterator[None]) -> Iterator[None]:
        for number, key in enumerate(keys, 1):
            # It may have been made anew since.
            if key in self._removed:
                self._remove(key)
            if number % _STEP == 0:
                yield
        yield from pulled

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets the offset and holds it against commits until a pull has taken it up; -1: the group
        has none in the queue from then on."""
        key = f"{topic}@{group}"
        self.pulled.clear(group, topic)
        self._resets.setdefault(key, {})[queue_id] = offset
        queues = self._add(key)
        if offset < 0:
            queues.pop(queue_id, None)
        else:
            queues[queue_id] = offset
        self._put_back(group, topic, queue_id, max(0, offset))
        if self._acts:
            self._changed_acting(key, queue_id, put_back=True)
        self._dirty = True
        self.was_reset.tell(group, topic, queue_id)

    def _changed_acting(self, key: str, queue_id: int, *, put_back: bool) -> None:
        self._own.note(key, queue_id, put_back=put_back)
        if put_back:
            # Copies of the former offsets, which others may have, are older.
            self.data_version = self.data_version.next(self._now_ms())

    def _put_back(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        if self.as_of.is_kept:
            # The log does not say that an offset went back.
            self.as_of.place = None
        self.was_put_back.tell(group, topic, queue_id, offset)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Returns whether a reset waits for a pull; commits are ignored until then."""
        return queue_id in self._resets.get(f"{topic}@{group}", {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Ends a reset that waits and returns its offset, with which the pull answers, 0 where the
        group is to have none; None where no reset waits."""
        key = f"{topic}@{group}"
        queues = self._resets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._resets[key]
        return None if offset is None else max(0, offset)

    def end_role(self) -> None:
        """Forgets resets that wait and where pulls go on: another master may move the offsets until
        this broker has its next role, and slaves never heard of either."""
        self._resets = {}
        self.pulled = PullOffsets()

    def put_first(self, group: str, topic: str) -> None:
        """Makes `encode` read this pair's offsets before any other's, so that in the file no other
        offset is older than them."""
        key = f"{topic}@{group}"
        queues = self._find(key)
        if queues is not None and next(iter(self._offsets)) != key:
            self._offsets = {key: queues} | self._offsets

    def clamp(self, end_of: Callable[[str, int], int | None]) -> Iterator[None]:
        """Sets offsets beyond `end_of(topic, queue_id)` back to it, in steps, as the log was cut
        there. None: the queue is not cut."""
        for table in (self.pulled.all(), self._offsets, self._resets):
            for number, (key, queues) in enumerate(list(table.items()), 1):
                topic, _ = split_key(key)
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
            if self._lmq and split_key(key)[1].startswith(LMQ_PREFIX):
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
                put_back_queues=self._own.put_back() or None,
                log_place=log_place,
            )
        )

    def follow(self, table: ConsumerOffsetTable, former: ConsumerOffsetTable) -> Iterator[None]:
        """Copies a master's `table`, in steps: sets its offsets and removes those that it lacks.
        Where its table was changed more often than this one, that is all that it lacks; else it may
        have lost them, or never had them, and only those that it had before, in `former`, are
        removed. Brokers of 4.9 do not tell how often theirs was changed.

        An offset that was changed while this broker acted stays where the master's is smaller, and
        did not go back there since `former`: it did not take that one back."""
        version = table.data_version
        is_newer = version is not None and version.counter > self.data_version.counter
        known = dict(self._offsets) if is_newer else former.offset_table
        if table.log_place is None:
            self.as_of.place = None
        for number, (key, queues) in enumerate(table.offset_table.items(), 1):
            own = self._add(key)
            for queue_id, offset in queues.items():
                if self._own and self._is_ahead(key, queue_id, offset, former):
                    continue
                if own.get(queue_id) != offset:
                    own[queue_id] = offset
                    self._dirty = True
            for queue_id in known.get(key, {}).keys() - queues.keys():
                own.pop(queue_id, None)
                self._dirty = True
            if number % _STEP == 0:
                yield
        for number, key in enumerate(known.keys() - table.offset_table.keys(), 1):
            self._remove(key)
            if number % _STEP == 0:
                yield
        if is_newer and version is not None:
            self.data_version = version
        self.as_of.place = table.log_place

    def _is_ahead(self, key: str, queue_id: int, offset: int, former: ConsumerOffsetTable) -> bool:
        """Returns whether this broker's offset in a queue stays though its master says `offset`;
        else the master's counts there from now on."""
        if not self._own.has(key, queue_id):
            return False
        known = former.offset_table.get(key, {}).get(queue_id, offset)
        if known <= offset < self._offsets[key].get(queue_id, offset):
            return True
        self._own.forget(key, queue_id)
        return False

    def take_back(
        self,
        table: ConsumerOffsetTable,
        counts: Callable[[str, int], bool | None],
        *,
        is_newest: bool,
    ) -> Iterator[None]:
        """Takes over, in steps, what a slave had that acted: in each queue the larger offset,
        unless `counts(key, queue_id)` says whether the slave's does, whatever it is. The version
        becomes newer than both with `is_newest`, and where this broker acts, else the newer one of
        both."""
        for number, (key, queues) in enumerate(table.offset_table.items(), 1):
            own = self._add(key)
            for queue_id, offset in queues.items():
                said = counts(key, queue_id)
                if offset > own.get(queue_id, -1) if said is None else said:
                    own[queue_id] = offset
                    self._dirty = True
                    if said:
                        # A slave that takes it may be the only one that is left to tell.
                        self._own.note(key, queue_id, put_back=True)
                        # The log may have pops behind it, of the time before.
                        topic, group = split_key(key)
                        self._put_back(group, topic, queue_id, offset)
            if number % _STEP == 0:
                yield
        version = table.data_version
        if version is not None and version.counter >= self.data_version.counter:
            is_newer = is_newest or self._acts
            self.data_version = version.next(self._now_ms()) if is_newer else version
            self._dirty = True

    def _encoder(self) -> Callable[[], bytes]:
        return self.encoder()

    def _find(self, key: str) -> dict[int, int] | None:
        if key in self._removed:
            self._remove(key)
        return self._offsets.get(key)

    def _add(self, key: str) -> dict[int, int]:
        queues = self._find(key)
        if queues is None:
            queues = self._offsets[key] = {}
            self._pairs.add(key)
        return queues

    def _remove(self, key: str) -> None:
        self._removed.discard(key)
        if self._offsets.pop(key, None) is not None:
            self._pairs.discard(key)
            self._dirty = True
        self._resets.pop(key, None)
        self._own.forget_pair(key)


def join_light_offsets(table: ConsumerOffsetTable) -> None:
    """Moves the offsets of groups of light queues among the others, as offsets of queue 0."""
    for key, offset in (table.lmq_offset_table or {}).items():
        table.offset_table[key] = {0: offset}
    table.lmq_offset_table = None
