"""The message store as HA links see it.

Rules: docs/formats/auto-switch-ha.md, "How far two logs are equal".
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.replication.interfaces import IReplicatedLog, ISwitchedLog


@implementer(IReplicatedLog)
class StoreLog:
    """Reads come from the store, a slave's appends go through its commit.

    With SYNC_FLUSH slaves get only what is durable here: a master that loses its power must not
    come back with less than its slaves have.
    """

    def __init__(self, writing: Writing, config: MessageStoreConfig) -> None:
        self._store = writing.store
        self._commit = writing.commit
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


@implementer(ISwitchedLog)
class SwitchedLog(StoreLog):
    """A log that may lose its end to a new master's. What is confirmed is the store's dispatch
    limit, and stands in the role."""

    def __init__(self, writing: Writing, config: MessageStoreConfig, role: RoleHolder) -> None:
        super().__init__(writing, config)
        self._truncation = writing.truncation
        self._role = role

    @property
    def confirmed_offset(self) -> int:
        """See `ISwitchedLog`."""
        limit = self._store.dispatch_limit
        return 0 if limit is None else min(limit, self._store.dispatched_offset)

    def end_at_whole_record(self) -> Deferred[None]:
        """See `ISwitchedLog`."""
        return self._truncation.end_at_whole_record()

    def truncate(self, end: int) -> Deferred[None]:
        """See `ISwitchedLog`."""
        return self._truncation.cut(end)

    def confirm(self, offset: int) -> None:
        """See `ISwitchedLog`; a broker that is between two roles takes nothing."""
        if self._role.state.epoch is None:
            return
        known = self._store.dispatch_limit
        if known is None or offset > known:
            self._store.dispatch_limit = offset
            self._role.confirm(offset)
            self._commit.confirmed()
