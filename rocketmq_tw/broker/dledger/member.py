"""Between a member of a DLedger group and the broker's store: what is committed is dispatched, and
its sends are answered (docs/formats/dledger.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.broker.dledger.quorum import QuorumWaits
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.group_log import MOST_WAITING_ENTRIES
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.core.log import LogBase
from rocketmq_tw.raft.message_log import RaftLog
from rocketmq_tw.raft.node import RaftNode
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.message_store import MessageStore

log = Logger()


class DLedgerMember:
    """`log` is what `store` appends to, and `node` commits. `quorum` is asked about messages that
    wait while this member leads."""

    def __init__(
        self,
        clock: IReactorTime,
        node: RaftNode,
        log: RaftLog,
        store: MessageStore,
        commit: Commit,
    ) -> None:
        self.node = node
        self._log = log
        self._store = store
        self._commit = commit
        log.group = node
        core = node.core
        self.quorum = QuorumWaits(
            clock,
            node.config.max_wait_ack_time_ms / 1000,
            lambda: core.log.end_index - core.commit_index,
            MOST_WAITING_ENTRIES,
        )
        node.commit_listeners.append(self._committed)
        node.restart_listeners.append(self._restarted)

    @property
    def is_settled(self) -> bool:
        """Whether this member leads, and all that its log has is committed and in its queues."""
        core = self.node.core
        is_applied = core.applied_index == core.log.end_index
        return self.node.is_leader and is_applied and self._store.is_dispatched

    def lead(self) -> None:
        """Lets messages be appended as long as the term lasts: `is_settled`."""
        self._log.lead(self.node.core.term)

    def follow(self) -> None:
        """Ends appending here. Sends that wait are answered with SYSTEM_ERROR."""
        if self._log.leads:
            self._log.follow()
            self._change_store(self._store.log_shrank)
        self.quorum.fail_all()

    def _committed(self, entries: Sequence[Entry]) -> None:
        self._log.commit(entries[-1])
        self._store.dispatch_limit = self._log.committed_offset
        if not self._log.leads:
            self._store.log_grew()
        self._commit.confirmed()
        self.quorum.committed(self._log.committed_offset)

    def _restarted(self, base: LogBase) -> None:
        self._log.begin_anew(base.next_pos)
        self._store.dispatch_limit = self._log.committed_offset
        self._change_store(self._store.log_began_anew)

    def _change_store(self, change: Callable[[], None]) -> None:
        try:
            change()
        except StoreError:
            log.failure(
                "the store could not follow the log of DLedger group {group}",
                group=self.node.config.group,
            )
