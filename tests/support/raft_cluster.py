"""A simulated group: one scheduler, a network and disks that fail, and clients; all from a seed.

Times are microseconds of the simulation; members have clocks of their own that run fast or slow.
"""

import errno
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.reserve import NO_ROOM
from rocketmq_tw.raft.core.codes import RaftRole, Refused
from rocketmq_tw.raft.core.config import RaftConfig
from rocketmq_tw.raft.core.messages import RaftMessage
from rocketmq_tw.raft.core.raft_core import RaftCore, Ready
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.structs import msgspec
from tests.support.raft_history import Operation, check_linearizable
from tests.support.raft_invariants import Invariants, Violation
from tests.support.raft_kv import KeyValue, Put, encode_kv_command

MS = 1000
_NO_ROOM = (
    ("create", errno.ENOSPC),
    ("create", errno.EMFILE),
    ("pwrite", errno.ENOSPC),
    ("pwrite", errno.EDQUOT),
    ("sync_dir", errno.ENFILE),
)


class Faults(msgspec.Struct, kw_only=True):
    """How badly a run goes; chances are of 1, times in milliseconds."""

    loss: float = 0.0
    duplication: float = 0.0
    #: Messages take between 1 ms and this, so later ones overtake earlier ones.
    max_delay_ms: int = 5
    max_disk_ms: int = 2
    crashes: float = 0.0
    partitions: float = 0.0
    transfers: float = 0.0
    clock_skew: float = 0.0
    snapshot_every: int = 0
    #: That a storing finds a full disk or no descriptor, and that a sync fails in one.
    no_room: float = 0.0
    failed_syncs: float = 0.0

    @classmethod
    def from_seed(cls, random: Random) -> "Faults":
        """A mixture of faults; each seed leaves some of them out."""

        def maybe(value: float) -> float:
            return value * random.random() if random.random() < 0.6 else 0.0

        return cls(
            loss=maybe(0.3),
            duplication=maybe(0.3),
            max_delay_ms=random.choice((2, 20, 150)),
            max_disk_ms=random.choice((0, 5, 80)),
            crashes=maybe(1.0),
            partitions=maybe(1.0),
            transfers=maybe(0.3),
            clock_skew=maybe(0.7),
            snapshot_every=random.choice((0, 0, 7)),
        )


def failing_disks(seed: int) -> Faults:
    """The faults of a seed, and disks that are full now and then or lose what is synced."""
    faults = Faults.from_seed(Random(seed))
    return msgspec.structs.replace(faults, no_room=0.03, failed_syncs=0.03)


def slow_disks(seed: int) -> Faults:
    """The faults of a seed, and disks that take up to twice as long as a push may."""
    return msgspec.structs.replace(Faults.from_seed(Random(seed)), max_disk_ms=300)


