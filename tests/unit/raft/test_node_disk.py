"""A lone node whose disk is slow, stops in the middle or is shared with a reader: what it leaves
behind has to be what it promised, and nothing else."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from errno import EMFILE, ENFILE, ENOSPC, EROFS
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs
from twisted.python.failure import Failure

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import Code, PushKind, RaftRole, Refused
from rocketmq_tw.raft.core.config import NodeConfig, RaftConfig
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.core.log import LogWrites
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.raft_core import Ready
from rocketmq_tw.raft.node import RaftNode, Replicated
from rocketmq_tw.raft.pending import Applied
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.runtime.retries import RETRY_USUAL
from tests.support.network import MemoryNetwork
from tests.support.raft_kv import KeyValue, Put, encode_kv_command
from tests.support.raft_store import entries_of_terms

PEERS = {"n0": "127.0.0.1:1", "n1": "127.0.0.1:2", "n2": "127.0.0.1:3"}
FILE_SIZE = 512


def open_store(files: MemoryFiles | FaultyFiles) -> MemberStore:
    return MemberStore(files, "/s", FILE_SIZE, 32 * 8)


class LoneNode:
    """Member n0; the others are played by the test. Its disk works when `run_disk` says so."""

    def __init__(
        self,
        files: MemoryFiles | FaultyFiles,
        *,
        peers: dict[str, str] = PEERS,
        machine: Any = None,
        snapshot_every: int = 0,
    ) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.waiting: list[tuple[Callable[[], None], Deferred[None]]] = []
        raft = RaftConfig(self_id="n0", members=tuple(peers), data_file_size=FILE_SIZE)
        config = NodeConfig(group="g", peers=peers, raft=raft, snapshot_every=snapshot_every)
        client = MemoryNetwork(self.clock).client()
        self.store = open_store(files)
        self.node = RaftNode(
            self.clock, config, self.store, client, self._later, Replicated(machine), Random(1)
        )
        self.node.start()

    def _later(self, action: Callable[[], None]) -> "Deferred[None]":
        done: Deferred[None] = Deferred()
        self.waiting.append((action, done))
        return done

    def run_disk(self) -> None:
        """The disk does all that it was given, and what follows from that."""
        self.clock.advance(0.001)
        while self.waiting:
            action, done = self.waiting.pop(0)
            try:
                action()
            except Exception:
                done.errback(Failure())
            else:
                done.callback(None)
            self.clock.advance(0.001)

    def hear(self, message_type: type, **fields: Any) -> list[Any]:
        """A request of n1, which leads; the answers so far."""
        answers: list[Any] = []
        fields = {"source": "n1", "target": "n0", "term": 2} | fields
        answered = maybeDeferred(self.node.answer, lambda token: message_type(**fields, rpc=token))
        answered.addBoth(answers.append)
        return answers

    def push(self, kind: PushKind, entries: Sequence[Entry], commit_index: int) -> list[Any]:
        return self.hear(m.PushRequest, kind=kind, entries=entries, commit_index=commit_index)

    def follow(self) -> None:
        """n1 leads in term 2 from here on."""
        self.hear(m.HeartbeatRequest)
        self.run_disk()

    def follow_compared(self, commit_index: int = -1) -> None:
        """Follows n1, with which it has the first entry of `NEW` in common."""
        self.follow()
        self.push(PushKind.COMPARE, NEW[:1], commit_index)
        self.run_disk()


def stored(files: MemoryFiles, terms: Sequence[int]) -> list[Entry]:
    """A store in term 2 with an entry for each of `terms`."""
    entries = entries_of_terms(terms, FILE_SIZE)
    writes = LogWrites(None, None, entries)
    store = open_store(files)
    store.store(Ready(HardState(2, None), None, writes, [], [], [], [], [], []))
    store.close()
    return entries


def test_what_a_snapshot_covers_is_read_until_the_core_knows() -> None:
    """The storing thread is not done with a snapshot while the core still reads the entries that
    it covers, for a follower that is behind."""
    files = MemoryFiles()
    machine = KeyValue()
    lone = LoneNode(files, peers={"n0": PEERS["n0"]}, machine=machine, snapshot_every=12)
    lone.run_disk()
    assert lone.node.is_leader
    bodies = [encode_kv_command(Put("k", f"{number}" * 40)) for number in range(24)]
    for body in bodies:
        lone.node.propose([body])
        lone.clock.advance(0.001)
        while lone.waiting:
            action, done = lone.waiting.pop(0)
            action()
            # What of the log is not in memory is read here.
            assert lone.store.read(lone.node.core.log.begin_index).body in bodies
            meta = lone.store.snapshot
            assert meta is None or lone.store.read_snapshot(0, meta.size)
            done.callback(None)
            lone.clock.advance(0.001)
    assert lone.store.snapshot is not None and lone.node.core.log.begin_index > 10
    assert "00000000000000000000" not in files.list("/s/data")


OLD = [1, 1, 1, 1]
NEW = entries_of_terms([1, 2, 2, 2], FILE_SIZE)


def test_a_checkpoint_vouches_only_for_what_is_stored() -> None:
    """One is due just when a push came: were the push's commit index in it, a power loss now
    would leave an old entry behind as a committed one."""
    files = MemoryFiles()
    stored(files, OLD)
    lone = LoneNode(files)
    lone.follow_compared()
    due = lone.node._checkpoints.due
    assert due is not None
    left = due - lone.clock.seconds()
    lone.clock.callLater(left - 0.0001, lone.push, PushKind.TRUNCATE, NEW[1:2], 1)
    lone.clock.advance(left)
    assert lone.node.core.commit_index == 1
    action, _ = lone.waiting.pop(0)
    action()
    after = open_store(files.crash())
    assert after.end_index == 3 and after.commit_index <= 0


def test_a_stop_before_a_push_is_stored_leaves_a_store_that_opens() -> None:
    files = MemoryFiles()
    stored(files, OLD[:1])
    lone = LoneNode(files)
    lone.follow_compared()
    lone.push(PushKind.APPEND, NEW[1:], 3)
    lone.node.stop()
    after = open_store(files)
    assert after.end_index == 0 and after.commit_index <= 0


def test_a_stop_on_a_full_disk_ends() -> None:
    files = MemoryFiles()
    stored(files, OLD[:1])
    disk = FaultyFiles(files)
    lone = LoneNode(disk)
    lone.follow_compared(0)
    disk.faults.append(Fault("pwrite", "checkpoint", error=ENOSPC))
    ended: list[Any] = []
    lone.node.stop().addBoth(ended.append)
    assert ended == [None]
    assert open_store(files).end_index == 0


def test_a_member_that_a_listener_stops_writes_no_more_once_it_is_closed() -> None:
    files = MemoryFiles()
    stored(files, OLD[:1])
    lone = LoneNode(files)
    lone.follow_compared()
    # The one before is committed while these are stored.
    lone.node.commit_listeners.append(lambda entries: lone.node.stop())
    lone.push(PushKind.APPEND, NEW[1:], 0)
    lone.run_disk()
    lone.clock.advance(60)
    assert not lone.waiting


def is_up(lone: LoneNode) -> bool:
    """Whether a lone leader stores what it is given."""
    done = lone.node.propose([encode_kv_command(Put("k", "v"))])[0]
    lone.run_disk()
    return isinstance(getattr(done, "result", None), Applied)


def leader_with_snapshots(disk: FaultyFiles) -> LoneNode:
    lone = LoneNode(disk, peers={"n0": PEERS["n0"]}, machine=KeyValue(), snapshot_every=12)
    lone.run_disk()
    assert is_up(lone)
    return lone


HINTS = {
    "checkpoint": Fault("create", "checkpoint.tmp", error=EMFILE, times=12),
    "snapshot": Fault("pwrite", "/snapshot/", error=ENOSPC, times=2),
    "covered files": Fault("remove", "/s/data", error=EROFS, times=2),
}


@pytest.mark.parametrize("kind", HINTS)
def test_a_member_goes_on_without_what_only_saves_work(kind: str) -> None:
    files = MemoryFiles()
    disk = FaultyFiles(files)
    lone = leader_with_snapshots(disk)
    fault = replace(HINTS[kind])
    with capturedLogs() as logs:
        disk.faults.append(fault)
        for _ in range(200):
            assert is_up(lone)
            lone.clock.advance(1.5)
            lone.run_disk()
        assert fault.hits == fault.times
    told = [event for event in logs if event["log_level"] >= LogLevel.error]
    assert 0 < len(told) <= 5
    # What had failed was made up for.
    assert files.list("/s/snapshot")[-1] > "00000000000000000150"
    assert files.list("/s/data")[0] > "00000000000000005120"
    assert lone.store._saved is not None and lone.store._saved.committed_index > 190
    assert open_store(files.crash()).commit_index > 190


NO_ROOM = {
    "entries": Fault("pwrite", "/s/data/", error=ENOSPC),
    "a new file": Fault("create", "/s/data/", error=EMFILE),
    "term and vote": Fault("create", "currterm.tmp", error=EMFILE),
    "the name of term and vote": Fault("sync_dir", "/s", error=ENFILE),
}


@pytest.mark.parametrize("kind", NO_ROOM)
def test_a_lone_member_goes_on_once_there_is_room(kind: str) -> None:
    files = MemoryFiles()
    disk = FaultyFiles(files)
    lone = LoneNode(disk, peers={"n0": PEERS["n0"]}, machine=KeyValue())
    lone.run_disk()
    node, roles = lone.node, list[RaftRole]()
    node.role_listeners.append(lambda role, term: roles.append(role))
    kept = node.propose([encode_kv_command(Put("k", "kept"))])[0]
    lone.run_disk()
    assert kept.result.index == 0
    disk.faults.append(replace(NO_ROOM[kind]))
    outcomes: list[Any] = []
    with capturedLogs() as logs:
        for _ in range(100):
            with suppress(Refused):
                node.propose([bytes(300)])[0].addBoth(outcomes.append)
            if "term" in kind:
                node.stand(False)
                node.core.election.increase_term_at_once = True
                node.stand(True)
            lone.run_disk()
            lone.clock.advance(0.3)
    assert node.trouble and not node.is_leader and roles == [RaftRole.CANDIDATE]
    assert all(isinstance(one, Failure) or one.index > 0 for one in outcomes)
    # That it stands aside, and that nobody leads.
    assert len([event for event in logs if event["log_level"] >= LogLevel.warn]) == 2
    assert open_store(files.crash()).hard_state == lone.store.hard_state
    disk.faults.clear()
    for _ in range(20):
        lone.clock.advance(0.3)
        lone.run_disk()
    assert not node.trouble and is_up(lone)
    after = open_store(files.crash())
    assert after.end_index == node.core.log.end_index
    assert after.hard_state.term == node.core.term


def test_a_member_without_room_promises_nothing() -> None:
    """Neither its vote nor that it has an entry, whatever it is asked, and as long as that lasts
    what it is asked takes no memory."""
    files = MemoryFiles()
    stored(files, OLD[:1])
    disk = FaultyFiles(files)
    lone = LoneNode(disk)
    lone.follow_compared()
    disk.faults.append(Fault("pwrite", "/s/data/", error=ENOSPC))
    answers = lone.push(PushKind.APPEND, NEW[1:], 3)
    for _ in range(100):
        lone.run_disk()
        answers += lone.push(PushKind.APPEND, NEW[1:], 3)
        answers += lone.hear(m.VoteRequest, term=3, end_index=9, end_term=2)
        answers += lone.hear(m.HeartbeatRequest, term=2)
        lone.clock.advance(0.2)
    assert len(answers) == 301 and not lone.node._answers
    assert {answer.value.code for answer in answers} == {Code.DISK_FULL}
    assert lone.store.end_index == 0 and lone.node.core.stored_commit_index <= 0
    assert not lone.node.core._state.outbox
    disk.faults.clear()
    lone.clock.advance(1)
    lone.run_disk()
    answers = lone.push(PushKind.APPEND, NEW[1:], 3) or lone.hear(m.HeartbeatRequest)
    lone.run_disk()
    assert lone.store.end_index == 3 and answers[0].code is Code.SUCCESS


def test_files_that_go_make_room() -> None:
    files = MemoryFiles()
    disk = FaultyFiles(files)
    lone = LoneNode(disk, peers={"n0": PEERS["n0"]})
    lone.run_disk()
    for _ in range(8):
        lone.node.propose([bytes(200)])
        lone.run_disk()
    disk.faults.append(Fault("pwrite", "/s/data/", error=ENOSPC))
    lone.node.propose([bytes(200)])
    lone.run_disk()
    assert lone.node.trouble
    disk.before_change = lambda: files.exists(f"/s/data/{0:020d}") or disk.faults.clear()
    lone.node.drop_files_before(2 * FILE_SIZE)
    lone.run_disk()
    assert not lone.node.trouble and files.list("/s/data")[0] == f"{2 * FILE_SIZE:020d}"


def test_a_member_tries_again_behind_a_removal_that_failed() -> None:
    files = MemoryFiles()
    disk = FaultyFiles(files)
    lone = LoneNode(disk, peers={"n0": PEERS["n0"]})
    lone.run_disk()
    for _ in range(8):
        lone.node.propose([bytes(200)])
        lone.run_disk()
    disk.faults = [
        Fault("pwrite", "/s/data/", error=ENOSPC, times=2),
        Fault("remove", "/s/data/", error=EROFS),
    ]
    lone.node.propose([bytes(200)])[0].addErrback(lambda _: None)
    lone.run_disk()
    lone.node.drop_files_before(2 * FILE_SIZE)
    lone.clock.advance(0.001)
    # Its next try is due while the removal is under way.
    lone.clock.advance(1)
    for _ in range(20):
        lone.run_disk()
        lone.clock.advance(0.3)
    assert not lone.node.trouble and is_up(lone)


def test_a_member_without_room_leads_no_more() -> None:
    disk = FaultyFiles(MemoryFiles())
    lone = LoneNode(disk, peers={"n0": PEERS["n0"]}, machine=KeyValue())
    lone.run_disk()
    disk.faults.append(Fault("pwrite", "/s/data/", error=ENOSPC))
    lone.node.propose([b"x"])[0].addErrback(lambda _: None)
    lone.run_disk()
    for ask in (lambda: lone.node.propose([b"y"]), lone.node.read):
        with pytest.raises(Refused) as refused:
            ask()
        assert refused.value.code is Code.NOT_LEADER


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_look_ends_a_member_whose_files_were_moved(is_moved: bool) -> None:
    files = MemoryFiles()
    lone = LoneNode(files, peers={"n0": PEERS["n0"]})
    lone.run_disk()
    lone.node.propose([b"kept"])
    lone.run_disk()
    failed: list[Any] = []
    lone.node.when_failed.addErrback(failed.append)
    if is_moved:
        files.rename("/s/data", "/moved")
    lone.node.look_at_place()
    lone.run_disk()
    assert bool(failed) == is_moved
    lone.node.stop()


def test_a_look_that_hangs_holds_up_no_answer() -> None:
    files = MemoryFiles()
    stored(files, [1, 1])
    lone = LoneNode(files)
    lone.follow()
    lone.node.look_at_place()
    answers = lone.hear(m.HeartbeatRequest)
    lone.clock.advance(1)
    assert len(answers) == 1 and len(lone.waiting) == 1
    lone.node.look_at_place()
    assert len(lone.waiting) == 1
    lone.run_disk()
    lone.node.stop()


def test_a_look_takes_no_try_from_a_member_without_room() -> None:
    disk = FaultyFiles(MemoryFiles())
    lone = LoneNode(disk, peers={"n0": PEERS["n0"]})
    lone.run_disk()
    disk.faults.append(Fault("pwrite", "/s/data/", error=ENOSPC))
    lone.node.propose([b"x"])[0].addErrback(lambda _: None)
    lone.run_disk()
    assert lone.node.trouble
    disk.faults.clear()
    lone.node.look_at_place()
    lone.clock.advance(RETRY_USUAL)
    lone.run_disk()
    assert not lone.node.trouble and lone.node.is_leader
    lone.node.stop()


def test_a_member_without_room_can_be_stopped() -> None:
    files = MemoryFiles()
    disk = FaultyFiles(files)
    lone = LoneNode(disk, peers={"n0": PEERS["n0"]})
    lone.run_disk()
    disk.faults.append(Fault("pwrite", "/s/data/", error=ENOSPC))
    refused: list[Any] = []
    lone.node.propose([bytes(200)])[0].addErrback(refused.append)
    lone.run_disk()
    assert refused and lone.node.trouble
    ended: list[Any] = []
    lone.node.stop().addBoth(ended.append)
    assert ended == [None] and not lone.clock.getDelayedCalls()
    assert open_store(files).end_index == -1


def test_a_member_whose_index_cannot_be_synced_stops() -> None:
    """What the sync has lost is read, and a checkpoint behind it would vouch for it."""
    files = MemoryFiles()
    disk = FaultyFiles(files)
    lone = leader_with_snapshots(disk)
    failed: list[Failure] = []
    lone.node.when_failed.addErrback(failed.append)
    disk.faults.append(Fault("fsync", "/index/", times=1))
    for _ in range(10):
        lone.clock.advance(1)
        lone.run_disk()
    assert failed
    before = files.read("/s/checkpoint") if files.exists("/s/checkpoint") else b""
    lone.node.stop()
    assert (files.read("/s/checkpoint") if before else b"") == before


def test_a_heartbeat_is_answered_while_entries_are_stored() -> None:
    files = MemoryFiles()
    stored(files, OLD[:1])
    lone = LoneNode(files)
    lone.follow_compared()
    pushed = lone.push(PushKind.APPEND, NEW[1:], -1)
    lone.clock.advance(1)
    assert len(lone.waiting) == 1
    answers = lone.hear(m.HeartbeatRequest)
    lone.clock.advance(0.001)
    assert [answer.code for answer in answers] == [Code.SUCCESS] and not pushed
    lone.run_disk()
    assert [answer.code for answer in pushed] == [Code.SUCCESS]


def test_a_heartbeat_of_a_term_that_is_not_stored_waits() -> None:
    files = MemoryFiles()
    stored(files, OLD[:1])
    lone = LoneNode(files)
    lone.follow()
    # A later term was heard of, and is being stored.
    lone.hear(m.VoteRequest, source="n2", term=3, end_index=9, end_term=2)
    lone.clock.pump([0.01] * 3)
    assert lone.node.core.term == 3 and len(lone.waiting) == 1
    answers = lone.hear(m.HeartbeatRequest, source="n2", term=3)
    lone.clock.advance(0.5)
    assert not answers
    lone.run_disk()
    assert [answer.code for answer in answers] == [Code.SUCCESS]


def test_nobody_is_asked_for_a_vote_while_the_disk_is_busy() -> None:
    """Neither is the reactor kept busy by what waits for the disk."""
    files = MemoryFiles()
    stored(files, OLD[:1])
    lone = LoneNode(files)
    lone.follow_compared()
    lone.push(PushKind.APPEND, NEW[1:], -1)
    lone.clock.advance(0.001)
    ticks, tick = list[int](), lone.node.core.tick
    lone.node.core.tick = lambda now: (ticks.append(now), tick(now))  # type: ignore[method-assign]
    for _ in range(60_000):
        lone.clock.advance(0.001)
    assert lone.node.core.role is RaftRole.CANDIDATE and lone.node.core.term == 2
    assert len(ticks) < 5 and not lone.node.core._state.outbox[1:]
    lone.run_disk()
    for _ in range(20):
        lone.clock.advance(0.3)
        lone.run_disk()
    assert lone.node.core.vote_for == "n0"
