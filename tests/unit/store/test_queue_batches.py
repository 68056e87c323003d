"""A queue that is read on and on: where it begins, where it ends, and what it passes over."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.store.interface import QueueRead
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.queue_batches import batches, next_batch
from tests.support.stores import make_message, open_store, put


def filled(
    files: MemoryFiles, count: int, *, most: int = 32, is_copy: bool = False
) -> MessageStore:
    store = open_store(files, is_copy=lambda: is_copy, max_transfer_count_on_message_in_memory=most)
    put(store, *[make_message(bytes(100)) for _ in range(count)])
    return store


def offsets(reads: Iterable[QueueRead]) -> list[list[int]]:
    """The queue offsets of the messages of each read."""
    return [[message.queue_offset for message in decode_records(read.data)] for read in reads]


def test_each_batch_begins_where_the_one_before_ended(files: MemoryFiles) -> None:
    store = filled(files, 7, most=3)
    assert offsets(batches(store, "Topic", 0, 1)) == [[1, 2, 3], [4, 5, 6]]


def test_what_comes_meanwhile_is_read_too_unless_an_end_is_given(files: MemoryFiles) -> None:
    store = filled(files, 4, most=3)
    endless = batches(store, "Topic", 0, 0)
    ended = batches(store, "Topic", 0, 0, 4)
    begun = [next(endless), next(ended)]
    put(store, *[make_message() for _ in range(5)])
    assert offsets(begun) == [[0, 1, 2]] * 2
    assert offsets(endless) == [[3, 4, 5], [6, 7, 8]]
    assert offsets(ended) == [[3, 4, 5]], "a batch is not cut at the end"


@pytest.mark.parametrize("is_copy", [False, True])
def test_nothing_is_read_where_nothing_is(files: MemoryFiles, is_copy: bool) -> None:
    store = filled(files, 3, is_copy=is_copy)
    for offset in (3, 9):
        assert next_batch(store, "Topic", 0, offset) is None
    assert next_batch(store, "Topic", 1, 0) is None
    assert offsets(batches(store, "Missing", 0, 0)) == []
    assert offsets(batches(store, "Topic", 0, 2, 2)) == []


@pytest.mark.parametrize("is_copy", [False, True])
def test_what_retention_took_is_passed_over(files: MemoryFiles, is_copy: bool) -> None:
    """A slave's store answers clients with the offset that they asked for."""
    store = filled(files, 40, is_copy=is_copy)
    store._log.remove_first()
    queue = store._queues.find("Topic", 0)
    assert queue is not None
    queue.correct_min_offset(store._log.min_offset)
    first = store.min_queue_offset("Topic", 0)
    assert 0 < first < 40
    found = [offset for some in offsets(batches(store, "Topic", 0, 0)) for offset in some]
    assert found == list(range(first, 40))


def test_what_cannot_be_read_ends_it(files: MemoryFiles) -> None:
    store = filled(files, 7, is_copy=True)
    queue = store._queues.find("Topic", 0)
    assert queue is not None
    plain = queue.read

    def read(offset: int, count: int) -> bytes:
        return plain(offset, min(count, 4 - offset))

    queue.read = read  # type: ignore[method-assign]
    reads = list(batches(store, "Topic", 0, 0, 7))
    assert offsets(reads) == [[0, 1, 2, 3]]
    assert reads[-1].next_offset == 4
    assert next_batch(store, "Topic", 0, 4) is None