class SimMember:
    """One member: its core while it is up, its disk always."""

    def __init__(self, member_id: str, cluster: "SimCluster") -> None:
        self.id = member_id
        self.cluster = cluster
        skew = cluster.faults.clock_skew
        self.rate = 1.0 + cluster.random.uniform(-skew, skew)
        self.files = MemoryFiles()
        self.life = 0
        self.up = False
        self.stored_term = 0
        self.busy: Ready | None = None
        #: Whether it found no room for `busy`.
        self.is_aside = False
        self.tick_at = 0

    def start(self) -> None:
        """A new process on what the disk holds."""
        cluster = self.cluster
        self.life += 1
        self.up = True
        self.busy = None
        self.is_aside = False
        self.disk = FaultyFiles(self.files)
        self.store = MemberStore(self.disk, "/s", cluster.data_file_size, cluster.index_file_size)
        self.core = RaftCore(
            msgspec.structs.replace(cluster.config, self_id=self.id),
            self.store,
            self.store.hard_state,
            self.store.commit_index,
            Random(cluster.random.getrandbits(32)),
        )
        self.machine = KeyValue()
        if self.store.snapshot is not None:
            self.machine.load_snapshot(self.store.read_snapshot(0, self.store.snapshot.size))
        self.since_snapshot = 0
        self.pending: dict[int, Operation] = {}
        self.reads: dict[int, Operation] = {}
        self.waiting_reads: list[tuple[int, int]] = []
        self.tick_at = 0
        cluster.invariants.member_restarted(self.id, self.core, self.stored_term)
        self.run(lambda: self.core.tick(self.now()))

    def now(self) -> int:
        """Milliseconds of this member's clock."""
        return int(self.cluster.time * self.rate) // MS

    def crash(self) -> None:
        """Power off, perhaps in the middle of a write; what was not synced may be gone."""
        cluster = self.cluster
        self.up = False
        self.life += 1
        if cluster.checkpoints.random() < 0.5:
            self.write_checkpoint()
        self.disk.faults.clear()
        if self.busy is not None and cluster.random.random() < 0.7:
            self.disk.lose_power_at = self.disk.changes + 1 + cluster.random.randrange(12)
            try:
                self.store.store(self.busy)
            except PowerLoss:
                cluster.note(f"{self.id} lost power in a write")
        seed = cluster.random.getrandbits(32) if cluster.random.random() < 0.8 else None
        self.files = self.files.crash(seed)

    def run(self, action: Callable[[], None]) -> None:
        """Lets the core do something, then does what it wants done; nothing while it found no
        room, as a node."""
        if self.is_aside:
            return
        action()
        self.cluster.invariants.check_step(self.id, self.core)
        self.pump()

    def pump(self) -> None:
        cluster, core = self.cluster, self.core
        while self.up and self.busy is None:
            ready = core.ready()
            cluster.invariants.check_step(self.id, core)
            if ready is None:
                break
            self._send_all(ready.immediate)
            if ready.must_store and cluster.faults.max_disk_ms:
                self.busy = ready
                delay = cluster.random.randrange(cluster.faults.max_disk_ms * MS)
                cluster.at(delay, self, self._stored)
            else:
                self._store(ready)
        if self.up and not self.is_aside:
            self._send_all(core.take_beats())
            self._schedule_tick()

    @property
    def _stored_end(self) -> int:
        """The index of the last entry that its files hold, or that their snapshot covers."""
        snapshot = self.store.snapshot
        return max(self.store.end_index, -1 if snapshot is None else snapshot.index)

    def _send_all(self, messages: Sequence[RaftMessage]) -> None:
        for message in messages:
            self.cluster.invariants.check_sent(message, self._stored_end)
            self.cluster.send(message)

    def _stored(self) -> None:
        ready = self.busy
        assert ready is not None
        self.busy = None
        self._store(ready)
        if self.up and not self.is_aside:
            self.pump()

    def _store(self, ready: Ready) -> None:
        """What a node does: the same again where there was no room, nothing any more where the
        disk fails."""
        if ready.must_store:
            self.cluster.spoil(self.disk)
            try:
                self.store.store(ready)
            except (OSError, StoreError) as error:
                if getattr(error, "errno", None) in NO_ROOM:
                    self._stand_aside(ready)
                else:
                    self._fail()
                return
            if self.is_aside:
                self.is_aside = False
                self.core.stand(True)
        self._finish(ready)

    def _stand_aside(self, ready: Ready) -> None:
        cluster = self.cluster
        if not self.is_aside:
            cluster.note(f"{self.id} finds no room")
            self.is_aside = True
            ready.messages.clear()
            self.core.stand(False)
            self._fail_all()
        self.busy = ready
        cluster.at(cluster.room.randrange(1, 300 * MS), self, self._stored)

    def _fail(self) -> None:
        """The process ends, and is started again; its machine goes on."""
        cluster = self.cluster
        cluster.note(f"{self.id} fails")
        self.up = False
        self.life += 1
        self.write_checkpoint()
        self.files = self.files.kill()
        cluster.at(cluster.room.randrange(400 * MS), None, cluster._start(self))

    def _finish(self, ready: Ready) -> None:
        cluster, core = self.cluster, self.core
        if ready.must_store:
            if ready.hard_state is not None:
                self.stored_term = ready.hard_state.term
            cluster.invariants.check_stored(self.id, core, ready)
        self._send_all(ready.messages)
        if ready.committed:
            cluster.invariants.check_applied(self.id, self._stored_end, ready.committed[-1].index)
        if ready.snapshot is not None:
            self.machine.load_snapshot(ready.snapshot.data)
            self._fail_all()
        for entry in ready.committed:
            self.machine.apply(entry)
            self.since_snapshot += 1
            operation = self.pending.pop(entry.index, None)
            if operation is not None and operation.term == entry.term:
                operation.place, operation.ended = entry.index, cluster.time
        for token in ready.failed_reads:
            self.reads.pop(token, None)
        self.waiting_reads += [(read.index, read.token) for read in ready.reads]
        core.advance()
        cluster.invariants.check_step(self.id, core)
        self._serve_reads()
        if any(role is not RaftRole.LEADER for role in ready.roles):
            self._fail_all()
        self._maybe_snapshot()

    def _fail_all(self) -> None:
        self.pending.clear()

    def _serve_reads(self) -> None:
        applied = self.core.applied_index
        ready = [token for index, token in self.waiting_reads if index <= applied]
        self.waiting_reads = [one for one in self.waiting_reads if one[0] > applied]
        for token in ready:
            operation = self.reads.pop(token, None)
            if operation is not None:
                operation.result = self.machine.values.get(operation.key)
                operation.place, operation.ended = applied, self.cluster.time

    def _maybe_snapshot(self) -> None:
        every = self.cluster.faults.snapshot_every
        core = self.core
        if not every or self.since_snapshot < every:
            return
        place = core.snapshot_place()
        if place is None:
            return
        self.since_snapshot = 0
        data = self.machine.take_snapshot()
        meta = SnapshotMeta(place.index, place.term, place.next_pos, len(data))
        snapshot = Snapshot(meta, data)
        if self._do_without(lambda: self.store.save_snapshot(snapshot)):
            self.store.use_snapshot()
            core.compacted()
            self._do_without(self.store.drop_covered)
            self.write_checkpoint()

    def write_checkpoint(self) -> None:
        """As a node does now and then, and at its end."""
        self._do_without(lambda: self.store.write_checkpoint(self.core.stored_commit_index))

    def _do_without(self, action: Callable[[], None]) -> bool:
        """Whether it worked; where not the member goes on, unless a sync was lost."""
        try:
            action()
        except OSError:
            return False
        except StoreError:
            self._fail()
            return False
        return True

    def _schedule_tick(self) -> None:
        due = int(self.core.next_deadline() * MS / self.rate) + MS
        due = max(due, self.cluster.time + MS)
        if not self.tick_at or due < self.tick_at:
            self.tick_at = due
            self.cluster.at(due - self.cluster.time, self, self._tick)

    def _tick(self) -> None:
        if self.cluster.time < self.tick_at:
            return
        self.tick_at = 0
        self.run(lambda: self.core.tick(self.now()))


