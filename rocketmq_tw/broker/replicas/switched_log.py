"""The message store as auto-switch HA sees it: a log that may lose its end to a new master's."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.replicas.replicated_log import StoreLog
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.truncation import Truncation
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.replication.auto_switch.interfaces import ISwitchedLog


@implementer(ISwitchedLog)
class SwitchedLog(StoreLog):
    """What is confirmed is the store's dispatch limit, and stands in the role."""

    def __init__(
        self,
        store: IMessageStore,
        config: MessageStoreConfig,
        commit: Commit,
        truncation: Truncation,
        role: RoleHolder,
    ) -> None:
        super().__init__(store, config, commit)
        self._truncation = truncation
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
