"""What the broker asks of the rooms below and beside it."""

from twisted.internet.defer import Deferred
from zope.interface import Interface

from rocketmq_tw.store.interface import (
    Appended,
    Arrival,
    GetStatus,
    IMessageStore,
    QueueRead,
    RecordMatch,
    TagMatch,
)

__all__ = [
    "Appended",
    "Arrival",
    "GetStatus",
    "IMessageStore",
    "IReplicator",
    "QueueRead",
    "RecordMatch",
    "TagMatch",
]


class IReplicator(Interface):
    """Answers when replicas have what a reply promises."""

    def wait(end_offset: int, sync: bool) -> "Deferred[int]":
        """Fires with a response code once enough replicas have the log up to `end_offset`."""
