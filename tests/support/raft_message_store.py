"""A message store on the log of a Raft group with one member, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.raft.core.config import NodeConfig, RaftConfig
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.message_log import RaftLog
from rocketmq_tw.raft.node import RaftNode, Replicated
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.store.message_store import MessageStore
from tests.support.network import MemoryNetwork
from tests.support.stores import ManualClock, small_config

FILE_SIZE = 4096
INDEX_SIZE = 32 * 64


def run_at_once(action: Callable[[], None]) -> Deferred[None]:
    try:
        action()
    except Exception as error:
        return fail(error)
    return succeed(None)


class RaftStore:
    """`store` is loaded and `node` runs; `lead` waits until messages may be appended."""

    def __init__(self, files: IFiles, **changes: object) -> None:
        config = small_config(**changes)
        self.directory = f"{config.store_path_root_dir}/dledger-n0"
        self.log = RaftLog(
            partial(MemberStore, files, self.directory, FILE_SIZE, INDEX_SIZE), FILE_SIZE, 1 << 20
        )
        self.store = MessageStore(config, files, ManualClock(), log=self.log)
        self.report = self.store.load()
        self.store.dispatch_limit = self.log.committed_offset
        self.clock = Clock()
        peers = {"n0": "127.0.0.1:1"}
        raft = RaftConfig(self_id="n0", members=tuple(peers), data_file_size=FILE_SIZE)
        self.node = RaftNode(
            self.clock,
            NodeConfig(group="g", peers=peers, raft=raft, snapshot_every=0),
            self.log.member,
            MemoryNetwork(self.clock).client(),
            run_at_once,
            Replicated(keeps_store=True),
        )
        self.log.group = self.node
        self.node.commit_listeners.append(self._committed)
        self.node.start()

    def _committed(self, entries: Sequence[Entry]) -> None:
        self.log.commit(entries[-1])
        self.store.dispatch_limit = self.log.committed_offset
        if not self.log.leads:
            self.store.log_grew()

    def lead(self) -> None:
        for _ in range(200):
            self.run()
            if self.node.is_leader and self.node.core.applied_index == self.node.core.log.end_index:
                break
        while self.store.dispatch():
            pass
        self.log.lead(self.node.core.term)

    def new_term(self) -> None:
        """An election in which the only member wins again; the log is not told."""
        self.node.core.election.step_to_term(self.node.core.term + 1)
        for _ in range(200):
            self.run()
            if self.node.is_leader:
                break

    def run(self) -> None:
        """Lets the group do what it can."""
        self.clock.pump([0.05] * 4)

    def settle(self) -> None:
        """What was appended is committed and in its queues."""
        self.store.write_pending()
        self.run()
        while self.store.dispatch():
            pass

    def close(self) -> None:
        self.node.stop()
        self.store.close()
