"""The directories of queues: which of them a broker takes for queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rocketmq_tw.storecheck.long_file import LongFile, directories
from rocketmq_tw.storecheck.records import is_topic

_MAX_QUEUE_ID = 0x7FFFFFFF


def is_queue_id(name: str) -> bool:
    """Returns whether a directory of that name, below a topic's, is a queue."""
    is_number = name.isascii() and name.isdigit() and str(int(name)) == name
    return is_number and int(name) <= _MAX_QUEUE_ID


def queues_below(root: str, kind: str) -> Iterator[tuple[str, int]]:
    """Yields topic and queue id of each queue in `root`/`kind`/topic/queue. A broker passes over
    what has another name, such as somebody's copy of a queue."""
    for topic in directories(f"{root}/{kind}"):
        if is_topic(topic):
            for name in directories(f"{root}/{kind}/{topic}"):
                if is_queue_id(name):
                    yield topic, int(name)


def usual_size_below(root: str, kind: str) -> int:
    """Returns the size that most files have of the queues in `root`/`kind`/topic/queue; 0 without
    any that has bytes."""
    counts: Counter[int] = Counter()
    for topic, queue_id in queues_below(root, kind):
        counts.update(LongFile(root, f"{kind}/{topic}/{queue_id}").sizes.values())
    del counts[0]
    return counts.most_common(1)[0][0] if counts else 0
