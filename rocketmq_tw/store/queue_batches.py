"""Reads a queue from an offset on, some messages at a time: what the broker itself wants of it.

One rule for all: a read that gets no further is the end, of the queue as of what can be read of it,
and who tries again in its time begins there. What is gone from the front of the queue is passed
over, on a slave too, whose store corrects no offsets.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.store.interface import IMessageStore, QueueRead

#: Messages that are read at once, and their bytes.
READ_MESSAGES = 256
READ_BYTES = 1 << 20


def next_batch(store: IMessageStore, topic: str, queue_id: int, offset: int) -> QueueRead | None:
    """Returns some messages from `offset` on, none where these are gone; `next_offset` is behind
    `offset`. None where the queue goes on no further."""
    read = store.read_queue(topic, queue_id, offset, READ_MESSAGES, READ_BYTES)
    behind = max(read.next_offset, read.min_offset)
    if behind <= offset:
        return None
    return read if behind == read.next_offset else read._replace(next_offset=behind)


def batches(
    store: IMessageStore,
    topic: str,
    queue_id: int,
    offset: int,
    end: int | None = None,
) -> Iterator[QueueRead]:
    """Yields what a queue has from `offset` on: up to `end`, with what the last batch has behind
    it, or else with what comes meanwhile. Where the last one's `next_offset` is in front of `end`,
    the rest cannot be read."""
    while end is None or offset < end:
        read = next_batch(store, topic, queue_id, offset)
        if read is None:
            return
        yield read
        offset = read.next_offset
