"""What the broker asks of the rooms below and beside it."""

from rocketmq_tw.replication.interfaces import IReplicator
from rocketmq_tw.store.interface import (
    Appended,
    Arrival,
    Arrived,
    GetStatus,
    IMessageStore,
    QueueRead,
    RecordMatch,
    TagMatch,
)

__all__ = [
    "Appended",
    "Arrival",
    "Arrived",
    "GetStatus",
    "IMessageStore",
    "IReplicator",
    "QueueRead",
    "RecordMatch",
    "TagMatch",
]
