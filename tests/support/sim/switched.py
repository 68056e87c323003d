"""A group of brokers that change places, with a controller that is always right, by seed.

The links, the master's and the slaves' sides are the real ones, logs are models. A power loss takes
what was not synced. The controller is one object; what it is asked and what it says is late, gets
lost on either way, or comes after its asker gave up or was started again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.replication.auto_switch.client import AutoSwitchHAClient, RecordComparison
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFile, KeptEpochs
from rocketmq_tw.replication.auto_switch.frames import SlaveHandshake
from rocketmq_tw.replication.auto_switch.service import (
    AutoSwitchHAService,
    ControllerCalls,
    EpochBegin,
)
from rocketmq_tw.replication.interfaces import ISwitchedLog
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import SyncStateSet
from tests.support.sim.checks import Broken
from tests.support.sim.replicas import (
    CALM_SECONDS,
    FILE_SIZE,
    HA_PORT,
    ModelLog,
    ReplicaProcess,
    ReplicaWorld,
)

IDS = (1, 2, 3)
HEARTBEAT_MS, HOUSEKEEPING_MS, TIMEOUT_MS, BEHIND_MS, CHECK_MS = 300, 1500, 1000, 1200, 400
#: A record: its size with these bytes, big-endian.
SIZE = 4


@implementer(ISwitchedLog)
class RecordLog(ModelLog):
    """Records that never cross a file. What is confirmed is checked against all that was ever
    confirmed in the group."""

    def __init__(self, watch: World) -> None:
        super().__init__()
        self.watch = watch
        self.confirmed = self.seen = 0

    def put(self, body: bytes) -> int:
        """Appends a record; returns the offset behind it."""
        room = FILE_SIZE - len(self.data) % FILE_SIZE
        size = SIZE + len(body)
        if room < size + SIZE:
            self.data += room.to_bytes(SIZE, "big") + bytes(room - SIZE)
        self.data += size.to_bytes(SIZE, "big") + body
        return len(self.data)

    def records(self, end: int) -> Iterator[tuple[int, int]]:
        """Where each whole record in front of `end` starts, and the offset behind it."""
        position = 0
        while position + SIZE <= min(end, len(self.data)):
            size = int.from_bytes(self.data[position : position + SIZE], "big")
            if position + size > min(end, len(self.data)):
                break
            yield position, position + size
            position += size

    def newest_message(self, end: int) -> tuple[int, int]:
        """Where the last whole record in front of `end` starts that does not only fill a file, and
        the offset behind it; 0 and 0 where there is none."""
        written = ((at, to) for at, to in self.records(end) if any(self.data[at + SIZE : to]))
        return max(written, default=(0, 0))

    def whole_end(self, end: int) -> int:
        """Behind the last whole record in front of `end`."""
        return max((behind for _, behind in self.records(end)), default=0)

    @property
    def confirmed_offset(self) -> int:
        return self.whole_end(self.confirmed)

    def append(self, offset: int, data: bytes) -> Deferred[int]:
        if offset != len(self.data):
            raise self.watch.broken(f"bytes for {offset} on a log up to {len(self.data)}")
        self.data += data
        return self.synced()

    def end_at_whole_record(self) -> Deferred[None]:
        self.cut(self.whole_end(self.written))
        return succeed(None)

    def truncate(self, end: int) -> Deferred[None]:
        if self.whole_end(end) != end:
            raise self.watch.broken(f"{end} is no end of a record")
        self.cut(end)
        return succeed(None)

    def cut(self, end: int) -> None:
        del self.data[end:]
        self.durable = min(self.durable, end)
        if self.whole_end(self.confirmed) < self.seen:
            raise self.watch.broken(f"the log is cut at {end}, {self.seen} was seen by readers")
        self.confirmed = min(self.confirmed, end)

    def confirm(self, offset: int) -> None:
        if offset > self.written:
            raise self.watch.broken(f"{offset} is confirmed on a log up to {self.written}")
        if offset > self.confirmed:
            self.confirmed = offset
            # A reader sees whole records.
            self.seen = self.whole_end(offset)
            self.watch.seen(bytes(self.data[: self.seen]))

    def killed(self, kept: int) -> None:
        super().killed(kept)
        self.confirmed = self.seen = 0


@attrs.define
class Controller:
    """Decides who is master; `alive` tells whom it could elect."""

    alive: Callable[[int], bool]
    end_of: Callable[[int], tuple[int, int]]
    master: int | None = None
    epoch: int = 0
    applied: SyncStateSet = attrs.field(factory=lambda: SyncStateSet(frozenset(), 0))

    def elect(self, *, but: int | None = None) -> None:
        """A member that is alive, the one with the most; `but` is passed over if it can be."""
        able = [each for each in self.applied.members if self.alive(each) and each != but]
        if not self.epoch:
            able = [each for each in IDS if self.alive(each)]
        if not able:
            return
        self.master = max(able, key=self.end_of)
        self.epoch += 1
        self.applied = SyncStateSet(frozenset({self.master}), self.applied.epoch + 1)

    def alter(self, by: int, epoch: int, base: int, members: frozenset[int]) -> SyncStateSet:
        if (by, epoch, base) != (self.master, self.epoch, self.applied.epoch):
            raise RequestError(ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, "not any more")
        if not all(map(self.alive, members)):
            raise RequestError(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, "one is gone")
        self.applied = SyncStateSet(members, base + 1)
        return self.applied


@attrs.define(eq=False)
class Send:
    node: Node
    #: Of the process that was sent to.
    clock: Any
    end: int
    log: bytes
    code: int | None = None


class Node(ReplicaProcess):
    """One broker: its log and epochs, and what its role makes of them."""

    log: RecordLog

    def __init__(self, world: World, own_id: int) -> None:
        super().__init__(world, f"10.0.0.{own_id}", world.make_log(world))
        self.world = world
        self.own_id = own_id
        self.epoch = 0
        #: The controller's epoch when the process began.
        self.former_epoch = 0
        self.service: AutoSwitchHAService | None = None
        self.client: AutoSwitchHAClient | None = None
        self.changing = False

    def start(self) -> None:
        super().start()
        self.former_epoch = self.world.controller.epoch
        self.epoch, self.changing = 0, False
        self.service = self.client = None
        # A recovery ends the log at its last whole record.
        self.log.cut(self.log.whole_end(self.log.written))
        self.epochs = KeptEpochs(EpochFile(self.disk, "/epochFileCheckpoint"), maybeDeferred)
        self.epochs.load(self.log.written)

    def sync(self) -> None:
        super().sync()
        if self.service is not None:
            self.service.log_grew()
            self.world.settle()

    def poll(self) -> None:
        """Hears from the controller what holds now."""
        controller = self.world.controller
        if not self.is_running or self.changing or controller.master is None:
            return
        if controller.master == self.own_id and controller.epoch <= self.former_epoch:
            # A former process may have proposed something in this epoch.
            controller.elect()
        if controller.epoch > self.epoch:
            self.changing = True
            changed = self._change(controller.master, controller.epoch, controller.applied)
            changed.addErrback(self.world.failed)
        elif self.service is not None and controller.master == self.own_id:
            self.service.apply(controller.applied)

    @inlineCallbacks
    def _change(
        self, master: int, epoch: int, applied: SyncStateSet
    ) -> Generator[Deferred[Any], Any, None]:
        clock = self.clock
        assert clock is not None
        service, client, self.service, self.client = self.service, self.client, None, None
        if service is not None:
            self.world.network.stop(self.address)
            yield service.stop()
        if client is not None:
            yield client.stop()
        if self.clock is not clock:
            return
        self.epoch = epoch
        if master == self.own_id:
            yield self.log.end_at_whole_record()
            self.log.sync()
            self.world.elected(self)
            yield self.epochs.begin(epoch, self.log.written, 0)
            self.service = self.world.make_service(
                self.log,
                self.world.settings,
                clock,
                epochs=self.epochs,
                begin=EpochBegin(self.own_id, applied, self.log.confirmed),
                controller=ControllerCalls(
                    propose=lambda members: self.world.ask(self, members),
                    renounce=lambda: self.world.renounce(self),
                    members=lambda: succeed(None),
                ),
            )
            clock.listenTCP(HA_PORT, self.service)
            self.service.log_grew()
        else:
            address = self.world.nodes[master - 1].address
            self.client = self.world.make_client(
                self.log,
                self.world.settings,
                clock,
                epochs=self.epochs,
                handshake=SlaveHandshake(self.own_id),
                compare=lambda point: self._compare(master, point),
            )
            self.client.follow(address, self.world.network.endpoint(address, self.host))
        self.changing = False

    def _compare(self, master: int, point: int) -> Deferred[RecordComparison]:
        if not self.world.compares:
            return succeed(RecordComparison(differs=False))
        theirs = self.world.nodes[master - 1]
        if not theirs.is_running:
            return fail(ConnectionLost())
        start, end = self.log.newest_message(point)
        if not end:
            return succeed(RecordComparison(differs=False))
        if theirs.log.data[start:end] != self.log.data[start:end]:
            return succeed(RecordComparison(differs=True))
        return succeed(RecordComparison(differs=False, same_until=end))


class World(ReplicaWorld):
    """Three brokers, their links and their controller."""

    usual = {"sync": 4, "send": 2, "poll": 2, "answer": 1}
    faults = ("cut", "freeze", "kill", "revive", "revive", "depose")

    def __init__(
        self,
        seed: int,
        *,
        make_log: Callable[[World], RecordLog] = RecordLog,
        make_service: Callable[..., AutoSwitchHAService] = AutoSwitchHAService,
        make_client: Callable[..., AutoSwitchHAClient] = AutoSwitchHAClient,
    ) -> None:
        super().__init__(seed, lambda chance: chance.choice([0.03, 0.06, 0.1]))
        self.make_log, self.make_service, self.make_client = make_log, make_service, make_client
        #: Whether slaves look at a record of the master as well, or at epochs alone.
        self.compares = self.chance.random() < 0.5
        self.settings = HASettings(
            file_size=FILE_SIZE,
            batch_size=self.chance.choice([16, 64, 300]),
            heartbeat_ms=HEARTBEAT_MS,
            housekeeping_ms=HOUSEKEEPING_MS,
            slave_timeout_ms=TIMEOUT_MS,
            all_ack=self.chance.random() < 0.8,
            in_sync_replicas=2,
            not_caught_up_ms=BEHIND_MS,
            check_ms=CHECK_MS,
        )
        #: Questions on their way to the controller, in order.
        self.asked: list[Callable[[], None]] = []
        self.sends: list[Send] = []
        self.acknowledged: list[Send] = []
        self.truth = b""
        self.failures: list[Broken] = []
        self.nodes = [Node(self, own_id) for own_id in IDS]
        self.controller = Controller(
            lambda own_id: self.nodes[own_id - 1].is_running,
            lambda own_id: self._progress(self.nodes[own_id - 1]),
        )
        for node in self.nodes:
            node.start()
        self.controller.elect()

    @property
    def processes(self) -> list[ReplicaProcess]:
        return list(self.nodes)

    @staticmethod
    def _progress(node: Node) -> tuple[int, int]:
        last = node.epochs.table.last
        return (-1 if last is None else last.epoch), node.log.written

    # What may happen

    def calm_step(self) -> None:
        """Everything is synced and answered."""
        self._replace_lost_master()
        for node in self.nodes:
            node.sync()
            node.poll()
        while self.asked:
            self.asked.pop(0)()
        self.run(CALM_SECONDS)

    def run(self, seconds: float) -> None:
        super().run(seconds)
        self.settle()
        if self.failures:
            raise self.failures[0]

    def send(self) -> None:
        """Every broker that takes itself for the master stores a message."""
        for node in self.nodes:
            if node.is_running and node.service is not None and not node.service.refusal():
                end = node.log.put(self.chance.randbytes(self.chance.randrange(8, 90)))
                send = Send(node, node.clock, end, bytes(node.log.data))
                self.sends.append(send)
                node.service.wait(end).addCallback(self._replicated, send)

    def sync(self) -> None:
        for node in self.chance.sample(self.nodes, 2):
            if node.is_running:
                node.sync()

    def poll(self) -> None:
        self.chance.choice(self.nodes).poll()

    def answer(self) -> None:
        if self.asked:
            self.asked.pop(0)()

    def kill(self) -> None:
        super().kill()
        self.sends = [send for send in self.sends if send.clock is send.node.clock]
        master = self.controller.master
        if master is not None and not self.nodes[master - 1].is_running:
            self.controller.elect()

    def revive(self) -> None:
        super().revive()
        self._replace_lost_master()

    def _replace_lost_master(self) -> None:
        master = self.controller.master
        if master is None or not self.nodes[master - 1].is_running:
            self.controller.elect()

    def depose(self) -> None:
        """An administrator wants another master; the present one hears of it late."""
        self.controller.elect(but=self.controller.master)

    def ask(self, node: Node, members: frozenset[int]) -> Deferred[SyncStateSet]:
        """A proposal on its way."""
        answer: Deferred[SyncStateSet] = Deferred()
        assert node.service is not None
        clock, epoch, base = node.clock, node.epoch, node.service.states.applied.epoch
        fate = self.chance.choice(["good"] * 6 + ["request lost", "answer lost", "late"])

        def gives_up() -> None:
            if not answer.called:
                answer.errback(ConnectionLost())

        def decide() -> None:
            outcome: Any = ConnectionLost()
            if fate != "request lost":
                try:
                    outcome = self.controller.alter(node.own_id, epoch, base, members)
                except RequestError as error:
                    outcome = error
            if answer.called or node.clock is not clock:
                return
            if fate == "answer lost" or isinstance(outcome, Exception):
                lost = ConnectionLost()
                answer.errback(lost if fate == "answer lost" else outcome)
            else:
                answer.callback(outcome)

        self.asked.append(decide)
        if fate == "late":
            self.clock.callLater(0, gives_up)
        return answer

    def renounce(self, node: Node) -> Deferred[None]:
        """A master has its epoch ended."""
        if (self.controller.master, self.controller.epoch) == (node.own_id, node.epoch):
            self.controller.elect()
        return succeed(None)

    # What must hold

    def broken(self, why: str) -> Broken:
        """Remembers it as well: links take any error for the other end's."""
        self.failures.append(Broken(why))
        return self.failures[0]

    def failed(self, failure: Failure) -> None:
        """A change of role could not be carried out."""
        self.failures.append(Broken(failure.getErrorMessage()))

    def seen(self, prefix: bytes) -> None:
        """A reader may have seen this much of some log."""
        shared = min(len(prefix), len(self.truth))
        if prefix[:shared] != self.truth[:shared]:
            raise self.broken("readers saw what others will never see")
        self.truth = max(self.truth, prefix, key=len)

    def elected(self, node: Node) -> None:
        """A broker is about to be master with the log that it has."""
        for send in self.acknowledged:
            if not node.log.data.startswith(send.log):
                raise self.broken(
                    f"{node.own_id} is elected without the message in front of {send.end}"
                )

    def _replicated(self, code: int, send: Send) -> None:
        send.code = code
        self.settle()

    def settle(self) -> None:
        """A send is answered once its master and its replicas have it."""
        for send in list(self.sends):
            stored = send.code == ResponseCode.SUCCESS
            # A refused one may be cut off before it is durable.
            if send.code is None or (stored and send.node.log.durable < send.end):
                continue
            self.sends.remove(send)
            self.trace.append((send.end, send.code))
            if stored and self.settings.all_ack:
                self.acknowledged.append(send)

    def is_settled(self) -> bool:
        logs = {bytes(node.log.data) for node in self.nodes}
        whole = all(node.log.confirmed == node.log.written for node in self.nodes)
        return (
            not self.sends
            and len(logs) == 1
            and whole
            and len(self.controller.applied.members) == 3
        )


def run(seed: int, steps: int = 250, **broken: Any) -> World:
    """One schedule; raises where a promise is broken, or where calm does not heal."""
    world = World(seed, **broken)
    for _ in range(steps):
        world.step()
    world.calm_down()
    world.network.heal()
    for _ in range(1000):
        if world.is_settled():
            break
        world.calm_step()
    else:
        raise Broken("the group does not come together again")
    tables = {node.epochs.table.entries for node in world.nodes}
    world.trace.append(("epochs", len(tables)))
    return world
