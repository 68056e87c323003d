"""What the broker asks of the rooms below and beside it."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.replication.links.interfaces import IReplicator
from rocketmq_tw.store.interface import (
    EVERY_MESSAGE,
    Appended,
    Arrival,
    Arrived,
    GetStatus,
    IMessageStore,
    MessageFilter,
    QueueRead,
)

#: Runs a blocking call in a thread; fires with its result.
InThread = Callable[[Callable[[], Any]], Deferred[Any]]

__all__ = [
    "EVERY_MESSAGE",
    "Appended",
    "Arrival",
    "Arrived",
    "GetStatus",
    "IMessageStore",
    "IReplicator",
    "InThread",
    "MessageFilter",
    "QueueRead",
]
