"""What the broker asks of the rooms below and beside it."""

from rocketmq_tw.replication.interfaces import IReplicator
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

__all__ = [
    "EVERY_MESSAGE",
    "Appended",
    "Arrival",
    "Arrived",
    "GetStatus",
    "IMessageStore",
    "IReplicator",
    "MessageFilter",
    "QueueRead",
]
