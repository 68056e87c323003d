"""Random lives of a store on a disk that fails, with a model of what it promised.

A life appends, checkpoints, removes what is old, deletes topics and makes them again, becomes the
copy of another log, takes its bytes in any pieces, is truncated, and becomes a master again, while
calls on any file fail (no room, no descriptor, I/O errors). It ends with a stop, a kill at any
system call, or a power loss that leaves none or some of what was not synced. Then the store is
opened again, which may be cut short in its turn, and everything that was promised must be there,
and nothing that was cut off.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from dataclasses import dataclass, field

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.batch import Batch, BatchedMessage
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.masters_log import MastersLog
from tests.support.stores import ManualClock, by_key, make_message, read_all, small_config

_TOPICS = ("A", "B", "C")
_QUEUE_IDS = (0, 1)
_HOURS = ";".join(map(str, range(24)))
_ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EDQUOT)
_CALLS = (
    "create",
    "open",
    "pwrite",
    "fsync",
    "truncate",
    "remove",
    "rename",
    "sync_dir",
    "make_dirs",
)


class Broken(AssertionError):
    """The store did not keep what it promised."""


@dataclass
class _Kept:
    """A message of the model: its body, and where its record stands in the log."""

    body: bytes
    start: int
    end: int


_Queues = dict[int, list[_Kept]]


@dataclass
class _Topic:
    """A topic since it was made: what its queues have, and what they had before deletions that may
    be lost with the power (`former`)."""

    queues: _Queues = field(default_factory=lambda: {n: [] for n in _QUEUE_IDS})
    former: list[_Queues] = field(default_factory=list)
    #: Whether the last deletion was refused or cut short, so that nothing says which holds.
    unsure: bool = False
    #: What its queues have as long as the log does not reach `begun`, where the first message ends
    #: that tells a copy of the topic's deletion.
    before: _Queues | None = None
    begun: int = 0


def _key_of(body: bytes) -> str:
    return "k" + body.split()[0].decode()


class StoreLife:
    """One store through many restarts; `counts` says what happened. Raises `Broken`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._flush = self.random.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        self._disk = FaultyFiles(MemoryFiles())
        self._clock = ManualClock()
        self._topics = {topic: _Topic() for topic in _TOPICS}
        self._number = 0
        self._store = self._opened()
        #: Deletions that `make_durable` is still to be called for.
        self._work: list[tuple[list[str], object]] = []
        #: Up to here retention removed the log.
        self._cleaned = 0
        #: Messages that were refused when they were to be written. What a failed write left of them
        #: may be found after a power loss; nobody was promised anything.
        self._refused: dict[bytes, _Kept] = {}
        #: The log that this one is a copy of; None for a master.
        self._master: MastersLog | None = None
        #: A truncation that may have been cut short was to end here.
        self._cut_at: int | None = None

    def run(self, restarts: int) -> None:
        for _ in range(restarts):
            self._live()
            self.counts["restarts"] += 1

    def _new_store(self) -> MessageStore:
        config = small_config(flush_disk_type=self._flush, delete_when=_HOURS)
        return MessageStore(config, self._disk, self._clock)

    def _opened(self) -> MessageStore:
        store = self._new_store()
        store.load()
        return store

    # A life

    def _live(self) -> None:
        chance, disk = self.random, self._disk
        disk.faults.clear()
        disk.lose_power_at = None
        if chance.random() < 0.5:
            disk.lose_power_at = disk.changes + chance.randrange(1, 120)
        interrupted = False
        try:
            for _ in range(chance.randrange(1, 60)):
                self._step()
        except PowerLoss:
            interrupted = True
            self.counts["interrupted calls"] += 1
        self._end(interrupted)

    def _step(self) -> None:
        chance, disk, store = self.random, self._disk, self._store
        self._clock.now_ms += chance.randrange(2000)
        if chance.random() < 0.05:
            disk.faults.append(
                Fault(
                    chance.choice(_CALLS),
                    chance.choice(("", "commitlog", "consumequeue", "index", "checkpoint")),
                    chance.choice(_ERRORS),
                    skip=chance.randrange(3),
                    times=chance.randrange(1, 4),
                    kept=chance.choice((None, 0, 7, 600)),
                )
            )
            self.counts["faults"] += 1
        elif disk.faults and chance.random() < 0.1:
            disk.faults.clear()
        action = chance.random()
        try:
            if action < 0.5:
                self._append()
            elif action < 0.7:
                self._write()
            elif action < 0.8:
                store.fsync()
            elif action < 0.9:
                store.dispatch()
            elif action < 0.94:
                self._checkpoint()
            elif action < 0.96:
                self._clean()
            elif action < 0.97:
                self._delete()
            elif action < 0.98:
                self._finish_deletions()
            elif action < 0.985:
                self._limit_dispatch()
            elif action < 0.992:
                self._change_role()
            else:
                self._truncate(chance.choice(self._record_starts()))
        except (StoreError, OSError):
            self.counts["calls that failed"] += 1
        self._settle_deletions()

    def _append(self) -> None:
        chance = self.random
        topic, queue_id = chance.choice(_TOPICS), chance.choice(_QUEUE_IDS)
        bodies = []
        for _ in range(chance.choice((1, 1, 1, 4))):
            self._number += 1
            bodies.append(b"%d " % self._number + bytes(chance.randrange(300)))
        if self._master is not None:
            self._copy(topic, queue_id, bodies)
            return
        keys = [_key_of(body) for body in bodies]
        message = make_message(bodies[0], topic=topic, queue_id=queue_id, keys=keys[0])
        batch = Batch.of(
            BatchedMessage(0, body, f"KEYS\x01{key}\x02".encode())
            for body, key in zip(bodies, keys, strict=True)
        )
        appended = self._store.append(message, batch=batch if len(batch) > 1 else None)
        kept = self._topics[topic].queues[queue_id]
        if appended.queue_offset != len(kept):
            raise Broken(f"{topic}/{queue_id}: {appended.queue_offset} follows {len(kept) - 1}")
        starts = [parse_offset_message_id(text).offset for text in appended.message_ids.split(",")]
        ends = [*starts[1:], appended.end_offset]
        kept += map(_Kept, bodies, starts, ends)
        self.counts["messages"] += len(bodies)

    def _copy(self, topic: str, queue_id: int, bodies: list[bytes]) -> None:
        """The master gets messages, and its slave more or less of them."""
        assert self._master is not None
        for body in bodies:
            self._add(topic, queue_id, body)
        self.counts["messages copied"] += len(bodies)
        offset = self._store.end_offset
        left = self._master.end - offset
        self._take(self.random.choice((left, self.random.randrange(left + 1))))

    def _add(self, topic: str, queue_id: int, body: bytes) -> _Kept:
        assert self._master is not None
        message = make_message(body, topic=topic, queue_id=queue_id, keys=_key_of(body))
        # Clocks differ between masters.
        now = self._clock.now_ms - self.random.choice((0, 0, 5_000, 3_600_000))
        kept = self._topics[topic].queues[queue_id]
        kept.append(_Kept(body, *self._master.add(message, len(kept), now)))
        return kept[-1]

    def _take(self, size: int) -> None:
        assert self._master is not None
        offset = self._store.end_offset
        if data := self._master.read(offset, size):
            self._store.append_raw(offset, data)

    def _write(self) -> None:
        try:
            self._store.write_pending()
        except StoreError:
            if self._master is None:
                self._forget_behind(self._store.written_offset)
            raise

    def _change_role(self) -> None:
        """As the broker does it."""
        store = self._store
        self._write()
        if self._master is None:
            self._master = MastersLog(store.end_offset, store.config.mapped_file_size_commit_log)
            self.counts["roles changed"] += 1
            return
        store.fsync()
        store.dispatch_limit = None
        while store.dispatch():
            pass
        if store.dispatched_offset < store.written_offset:
            self._truncate(store.dispatched_offset)
        self._drop_behind(store.end_offset)
        self._master = None
        self.counts["roles changed"] += 1

    def _limit_dispatch(self) -> None:
        store = self._store
        store.dispatch_limit = self.random.choice((None, *self._record_starts()))

    def _record_starts(self) -> list[int]:
        """Where the log may be cut: a beginning that a copy has met stays."""
        store, topics = self._store, self._topics.values()
        begun = (topic.begun for topic in topics if topic.begun <= store.end_offset)
        first = max(store.min_physical_offset, self._cleaned, *begun)
        kept = [one for topic in topics for queue in topic.queues.values() for one in queue]
        starts = [one.start for one in kept if one.start >= first and one.end <= store.end_offset]
        ends = [one.end for one in kept if first <= one.end <= store.end_offset]
        return starts or ends[-1:] or [-1]

    def _truncate(self, end: int) -> None:
        store = self._store
        self._write()
        if end < 0:
            return
        self._cut_at = end
        store.truncate_to(end)
        self._cut_at = None
        self._drop_behind(end)
        self.counts["truncations"] += 1
        if self._master is not None:
            self._master = MastersLog(end, store.config.mapped_file_size_commit_log)

    def _drop_behind(self, end: int) -> None:
        """Nothing behind a log offset is there any more, or ever again."""
        for topic in self._topics.values():
            if topic.before is not None and end < topic.begun:
                topic.queues, topic.before, topic.begun = topic.before, None, 0
            for queues in (topic.queues, *topic.former):
                for kept in queues.values():
                    while kept and kept[-1].end > end:
                        kept.pop()
        self._refused = {body: one for body, one in self._refused.items() if one.end <= end}

    def _forget_behind(self, end: int) -> None:
        for topic in self._topics.values():
            for kept in topic.queues.values():
                while kept and kept[-1].end > end:
                    refused = kept.pop()
                    self._refused[refused.body] = refused

    def _checkpoint(self) -> None:
        self.counts["checkpoints"] += 1
        write = self._store.prepare_checkpoint(thorough=self.random.random() < 0.5)
        self._store.fsync()
        if write is not None and self.random.random() < 0.9:
            write()

    def _clean(self) -> None:
        self._clock.now_ms += self.random.choice((0, 30, 80)) * 3_600_000
        try:
            self.counts["files removed"] += self._store.clean(self._clock.now_ms)
        finally:
            # A power loss may bring files of the log back, but not what pointed into them.
            self._cleaned = max(self._cleaned, self._store.min_physical_offset)

    def _delete(self) -> None:
        doomed = self.random.sample(_TOPICS, self.random.choice((1, 1, 2)))
        if self._master is not None:
            # The tables come behind the log.
            self._take(1 << 20)
            self._write()
            if self.random.random() < 0.5:
                self._begin_anew(doomed[0])
                return
        if any(self._topics[name].before is not None for name in doomed):
            return
        before = {name: self._topics[name] for name in doomed}
        for name, topic in before.items():
            self._topics[name] = _Topic(former=[*topic.former, topic.queues], unsure=True)
        try:
            make_durable = self._store.remove_topics(doomed)
        except StoreError:
            self._topics.update(before)
            raise
        for name in doomed:
            self._topics[name].unsure = before[name].unsure
        self.counts["topics deleted"] += len(doomed)
        self._work.append((doomed, make_durable))

    def _begin_anew(self, name: str) -> None:
        """The master deletes a topic and makes it again, and the tables do not come at all."""
        topic = self._topics[name]
        has = [queue_id for queue_id, kept in topic.queues.items() if kept]
        if topic.former or topic.unsure or topic.before or not has:
            return
        self._number += 1
        old, topic.queues = topic.queues, {n: [] for n in _QUEUE_IDS}
        topic.before = old
        topic.begun = self._add(name, has[0], b"%d anew" % self._number).end
        self.counts["beginnings by the log"] += 1

    def _finish_deletions(self) -> None:
        while self._work:
            _, make_durable = self._work[-1]
            make_durable()  # type: ignore[operator]
            self._work.pop()
        self._settle_deletions()

    def _settle_deletions(self) -> None:
        for topic in self._topics.values():
            if topic.begun <= self._store.flushed_offset:
                topic.before = None
        if not self._store.has_unsynced_deletions:
            for topic in self._topics.values():
                topic.former, topic.unsure = [], False

    # Its end, and what follows

    def _end(self, interrupted: bool) -> None:
        chance, store, disk = self.random, self._store, self._disk
        written, flushed = store.written_offset, store.flushed_offset
        if self._cut_at is not None:
            written, flushed = min(written, self._cut_at), min(flushed, self._cut_at)
            self._cut_at = None
        if not interrupted:
            self._settle_deletions()
        disk.faults.clear()
        how = chance.random()
        lost_power = False
        if not interrupted and how < 0.3:
            disk.lose_power_at = None
            self.counts["stops"] += 1
            broken = store.refusal.endswith("restart")
            try:
                store.close()
                if not broken and not store._log.failure:
                    written = flushed = max(written, store.written_offset)
            except (StoreError, OSError):
                self.counts["stops that failed"] += 1
        elif how < 0.6:
            self.counts["kills"] += 1
        else:
            lost_power = True
        promised = written
        self._next_disk(lost_power)
        if lost_power:
            promised = flushed
        promised = self._open_again(promised, flushed)
        self._check(promised, lost_power or self._lost_power)

    def _next_disk(self, lost_power: bool) -> None:
        files = self._disk.inner
        assert isinstance(files, MemoryFiles)
        self._lost_power = lost_power
        if lost_power:
            strict = self.random.random() < 0.4
            self.counts["power losses, " + ("strict" if strict else "of some")] += 1
            files = files.crash(None if strict else self.random.randrange(1 << 30))
        else:
            files = files.kill()
        self._disk = FaultyFiles(files)

    def _open_again(self, promised: int, flushed: int) -> int:
        """Opens the store, which may be cut short or fail; returns what is promised then."""
        while True:
            if self.random.random() < 0.15:
                self._disk.lose_power_at = self.random.randrange(1, 40)
            elif self.random.random() < 0.1:
                self._disk.faults.append(
                    Fault(
                        self.random.choice((*_CALLS, "pread", "list")),
                        error=self.random.choice(_ERRORS),
                        skip=self.random.randrange(20),
                        times=1,
                    )
                )
            tried = bool(self._disk.lose_power_at or self._disk.faults)
            self._store = self._new_store()
            limit = self.random.choice((None, None, self.random.randrange(flushed + 1)))
            self._store.dispatch_limit = limit
            self._work = []
            try:
                self._store.load()
            except (PowerLoss, StoreError, OSError) as error:
                if not tried:
                    raise Broken(f"the store refuses to load: {error}") from error
                self.counts["starts cut short"] += 1
                lost = self.random.random() < 0.5
                was_lost = self._lost_power
                self._next_disk(lost)
                self._lost_power |= was_lost
                promised = min(promised, flushed) if lost else promised
                continue
            self._disk.lose_power_at = None
            self._disk.faults.clear()
            self._store.dispatch_limit = None
            while self._store.dispatch():
                pass
            return promised

    def _check(self, promised: int, lost_power: bool) -> None:
        end = self._store.end_offset
        if self._master is not None:
            self._master = MastersLog(end, self._store.config.mapped_file_size_commit_log)
        for name, topic in self._topics.items():
            if topic.before is not None and end < topic.begun:
                topic.queues = topic.before
            topic.before, topic.begun = None, min(topic.begun, end)
            wrong = [self._matches(topic.queues, name, promised)]
            if wrong[0] is not None and (lost_power or topic.unsure):
                safe = any(k.end <= promised for kept in topic.queues.values() for k in kept)
                for former in [] if safe else reversed(topic.former):
                    # The deletion is lost, which nobody was told of.
                    wrong.append(self._matches(former, name, -1, topic.queues))
                    if wrong[-1] is None:
                        topic.queues = former
                        break
            if wrong[-1] is not None:
                raise Broken("; before its deletion: ".join(map(str, wrong)))
            self._adopt(name, topic)

    def _matches(
        self, queues: _Queues, name: str, promised: int, later: _Queues | None = None
    ) -> str | None:
        """What is wrong where the store has not what the model has; None where all is well, and
        then `queues` has also what nobody was promised and is there. `later`: what was appended
        since these queues were deleted, some of which the log may have."""
        store = self._store
        oldest = max(store.min_physical_offset, self._cleaned)
        wanted = {queue_id: list(kept) for queue_id, kept in queues.items()}
        bodies: set[bytes] = set()
        for queue_id, kept in wanted.items():
            end = store.max_queue_offset(name, queue_id)
            least = sum(one.end <= promised for one in kept)
            found = {m.queue_offset: m for m in read_all(store, name, queue_id)}
            bodies |= {message.body for message in found.values()}
            self._take_unpromised(kept, found, least, (later or {}).get(queue_id, []))
            if not least <= end <= len(kept):
                return f"{name}/{queue_id} ends at {end}: at least {least}, {len(kept)} at most"
            for offset, message in found.items():
                if message.body != kept[offset].body:
                    return f"{name}/{queue_id} has another message at {offset}"
            for offset, one in enumerate(kept[:end]):
                if one.start >= oldest and offset not in found:
                    if later is not None:
                        # Its deletion took it; from now on nobody asks for it.
                        kept[offset] = _Kept(one.body, -1, one.end)
                        continue
                    return f"{name}/{queue_id} lacks {offset}, at {one.start} of the log"
            for message in list(found.values())[-2:]:
                if b"\0" in message.properties or message.physical_offset < oldest:
                    continue
                key = _key_of(message.body)
                if message.physical_offset not in by_key(store, name, key, 64, 0, 1 << 62):
                    return f"{name}/{queue_id}: {key} at {message.physical_offset} has no key"
        queues.update(wanted)
        for body in bodies & self._refused.keys():
            del self._refused[body]
            self.counts["refused messages found"] += 1
        return None

    def _take_unpromised(
        self,
        kept: list[_Kept],
        found: dict[int, StoredMessage],
        least: int,
        later: list[_Kept],
    ) -> None:
        """Puts in what is there behind all that is promised: messages that were refused, and some
        of those behind a deletion that is lost."""
        for offset in sorted(found):
            body = found[offset].body
            if offset < least or (offset < len(kept) and kept[offset].body == body):
                continue
            if offset > len(kept):
                return
            if body in self._refused:
                kept[offset:] = [self._refused[body]]
            elif offset < len(later) and later[offset].body == body:
                kept[offset:] = [later[offset]]

    def _adopt(self, name: str, topic: _Topic) -> None:
        """What the store has now is what there is from here on."""
        for queue_id, kept in topic.queues.items():
            del kept[self._store.max_queue_offset(name, queue_id) :]
        topic.former, topic.unsure = [], False
