"""Kinds of queues that stock has and this broker has not: batch queues and compacted topics.

A batch queue counts a whole batch as one unit in a file format of its own, so that a simple queue
beside it has other offsets; stock refuses to start on a store that mixes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.wire.bodies.topics import TopicConfig

#: Attributes of topics whose queues would be of such a kind.
UNSUPPORTED: Mapping[str, str] = {"queue.type": "BatchCQ", "cleanup.policy": "COMPACTION"}
#: Where stock keeps batch queues, below the store's root: by topic and queue id.
BATCH_QUEUES = "batchconsumequeue"

_ADVICE = (
    "take its messages over and delete it (mqadmin deleteTopic) with the broker that wrote this"
    " store, then start here again"
)


def unsupported(config: TopicConfig) -> str:
    """Returns the attribute, as `key=value`, for which the topic cannot be served; empty without
    one."""
    attributes = config.attributes or {}
    for key, value in UNSUPPORTED.items():
        if attributes.get(key) == value:
            return f"{key}={value}"
    return ""


def check_topics(configs: Iterable[TopicConfig]) -> None:
    """Raises `StoreError` where a topic has queues of such a kind."""
    for config in configs:
        attribute = unsupported(config)
        if attribute:
            raise StoreError(
                f"the topic {config.topic_name} in config/topics.json has {attribute}, and such"
                f" queues do not exist here: {_ADVICE}"
            )


def check_files(files: IFiles, root: str) -> None:
    """Raises `StoreError` where the store has batch queues."""
    topic = _first_topic(files, f"{root}/{BATCH_QUEUES}")
    if topic is not None:
        raise StoreError(
            f"the topic {topic} has batch queues in {root}/{BATCH_QUEUES}, and such queues do not"
            f" exist here: {_ADVICE}"
        )


def _first_topic(files: IFiles, directory: str) -> str | None:
    """Returns a topic that has files of a queue below a directory; None without one."""
    for topic in files.list(directory):
        for queue_id in files.list(f"{directory}/{topic}"):
            if files.list(f"{directory}/{topic}/{queue_id}"):
                return topic
    return None
