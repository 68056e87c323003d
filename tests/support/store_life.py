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
from contextlib import suppress

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.reserve import NO_DESCRIPTOR
from rocketmq_tw.message.batch import Batch, BatchedMessage
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.masters_log import MastersLog
from tests.support.store_model import (
    QUEUE_IDS,
    TOPICS,
    Broken,
    Kept,
    StoreModel,
    Topic,
    bits_of,
    key_of,
)
from tests.support.stores import ManualClock, make_message, small_config

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


def _error_of(call: str, chance: random.Random) -> int:
    """What a call fails with. No fsync lacks descriptors: it loses what was to be synced, which a
    store need not expect of calls that do."""
    error = chance.choice(_ERRORS)
    return errno.EIO if call == "fsync" and error in NO_DESCRIPTOR else error


class StoreLife:
    """One store through many restarts; `counts` says what happened. Raises `Broken`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._flush = self.random.choice(("ASYNC_FLUSH", "SYNC_FLUSH"))
        #: Whether a start has queues with extensions: always, never or now and then.
        self._extended = self.random.choice((0.0, 0.5, 1.0))
        #: What the disk refused: error, operation, path -> how often.
        self.struck: Counter[tuple[int, str, str]] = Counter()
        self._disk = FaultyFiles(MemoryFiles(), self.struck)
        self._clock = ManualClock()
        self._model = StoreModel(self.counts)
        self._number = 0
        self._store = self._opened()
        #: The log that this one is a copy of; None for a master.
        self._master: MastersLog | None = None
        #: A truncation that may have been cut short was to end here.
        self._cut_at: int | None = None

    def run(self, restarts: int) -> None:
        for _ in range(restarts):
            self._live()
            self.counts["restarts"] += 1

    def _new_store(self) -> MessageStore:
        config = small_config(
            flush_disk_type=self._flush,
            delete_when=_HOURS,
            enable_consume_queue_ext=self.random.random() < self._extended,
            mapped_file_size_consume_queue_ext=4096,
        )
        store = MessageStore(config, self._disk, self._clock)
        store.extensions.bits_of = lambda topic, properties, store_timestamp: bits_of(properties)
        return store

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
            call = chance.choice(_CALLS)
            path = chance.choice(
                ("", "commitlog", "consumequeue", "consumequeue_ext", "index", "checkpoint")
            )
            disk.faults.append(
                Fault(
                    call,
                    path,
                    _error_of(call, chance),
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
                self._truncate(chance.choice(self._model.record_starts(store)))
        except (StoreError, OSError):
            self.counts["calls that failed"] += 1
        self._model.settle_deletions(self._store)
        self._check_totals()

    def _check_totals(self) -> None:
        """What a checkpoint would count is what there is."""
        queues = self._store._queues
        counted = queues.units, queues.with_files
        there = [queue.max_offset for queue in queues]
        with_files = [queue for queue in queues if queue.segments.starts]
        if counted != (sum(there), len(with_files)):
            raise Broken(f"{counted} is counted of {there}, {len(with_files)} with files")

    def _append(self) -> None:
        chance = self.random
        topic, queue_id = chance.choice(TOPICS), chance.choice(QUEUE_IDS)
        bodies = []
        for _ in range(chance.choice((1, 1, 1, 4))):
            self._number += 1
            bodies.append(b"%d " % self._number + bytes(chance.randrange(300)))
        if self._master is not None:
            self._copy(topic, queue_id, bodies)
            return
        keys = [key_of(body) for body in bodies]
        message = make_message(bodies[0], topic=topic, queue_id=queue_id, keys=keys[0])
        batch = Batch.of(
            BatchedMessage(0, body, f"KEYS\x01{key}\x02".encode())
            for body, key in zip(bodies, keys, strict=True)
        )
        appended = self._store.append(message, batch=batch if len(batch) > 1 else None)
        kept = self._model.in_front_of(topic, queue_id, appended.queue_offset, self._store)
        if appended.queue_offset != len(kept):
            raise Broken(f"{topic}/{queue_id}: {appended.queue_offset} follows {len(kept) - 1}")
        starts = [parse_offset_message_id(text).offset for text in appended.message_ids.split(",")]
        ends = [*starts[1:], appended.end_offset]
        kept += map(Kept, bodies, starts, ends)
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

    def _add(self, topic: str, queue_id: int, body: bytes) -> Kept:
        assert self._master is not None
        message = make_message(body, topic=topic, queue_id=queue_id, keys=key_of(body))
        # Clocks differ between masters.
        now = self._clock.now_ms - self.random.choice((0, 0, 5_000, 3_600_000))
        kept = self._model.topics[topic].queues[queue_id]
        kept.append(Kept(body, *self._master.add(message, len(kept), now)))
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
                self._model.forget_behind(self._store.written_offset)
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
        self._model.drop_behind(store.end_offset)
        self._master = None
        self.counts["roles changed"] += 1

    def _limit_dispatch(self) -> None:
        store = self._store
        store.dispatch_limit = self.random.choice((None, *self._model.record_starts(store)))

    def _truncate(self, end: int) -> None:
        store = self._store
        self._write()
        if end < 0:
            return
        self._cut_at = end
        for _ in store.truncate_to(end):
            chance = self.random.random()
            if chance < 0.1 and self._master is None:
                with suppress(StoreError):
                    self._delete()
            elif store.dispatch() or store.prepare_checkpoint():
                raise Broken("a store that is being cut goes on")
        self._cut_at = None
        self._model.drop_behind(end)
        self.counts["truncations"] += 1
        if self._master is not None:
            self._master = MastersLog(end, store.config.mapped_file_size_commit_log)

    def _checkpoint(self) -> None:
        self.counts["checkpoints"] += 1
        write = self._store.prepare_checkpoint(thorough=self.random.random() < 0.5)
        self._store.fsync()
        if write is not None and self.random.random() < 0.9:
            write()

    def _clean(self) -> None:
        self._clock.now_ms += self.random.choice((0, 30, 80)) * 3_600_000
        try:
            self.counts["files removed"] += sum(self._store.clean(self._clock.now_ms))
        finally:
            # A power loss may bring files of the log back, but not what pointed into them.
            self._model.cleaned = max(self._model.cleaned, self._store.min_physical_offset)

    def _delete(self) -> None:
        doomed = self.random.sample(TOPICS, self.random.choice((1, 1, 2)))
        if self._master is not None:
            # The tables come behind the log.
            self._take(1 << 20)
            self._write()
            if self.random.random() < 0.5:
                self._begin_anew(doomed[0])
                return
        if any(topic.before is not None or topic.stale for topic in self._model.of(doomed)):
            return
        before = {name: self._model.topics[name] for name in doomed}
        for name, topic in before.items():
            self._model.topics[name] = Topic(former=[*topic.former, topic.queues], unsure=True)
        try:
            self._store.remove_topics(doomed)
        except StoreError:
            if not self._store.refusal.startswith("a deletion"):
                self._model.topics.update(before)
            raise
        for name in doomed:
            self._model.topics[name].unsure = before[name].unsure
        self.counts["topics deleted"] += len(doomed)

    def _begin_anew(self, name: str) -> None:
        """The master deletes a topic and makes it again, and the tables do not come at all."""
        topic = self._model.topics[name]
        has = [queue_id for queue_id, kept in topic.queues.items() if kept]
        if topic.former or topic.unsure or topic.before or topic.stale or not has:
            return
        self._number += 1
        topic.begin_anew(has[0], self._model.oldest(self._store))
        topic.begun = self._add(name, has[0], b"%d anew" % self._number).end
        self.counts["beginnings by the log"] += 1

    def _finish_deletions(self) -> None:
        if self._store.has_unsynced_deletions:
            self._store.fsync()
        self._model.settle_deletions(self._store)

    # Its end, and what follows

    def _end(self, interrupted: bool) -> None:
        chance, store, disk = self.random, self._store, self._disk
        written, flushed = store.written_offset, store.flushed_offset
        if self._cut_at is not None:
            written, flushed = min(written, self._cut_at), min(flushed, self._cut_at)
            self._cut_at = None
        if not interrupted:
            self._model.settle_deletions(self._store)
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
        if self._master is not None:
            log_size = self._store.config.mapped_file_size_commit_log
            self._master = MastersLog(self._store.end_offset, log_size)
        self._model.check(self._store, promised, lost_power or self._lost_power)

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
        self._disk = FaultyFiles(files, self.struck)

    def _open_again(self, promised: int, flushed: int) -> int:
        """Opens the store, which may be cut short or fail; returns what is promised then."""
        while True:
            if self.random.random() < 0.15:
                self._disk.lose_power_at = self.random.randrange(1, 40)
            elif self.random.random() < 0.1:
                call = self.random.choice((*_CALLS, "pread", "list"))
                self._disk.faults.append(
                    Fault(
                        call,
                        error=_error_of(call, self.random),
                        skip=self.random.randrange(20),
                        times=1,
                    )
                )
            tried = bool(self._disk.lose_power_at or self._disk.faults)
            self._store = self._new_store()
            limit = self.random.choice((None, None, self.random.randrange(flushed + 1)))
            self._store.dispatch_limit = limit
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
