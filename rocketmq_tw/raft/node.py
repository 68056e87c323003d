"""A member of a group as a process has it: the core, its files, a clock and the network."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.raft.checkpoints import Checkpoints
from rocketmq_tw.raft.compaction import Compaction
from rocketmq_tw.raft.core import messages as m
from rocketmq_tw.raft.core.codes import Code, RaftRole, Refused
from rocketmq_tw.raft.core.config import NodeConfig
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.core.log import LogBase
from rocketmq_tw.raft.core.raft_core import LogUse, RaftCore, Ready
from rocketmq_tw.raft.core.replication import OpeningBody, empty_body
from rocketmq_tw.raft.disk_work import DiskWork, RunBlocking
from rocketmq_tw.raft.leaderless import Leaderless
from rocketmq_tw.raft.peer_calls import PeerCalls
from rocketmq_tw.raft.pending import Applied, PendingProposals, PendingReads
from rocketmq_tw.raft.state_machine import IStateMachine, SnapshotCheck, load_stored_snapshot
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.raft.unstored import Unstored
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.place import PlaceFound

#: How long a leader's disk may be at one piece of work, as a multiple of the silence after which
#: followers elect another one: behind that it may hang, and they are let go.
DISK_PATIENCE = 2.0
#: Seconds between two looks whether a member's files are in their place.
PLACE_LOOK_SECONDS = 1.0


class Replicated(NamedTuple):
    """What a group's log is for: a state machine (`IStateMachine`), or a store that reads the log
    itself and listens to what is committed. `opening` and `first_pos` are as in `LogUse`.
    `keeps_store`: the member's store belongs to another part of the process, which remembers what
    was committed and closes the store."""

    machine: Any = None
    opening: OpeningBody = empty_body
    first_pos: int = 0
    keeps_store: bool = False


NOTHING = Replicated()


class RaftNode:
    """Runs a member's core: feeds it and carries out its `Ready`. Everything runs on the reactor's
    thread except the storing of a `Ready`: while that lasts no other one is taken, so all that
    comes meanwhile is stored together. Heartbeats and their answers go on, since a slow disk is
    no reason for an election; a leader's until its disk seems to hang.

    Where the disk is full, or no descriptor is left, the member keeps its `Ready` and is, for the
    others, as one that cannot be reached: it leads no more, and answers nothing that it has not
    stored. It goes on once it could store that `Ready`."""

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        config: NodeConfig,
        store: MemberStore,
        client: IRemotingClient,
        run_blocking: RunBlocking,
        replicated: Replicated = NOTHING,
        random: Random | None = None,
    ) -> None:
        self._clock = clock
        self.config = config
        self._store = store
        self._calls = PeerCalls(
            client, config.group, config.peers, config.request_timeout_ms / 1000
        )
        machine: IStateMachine | None = replicated.machine
        self._machine = machine
        self.core = RaftCore(
            config.raft,
            store,
            store.hard_state,
            store.commit_index,
            random or Random(),
            LogUse(
                opening=replicated.opening,
                first_pos=replicated.first_pos,
                applies_anew=not replicated.keeps_store,
                accepts=None if machine is None else SnapshotCheck(machine),
            ),
        )
        self._keeps_store = replicated.keeps_store
        self._pending = PendingProposals(clock, config.max_wait_ack_time_ms / 1000)
        self._answers: dict[int, Deferred[m.RaftMessage]] = {}
        self._reads = PendingReads()
        self._tokens = 0
        self._running = False
        self._run_blocking = run_blocking
        self._disk = DiskWork(clock, run_blocking, self._disk_free, self._failed)
        #: Whether a look at the files' place is under way.
        self._is_looking = False
        #: Whether this member may lead its group, but for what it cannot store.
        self._stands = True
        self._in_pump = False
        self._wake_alarm = Alarm(clock, self._pump)
        self._tick_alarm = Alarm(clock, self._tick)
        self._leaderless = Leaderless(clock, config, self.core)
        group_member = f"{config.group}/{config.raft.self_id}"
        #: What found no room: until it is stored this member takes no part in its group.
        self._unstored = Unstored(clock, group_member, self._store_again)
        self._checkpoints = Checkpoints(
            clock,
            group_member,
            self.core,
            store,
            self._disk,
            self._unstored,
            config.checkpoint_interval_ms / 1000,
        )
        self._compaction = Compaction(
            group_member, self.core, store, self._disk, machine, config.snapshot_every
        )
        # Plain lists, not `Listeners`, which log a failure and go on: one that fails has not taken
        # in what is committed, so it must stop this member.
        #: Called with (role, term) after each change.
        self.role_listeners: list[Callable[[RaftRole, int], None]] = []
        #: Called with entries that are committed and stored here, in their order, each once.
        self.commit_listeners: list[Callable[[Sequence[Entry]], None]] = []
        #: Called with the place before the first entry once the log has begun anew behind it.
        self.restart_listeners: list[Callable[[LogBase], None]] = []
        #: Fires with the failure that made this node stop by itself: its disk's, or its state
        #: machine's.
        self.when_failed: Deferred[None] = Deferred()
        if machine is not None:
            load_stored_snapshot(machine, store)

    # Life

    def start(self) -> None:
        """Begins to take part."""
        self._running = True
        self._leaderless.look()
        self._tick()

    def stop(self) -> "Deferred[None]":
        """Ends the node; fires when the files are closed."""
        self._end(lambda: Refused(Code.NOT_LEADER, "this member is stopping"))
        done: Deferred[None] = Deferred()
        self._disk.when_idle(lambda: self._close(done))
        return done

    def _close(self, done: "Deferred[None]") -> None:
        try:
            try:
                self._checkpoints.write_last()
            finally:
                if not self._keeps_store:
                    self._store.close()
        except (OSError, StoreError):
            self.log.failure(
                "{group}/{member}: the last checkpoint is not written; the next start looks further"
                " back",
                group=self.config.group,
                member=self.config.raft.self_id,
            )
        done.callback(None)

    def _end(self, reason: Callable[[], Refused]) -> None:
        """Takes no part any more; calls that wait for an answer fail with `reason`."""
        self._running = False
        self._unstored.stop()
        self._checkpoints.stop()
        self._leaderless.stop()
        self._wake_alarm.cancel()
        self._tick_alarm.cancel()
        self._fail_all(reason)

    def _fail_all(self, reason: Callable[[], Refused]) -> None:
        self._pending.fail_all(reason)
        self._reads.fail_all(reason)
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            answer.errback(reason())

    # What others ask of it

    @property
    def is_leader(self) -> bool:
        return self.core.role is RaftRole.LEADER

    @property
    def leader_id(self) -> str | None:
        return self.core.leader_id

    @property
    def trouble(self) -> str:
        """Why this member stores nothing for now; empty where it does."""
        return self._unstored.why

    def propose(self, bodies: Iterable[bytes]) -> "list[Deferred[Applied]]":
        """Appends entries; each Deferred fires once its entry is applied. Raises `Refused` where
        this member does not lead. A Deferred that fails with `Refused` leaves open whether the
        entry stays."""
        self._check_running()
        entries = self.core.propose(list(bodies))
        self._wake()
        return [self._pending.add(entry) for entry in entries]

    def append(self, bodies: Sequence[bytes], end_pos: int, term: int) -> None:
        """Appends entries of `term` to a log that ends at `end_pos`, without waiting:
        `commit_listeners` are called once they are committed. Raises `Refused` as `propose`
        does."""
        self._check_running()
        if self.core.term != term:
            raise Refused(Code.TERM_CHANGED, f"the term is {self.core.term} now")
        if self.core.log.end_pos != end_pos:
            raise Refused(Code.TERM_CHANGED, f"the log ends at {self.core.log.end_pos} now")
        self.core.propose(bodies)
        self._wake()

    def stand(self, stands: bool) -> None:
        """Lets this member lead its group, or no longer: then it votes only."""
        self._stands = stands
        self.core.stand(stands and not self._unstored.is_kept)
        self._wake()

    def drop_files_before(self, position: int) -> None:
        """Removes, soon, the data files that end at or before `position`: the log begins behind
        them. All that they hold must be committed and applied."""
        self._compaction.ask(position)
        self._wake()

    def look_at_place(self) -> None:
        """Ends this member where its files are not where they were opened any more, as the next
        thing that it stores would. To be called now and then. A disk that hangs holds up the look
        only: it is beside what is stored."""
        if self._is_looking or not self._running:
            return
        place, look, found = self._store.place, self._store.place.prepare(), list[PlaceFound]()

        def over(_: object) -> None:
            # What else is wrong with the disk is told by what is stored.
            self._is_looking = False
            if self._running and found:
                place.take(found[0])
                if place.gone:
                    self._failed(Failure(StoreError(place.gone)))

        self._is_looking = True
        self._run_blocking(lambda: found.append(look())).addBoth(over)

    def read(self) -> "Deferred[None]":
        """Fires when the state machine may be read: it then holds all that any member had
        acknowledged when `read` was called. Raises `Refused` where this member does not lead."""
        self._check_running()
        self._tokens += 1
        self.core.request_read(self._tokens)
        self._wake()
        return self._reads.add(self._tokens)

    def answer(self, message_for: Callable[[int], m.RaftMessage]) -> "Deferred[m.RaftMessage]":
        """Gives an incoming request to the core; fires with the core's answer. `message_for` gets
        the number that the request must carry. Raises `Refused` for what no member can have
        sent, and for all while this member has no room."""
        self._check_running()
        if self._unstored.is_kept:
            raise Refused(Code.DISK_FULL, f"this member waits for room: {self.trouble}")
        self._tokens += 1
        message = message_for(self._tokens)
        self.core.check(message)
        deferred: Deferred[m.RaftMessage] = Deferred()
        try:
            self.core.step(message, self._now_ms())
        except Exception as error:
            self._failed(Failure())
            raise Refused(Code.DISK_ERROR, str(error)) from error
        self._answers[message.rpc] = deferred
        self._took(message)
        return deferred

    def transfer(self, transferee: str) -> "Deferred[Code]":
        """Hands the leadership over; fires with the outcome."""
        answered: Deferred[Any] = self.answer(
            lambda token: m.TransferRequest(
                source="",
                target=self.core.config.self_id,
                term=self.core.term,
                rpc=token,
                transfer_id=self.core.config.self_id,
                transferee_id=transferee,
            )
        )
        return answered.addCallback(lambda answer: answer.code)

    def committed_entry(self, index: int) -> Entry:
        """Returns a committed entry. Raises `Refused` with stock's codes."""
        log = self.core.log
        if index < 0 or index > self.core.commit_index:
            raise Refused(Code.INDEX_OUT_OF_RANGE, f"{index} is not committed")
        if index < log.begin_index:
            raise Refused(Code.INDEX_LESS_THAN_LOCAL_BEGIN, f"the log begins at {log.begin_index}")
        return log.read(index)

    def _check_running(self) -> None:
        if not self._running:
            raise Refused(Code.NOT_LEADER, "this member does not run")

    # The loop

    def _now_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _wake(self) -> None:
        """Looks at the core at the end of this turn of the reactor, once for all it brought."""
        if not self._disk.is_busy and self._running:
            self._wake_alarm.set_if_unset(0)

    def _tick(self) -> None:
        if not self._disk.is_busy:
            self.core.tick(self._now_ms())
            self._pump()
        elif self.core.next_beat() is not None:
            self.core.tick(self._now_ms())
            self._beat()

    def _took(self, message: m.RaftMessage) -> None:
        """The core has taken a message in."""
        if self._disk.is_busy and isinstance(message, (m.HeartbeatRequest, m.HeartbeatResponse)):
            self._beat()
        else:
            self._wake()

    def _beat(self) -> None:
        """While the disk is busy: sends the heartbeats that promise nothing of what it stores."""
        if self._unstored.is_kept:
            return
        raft = self.config.raft
        silence_ms = raft.heartbeat_interval_ms * raft.max_heartbeat_leak
        beats = self.core.take_beats()
        if self._disk.busy_seconds > DISK_PATIENCE * silence_ms / 1000:
            beats = [one for one in beats if not isinstance(one, m.HeartbeatRequest)]
        self._send_all(beats)
        self._schedule_tick()

    def _pump(self) -> None:
        if self._in_pump:
            return
        self._in_pump = True
        try:
            self._drain()
        except Exception:
            self._failed(Failure())
        finally:
            self._in_pump = False
        if not self._unstored.is_kept:
            self._schedule_tick()

    def _drain(self) -> None:
        while self._running and not self._disk.is_busy:
            if self._compaction.is_asked and not self._unstored.cuts_log:
                # It may make the room that this member waits for.
                self._compaction.drop_asked(self._unstored.try_again)
                continue
            if self._unstored.is_kept:
                break
            ready = self.core.ready()
            if ready is None:
                self._compaction.snapshot_if_due()
                break
            for said in ready.notices:
                self.log.warn("{group}: {said}", group=self.config.group, said=said)
            self._send_all(ready.immediate)
            if not ready.must_store:
                self._finish(ready)
                if self._has_long_work:
                    self._wake()
                    break
                continue
            self._store_ready(ready)

    @property
    def _has_long_work(self) -> bool:
        """Whether the core has pieces of a long log to apply or to push: others are let in between
        them."""
        core = self.core
        if core.has_more_to_push:
            return True
        return self._machine is not None and core.applied_index < min(
            core.commit_index, core.log.stable_index
        )

    def _store_ready(self, ready: Ready) -> None:
        self._disk.run(
            partial(self._store.store, ready),
            partial(self._stored, ready),
            partial(self._not_stored, ready),
        )

    def _not_stored(self, ready: Ready, failure: Failure) -> None:
        if self._unstored.keep(ready, failure):
            led = self.is_leader
            self.core.stand(False)
            self._fail_all(lambda: Refused(Code.DISK_FULL, f"no room: {self.trouble}"))
            if led:
                # The core tells it with its next `Ready`, and there is none as long as this lasts.
                self._role_changed(self.core.role)

    def _store_again(self, ready: Ready) -> None:
        if self._running and not self._disk.is_busy:
            self._store_ready(ready)

    def _stored(self, ready: Ready) -> None:
        if self._unstored.stored():
            self.core.stand(self._stands)
        if ready.writes.reset is not None:
            for listener in self.restart_listeners:
                listener(ready.writes.reset)
        self._finish(ready)
        self._checkpoints.stored()

    def _disk_free(self, done: Callable[[], None]) -> None:
        if self._running:
            done()
            self._pump()

    def _failed(self, failure: Failure) -> None:
        """Stops a member that cannot store, or whose state machine fails: it must not answer any
        more."""
        if not self._running:
            return
        self.log.failure(
            "{group}/{member}: cannot go on and stops",
            failure,
            group=self.config.group,
            member=self.config.raft.self_id,
        )
        self._end(lambda: Refused(Code.DISK_ERROR, "this member has failed"))
        self.when_failed.errback(failure)

    def _finish(self, ready: Ready) -> None:
        self._send_all(ready.messages)
        if ready.snapshot is not None and self._machine is not None:
            self._machine.load_snapshot(ready.snapshot.data)
            self._compaction.loaded_snapshot()
        for entry in ready.committed:
            result = None if self._machine is None else self._machine.apply(entry)
            self._pending.applied(entry, result)
        if ready.committed:
            for listener in self.commit_listeners:
                listener(ready.committed)
        self._compaction.applied(len(ready.committed))
        self.core.advance()
        self._reads.failed(ready.failed_reads)
        self._reads.confirmed(ready.reads, self.core.applied_index)
        for role in ready.roles:
            self._role_changed(role)

    def _role_changed(self, role: RaftRole) -> None:
        core = self.core
        self._leaderless.look()
        # Each election has candidates, and is over at once as a rule.
        say = self.log.debug if role is RaftRole.CANDIDATE else self.log.info
        say(
            "{group}/{member}: {role} in term {term}, leader {leader}",
            group=self.config.group,
            member=core.config.self_id,
            role=role.value,
            term=core.term,
            leader=core.leader_id,
        )
        if role is not RaftRole.LEADER:
            self._pending.fail_all()
        for listener in self.role_listeners:
            listener(role, core.term)

    def _schedule_tick(self) -> None:
        core = self.core
        due = core.next_beat() if self._disk.is_busy else core.next_deadline()
        if not self._running or due is None:
            return
        delay = max(0.001, due / 1000 - self._clock.seconds())
        # Ticks that come too early are harmless, so only a nearer deadline moves one.
        self._tick_alarm.set_no_later(delay)

    # Messages out and in

    def _send_all(self, messages: Iterable[m.RaftMessage]) -> None:
        for message in messages:
            answer = self._answers.pop(message.rpc, None) if m.is_response(message) else None
            if answer is not None:
                answer.callback(message)
            elif not m.is_response(message):
                self._request(message)

    def _request(self, message: m.RaftMessage) -> None:
        self._calls.call(message).addCallback(self._step_response)

    def _step_response(self, response: m.RaftMessage) -> None:
        if not self._running or self._unstored.is_kept:
            return
        try:
            self.core.step(response, self._now_ms())
        except Exception:
            self._failed(Failure())
        else:
            self._took(response)