class SimCluster:
    """The group, its network and its clients.

    Its time and its network are not those of `tests.support.sim.simulation`: a member is the pure
    `RaftCore`, which is told the time and gives its messages as objects. Without a reactor,
    connections and frames 100,000 seeds can be run; and what a seed stands for (docs/raft.md) hangs
    on the order in which this class draws from its `Random`.
    """

    def __init__(self, seed: int, *, members: int | None = None, faults: Faults | None = None):
        self.seed = seed
        self.random = Random(seed)
        #: When checkpoints are written, which changes nothing else in a run.
        self.checkpoints = Random(seed + 1)
        #: When disks fail, the same way.
        self.room = Random(seed + 2)
        self.faults = Faults.from_seed(self.random) if faults is None else faults
        count = members or self.random.choice((3, 3, 5))
        names = tuple(f"n{number}" for number in range(count))
        self.data_file_size = 1536 if self.faults.snapshot_every else 16 * 1024
        self.index_file_size = 32 * 16
        self.config = RaftConfig(
            self_id=names[0],
            members=names,
            heartbeat_interval_ms=60,
            max_heartbeat_leak=3,
            min_vote_interval_ms=30,
            max_vote_interval_ms=120,
            vote_round_ms=200,
            push_timeout_ms=150,
            push_retry_ms=10,
            commit_interval_ms=20,
            preferred_check_interval_ms=200,
            max_batch_bytes=300,
            max_inflight_pushes=4,
            snapshot_chunk_bytes=64,
            data_file_size=self.data_file_size,
            preferred_leader_ids=names[:1] if self.random.random() < 0.2 else (),
        )
        self.time = 0
        self.steps = 0
        self.trace: list[str] | None = None
        self.invariants = Invariants()
        self.operations: list[Operation] = []
        self._events: list[tuple[int, int, SimMember | None, int, Callable[[], None]]] = []
        self._sequence = 0
        self._islands: dict[str, int] = dict.fromkeys(names, 0)
        self._tokens = 0
        self.last_write: Operation | None = None
        self.members = {name: SimMember(name, self) for name in names}
        for member in self.members.values():
            self.at(self.random.randrange(50 * MS), None, self._start(member))

    def spoil(self, disk: FaultyFiles) -> None:
        """Lets a call on the disk fail, now and then, that is to store something now."""
        room, faults = self.room, self.faults
        if faults.no_room and room.random() < faults.no_room:
            operation, error = room.choice(_NO_ROOM)
            skip, times, kept = room.randrange(6), room.randrange(1, 4), room.randrange(60)
            disk.faults = [Fault(operation, error=error, skip=skip, times=times, kept=kept)]
        elif faults.failed_syncs and room.random() < faults.failed_syncs:
            disk.faults = [Fault("fsync", "/s/", skip=room.randrange(3), times=1)]

    def note(self, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.time} {text}")

    def _start(self, member: SimMember) -> Callable[[], None]:
        def start() -> None:
            if not member.up:
                self.note(f"{member.id} starts")
                member.start()

        return start

    def at(self, delay: int, member: SimMember | None, action: Callable[[], None]) -> None:
        """Runs `action` after `delay`; one of a member's dies with its process."""
        self._sequence += 1
        life = -1 if member is None else member.life
        heappush(self._events, (self.time + delay, self._sequence, member, life, action))

    def send(self, message: RaftMessage) -> None:
        """Puts a message on the network, or not, or twice."""
        random, faults = self.random, self.faults
        if message.target not in self.members:
            return
        copies = 1
        if random.random() < faults.loss:
            copies = 0
        elif random.random() < faults.duplication:
            copies = 2
        for _ in range(copies):
            delay = MS + random.randrange(faults.max_delay_ms * MS)
            self.at(delay, None, lambda: self._deliver(message))

    def _deliver(self, message: RaftMessage) -> None:
        member = self.members[message.target]
        if not member.up or self._islands[message.source] != self._islands[message.target]:
            return
        if self.trace is not None:
            self.note(repr(message))
        member.run(lambda: member.core.step(message, member.now()))

    def step(self) -> bool:
        """Runs the next event; False where there is none."""
        if not self._events:
            return False
        time, _, member, life, action = heappop(self._events)
        self.time = time
        self.steps += 1
        if member is None or (member.up and member.life == life):
            action()
        return True

    def run_until(self, time: int) -> None:
        while self._events and self._events[0][0] <= time:
            self.step()
        self.time = max(self.time, time)

    # Clients and trouble.

    def client_turn(self) -> None:
        """One operation at a member that may or may not lead."""
        random = self.random
        up = [member for member in self.members.values() if member.up]
        leaders = [member for member in up if member.core.role is RaftRole.LEADER]
        if not up:
            return
        member = random.choice(leaders) if leaders and random.random() < 0.9 else random.choice(up)
        key = f"k{random.randrange(3)}"
        self._tokens += 1
        operation = Operation(key, self.time)
        try:
            if random.random() < 0.6:
                operation.written = f"v{self._tokens}"
                self._write(member, operation)
            else:
                member.core.request_read(self._tokens)
                member.reads[self._tokens] = operation
        except Refused:
            return
        self.operations.append(operation)
        member.run(lambda: None)

    def _write(self, member: SimMember, operation: Operation) -> None:
        assert operation.written is not None
        body = encode_kv_command(Put(operation.key, operation.written))
        for entry in member.core.propose([body]):
            operation.term = entry.term
            member.pending[entry.index] = operation

    def trouble_turn(self) -> None:
        """Now and then: a crash, a partition, a transfer."""
        random, faults = self.random, self.faults
        members = list(self.members.values())
        if random.random() < faults.crashes * 0.3:
            member = random.choice(members)
            if member.up:
                self.note(f"{member.id} crashes")
                member.crash()
                self.at(random.randrange(400 * MS), None, self._start(member))
        if random.random() < faults.partitions * 0.1:
            self._islands = {member.id: random.randrange(2) for member in members}
            self.note(f"islands {self._islands}")
        elif random.random() < 0.08:
            self._islands = dict.fromkeys(self._islands, 0)
        for member in members:
            if member.up and self.checkpoints.random() < 0.1:
                member.write_checkpoint()
        if random.random() < faults.transfers:
            member = random.choice(members)
            if member.up and member.core.role is RaftRole.LEADER:
                target = random.choice(members).id
                member.run(lambda: member.core.request_transfer(target, member.now()))

    def heal(self) -> None:
        """No more faults, everybody up."""
        self.faults = msgspec.structs.replace(
            self.faults,
            loss=0.0,
            duplication=0.0,
            max_delay_ms=5,
            crashes=0.0,
            partitions=0.0,
            transfers=0.0,
            no_room=0.0,
            failed_syncs=0.0,
        )
        for member in self.members.values():
            if member.up:
                member.disk.faults.clear()
        self._islands = dict.fromkeys(self._islands, 0)
        for member in self.members.values():
            self._start(member)()
        self._write_last()

    def _write_last(self) -> None:
        """Writes until one is acknowledged: a leader without entries leaves others theirs."""
        if self.last_write_done:
            return
        for member in self.members.values():
            if member.up and member.core.role is RaftRole.LEADER and not member.core.transferring:
                self.last_write = Operation("last", self.time, f"v{self.time}")
                self._write(member, self.last_write)
                self.operations.append(self.last_write)
                member.run(lambda: None)
                break
        self.at(200 * MS, None, self._write_last)

    @property
    def last_write_done(self) -> bool:
        return self.last_write is not None and self.last_write.ended is not None

    @property
    def converged(self) -> bool:
        """One leader, and every member has and has applied all of its log."""
        cores = [member.core for member in self.members.values() if member.up]
        ends = {core.log.end_index for core in cores}
        return (
            len(cores) == len(self.members)
            and sum(core.role is RaftRole.LEADER for core in cores) == 1
            and len(ends) == 1
            and {core.applied_index for core in cores} == ends
            and {core.commit_index for core in cores} == ends
        )

    def check_end(self) -> None:
        """After convergence: all members are equal, and clients were told the truth."""
        cores = [member.core for member in self.members.values()]
        end = cores[0].commit_index
        if self.invariants.last_committed > end:
            raise Violation(f"entry {self.invariants.last_committed} was committed, now {end}")
        for member in self.members.values():
            for index in range(max(0, member.core.log.begin_index), end + 1):
                entry, known = member.store.read(index), self.invariants.committed[index]
                if entry != known:
                    raise Violation(f"{member.id} has stored {entry}, committed was {known}")
        values = [member.machine.values for member in self.members.values()]
        if any(value != values[0] for value in values):
            raise Violation(f"the members hold different values: {values}")
        check_linearizable(self.operations, self.invariants.committed)


