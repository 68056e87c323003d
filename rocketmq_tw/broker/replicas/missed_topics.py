"""Finds the queues for which a new master has to make a topic: a slave gets messages before it
hears of their topic, and its master may be gone by then. No client would find such messages.

The table of topics says as of which place of the log it is. A message that stands behind that is of
a topic that was made since, or got more queues; one in front of it is of a topic that was deleted
before, or has fewer queues. Of what a master deletes and its slave has heard of, no queue is left.
Times would not do: the table may be of one member's clock and the messages of another's. They
decide only for a table without a place, as stock and earlier releases write it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.message.names import LMQ_PREFIX
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import MAX_TOPIC_QUEUES, DataVersion
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.permissions import READ, WRITE


class Since(NamedTuple):
    """Up to where a table has all topics: a place of the log, and where it has none a time in
    ms."""

    place: int | None
    time: int


def known_until(version: DataVersion) -> int:
    """Returns the time in ms up to which a table of this version has all changes; 0 for one that
    never had any, as where its file is lost."""
    return version.timestamp if version.counter else 0


def find_missed(
    store: IMessageStore, topics: TopicTable, since: Since, found: list[TopicConfig]
) -> Iterator[None]:
    """Adds to `found` the topics that `topics` lacks, or has with too few queues, though `store`
    has messages of them from `since` on; in steps. They get the queues that have messages, no
    further ones: another member may know how many the topic has, and consumers of one that leads
    next would not read what came into more. A queue that no topic may have is of a damaged
    record."""
    for number, topic in enumerate(store.queue_topics()):
        if every(number):
            yield
        if topics.is_system(topic) or topic.startswith(LMQ_PREFIX):
            continue
        known = topics.get(topic)
        count = 0 if known is None else max(known.read_queue_nums, known.write_queue_nums)
        needed = 1 + max(
            (
                each
                for each in store.queue_ids(topic)
                if count <= each < MAX_TOPIC_QUEUES and _has_since(store, topic, each, since)
            ),
            default=-1,
        )
        if not needed:
            continue
        if known is not None:
            found.append(
                msgspec.structs.replace(
                    known,
                    read_queue_nums=max(known.read_queue_nums, needed),
                    write_queue_nums=max(known.write_queue_nums, needed),
                )
            )
            continue
        found.append(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=needed,
                write_queue_nums=needed,
                perm=READ | WRITE,
            )
        )


def _has_since(store: IMessageStore, topic: str, queue_id: int, since: Since) -> bool:
    """Returns whether a queue's last message is not older than `since`; not where it has none."""
    last = store.max_queue_offset(topic, queue_id) - 1
    if since.place is None:
        return store.store_time(topic, queue_id, last) >= since.time
    return any(unit.position >= since.place for unit in store.queue_units(topic, queue_id, last, 1))
