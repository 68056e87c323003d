"""What a new master gives its queues that no topic has: a slave gets messages before it hears of
their topic, and its master may be gone by then. No client would find such messages.

The table of topics says when it was last changed. A message that a queue got later is of a topic
that was made since, or got more queues; one that is older is of a topic that was deleted before, or
has fewer queues. Of what a master deletes and its slave has heard of, no queue is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.message.names import LMQ_PREFIX
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.permissions import READ, WRITE


def known_until(version: DataVersion) -> int:
    """Returns the time in ms up to which a table of this version has all changes; 0 for one that
    never had any, as where its file is lost."""
    return version.timestamp if version.counter else 0


def find_missed(
    store: IMessageStore, topics: TopicTable, since: int, found: list[TopicConfig]
) -> Iterator[None]:
    """Adds to `found` the topics that `topics` lacks, or has with too few queues, though `store`
    has messages of them that are not older than `since`, in ms; in steps. They get the queues
    that have messages, no further ones: another member may know how many the topic has, and
    consumers of one that leads next would not read what came into more."""
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
                if each >= count and _ends(store, topic, each) >= since
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


def _ends(store: IMessageStore, topic: str, queue_id: int) -> int:
    """Returns the store time of a queue's last message; -1 where it has none."""
    return store.store_time(topic, queue_id, store.max_queue_offset(topic, queue_id) - 1)