class Outcome(msgspec.Struct):
    """What a run came to; two runs of one seed are equal in all of it."""

    seed: int
    steps: int
    time: int
    committed: int
    terms: int
    answered: int
    fingerprint: int


def simulate(
    seed: int,
    *,
    rounds: int = 120,
    faults: Faults | None = None,
    trace: list[str] | None = None,
) -> Outcome:
    """One run: trouble, then healing. Raises `Violation`, which names the seed.

    `trace` gets a line for every message delivered and every fault.
    """
    cluster = SimCluster(seed, faults=faults)
    cluster.trace = trace
    try:
        for _ in range(rounds):
            cluster.run_until(cluster.time + cluster.random.randrange(60 * MS))
            for _ in range(cluster.random.randrange(4)):
                cluster.client_turn()
            cluster.trouble_turn()
        cluster.heal()
        limit = cluster.time + 60_000 * MS
        while not (cluster.converged and cluster.last_write_done):
            if cluster.time > limit or not cluster.step():
                raise Violation("no agreement within a minute of healing")
        cluster.check_end()
    except Exception as error:
        raise Violation(f"seed {seed}, step {cluster.steps}: {error}") from error
    last = cluster.invariants.committed
    answered = sum(operation.ended is not None for operation in cluster.operations)
    print_of = hash(tuple((index, e.term, e.chain_crc) for index, e in sorted(last.items())))
    return Outcome(
        seed,
        cluster.steps,
        cluster.time,
        len(last),
        len(cluster.invariants.leaders),
        answered,
        print_of,
    )
