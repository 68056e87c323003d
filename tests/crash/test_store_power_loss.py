"""Random lives of a store with crashes in between, on a file system that loses what was not
synced. A failing case prints its seed."""

import random

import pytest

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.batch import Batch, BatchedMessage
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import ManualClock, by_key, make_message, open_store, read_all

QUEUES = [("A", 0), ("A", 1), ("B", 0)]


class Life:
    """A store, what was put into it, and what must still be there after the next crash."""

    def __init__(self, seed: int, flush: str) -> None:
        self.random = random.Random(seed)
        self.flush = flush
        self.files = MemoryFiles()
        self.clock = ManualClock()
        self.number = 0
        self.store = self.open()
        #: Bodies by queue and offset, as appended in this life or recovered from former ones.
        self.expected: dict[tuple[str, int], dict[int, bytes]] = {queue: {} for queue in QUEUES}
        #: (end of the record in the log, queue, queue offset) of all that is in the log.
        self.log: list[tuple[int, tuple[str, int], int]] = []
        self.seen: dict[tuple[str, int], int] = dict.fromkeys(QUEUES, 0)

    def open(self) -> MessageStore:
        return open_store(self.files, self.clock, flush_disk_type=self.flush)

    def append(self) -> None:
        queue = self.random.choice(QUEUES)
        bodies = []
        for _ in range(self.random.choice([1, 1, 1, 4])):
            self.number += 1
            bodies.append(b"%d " % self.number + bytes(self.random.randrange(400)))
        keys = [f"k{self.number - len(bodies) + 1 + n}" for n in range(len(bodies))]
        message = make_message(bodies[0], topic=queue[0], queue_id=queue[1], keys=keys[0])
        batch = Batch.of(
            BatchedMessage(0, body, f"KEYS\x01{key}\x02".encode())
            for body, key in zip(bodies, keys, strict=True)
        )
        appended = self.store.append(message, batch=batch if len(batch) > 1 else None)
        assert appended.queue_offset == len(self.expected[queue])
        starts = [parse_offset_message_id(text).offset for text in appended.message_ids.split(",")]
        ends = [*starts[1:], appended.end_offset]
        for queue_offset, (body, end) in enumerate(
            zip(bodies, ends, strict=True), appended.queue_offset
        ):
            self.expected[queue][queue_offset] = body
            self.log.append((end, queue, queue_offset))

    def step(self) -> None:
        self.clock.now_ms += self.random.randrange(2000)
        action = self.random.random()
        if action < 0.5:
            self.append()
        elif action < 0.75:
            self.store.write_pending()
        elif action < 0.85:
            self.store.fsync()
        elif action < 0.95:
            self.store.dispatch()
            for queue in QUEUES:
                self.seen[queue] = self.store.max_queue_offset(*queue)
        else:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Life goes on between its two halves, if the second one comes."""
        write = self.store.prepare_checkpoint(thorough=self.random.random() < 0.5)
        self.store.fsync()
        for _ in range(self.random.randrange(4)):
            self.append()
            self.store.write_pending()
            self.store.dispatch()
            if self.random.random() < 0.1:
                self.store.checkpoint()
        if write is not None and self.random.random() < 0.9:
            write()

    def crash(self) -> None:
        how = self.random.random()
        written = self.store._log.written_offset
        flushed = self.store.flushed_offset
        if how < 0.2:
            self.store.close()
            written = flushed = self.store.end_offset
            self.files = self.files.kill()
            promised = flushed
        elif how < 0.4:
            self.files = self.files.kill()
            promised = written
        elif how < 0.6:
            self.files = self.files.crash()
            promised = flushed
        else:
            self.files = self.files.crash(self.random.randrange(1 << 30))
            promised = flushed
        self.store = self.open()
        self.check(promised)

    def check(self, promised: int) -> None:
        store = self.store
        assert store.end_offset >= promised
        survivors = [entry for entry in self.log if entry[0] <= store.end_offset]
        self.log = survivors
        for queue in QUEUES:
            offsets = [offset for _, of, offset in survivors if of == queue]
            assert offsets == list(range(len(offsets)))
            found = read_all(store, *queue)
            assert [message.queue_offset for message in found] == offsets
            bodies = self.expected[queue]
            for message in found:
                assert message.body == bodies[message.queue_offset]
            self.expected[queue] = {offset: bodies[offset] for offset in offsets}
            if self.flush == "SYNC_FLUSH":
                assert len(offsets) >= self.seen[queue]
            for message in found[-5:]:
                if b"\0" in message.properties:
                    # A lost sector, which nothing tells from what a user may send.
                    assert message.physical_offset + message.store_size > promised
                    continue
                key = "k" + message.body.split()[0].decode()
                hits = by_key(store, queue[0], key, 64, 0, 1 << 62)
                assert message.physical_offset in hits


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("seed", range(60))
def test_what_was_promised_survives_every_crash(seed: int, flush: str) -> None:
    life = Life(seed, flush)
    try:
        for _ in range(5):
            for _ in range(life.random.randrange(1, 120)):
                life.step()
            life.crash()
    except Exception as error:
        raise AssertionError(f"seed {seed} with {flush}") from error
