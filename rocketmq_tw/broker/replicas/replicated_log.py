"""The message store as the HA links see it."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.replication.links.interfaces import IReplicatedLog


@implementer(IReplicatedLog)
class StoreLog:
    """Reads come from the store, a slave's appends go through its commit.

    With SYNC_FLUSH slaves get only what is durable here: a master that loses its power must not
    come back with less than its slaves have.
    """

    def __init__(self, store: IMessageStore, config: MessageStoreConfig, commit: Commit) -> None:
        self._store = store
        self._commit = commit
        self._durable_only = config.flush_disk_type == "SYNC_FLUSH"

    @property
    def start_offset(self) -> int:
        return self._store.min_physical_offset

    @property
    def end_offset(self) -> int:
        store = self._store
        return store.flushed_offset if self._durable_only else store.written_offset

    def read(self, offset: int, size: int) -> bytes:
        """See `IReplicatedLog`."""
        return self._store.read_log(offset, min(size, self.end_offset - offset))

    def settled(self) -> Deferred[int]:
        """See `IReplicatedLog`."""
        return self._commit.settled()

    def append(self, offset: int, data: bytes) -> Deferred[int]:
        """See `IReplicatedLog`."""
        return self._commit.append_raw(offset, data)
