"""Holds what one store has, as the parts of the store share it."""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_tw.store.deleted_topics import DeletedTopics
from rocketmq_tw.store.index import MessageIndex
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.queues import QueueTable


@dataclass(frozen=True)
class StoreContents:
    """The log, the queues and the index that follow from it (None: the store has no index), and the
    note of topics that were deleted since their messages were stored."""

    log: ILog
    queues: QueueTable
    index: MessageIndex | None
    deleted: DeletedTopics
