"""A group of brokers that change places, with a controller that is always right, by seed.

The links, the master's and the slaves' sides are the real ones; logs and the network are in memory.
A power loss takes what was not synced. The controller is one object; what it is asked and what it
says is late, gets lost on either way, or comes after its asker gave up or was started again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from typing import Any

import attrs
from twisted.internet.defer import Deferred, fail, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.error import ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.replication.auto_switch.client import AutoSwitchHAClient
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFile
from rocketmq_tw.replication.auto_switch.frames import SlaveHandshake
from rocketmq_tw.replication.auto_switch.interfaces import Comparison, ISwitchedLog
from rocketmq_tw.replication.auto_switch.kept_epochs import KeptEpochs
from rocketmq_tw.replication.auto_switch.service import AutoSwitchHAService
from rocketmq_tw.replication.auto_switch.sync_states import SyncMembers
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.ha_links import Link

FILE_SIZE = 512
HEARTBEAT_MS, HOUSEKEEPING_MS, TIMEOUT_MS, BEHIND_MS, CHECK_MS = 300, 1500, 1000, 1200, 400
CALM_SECONDS = 0.02
IDS = (1, 2, 3)
#: A record: its size with these bytes, big-endian.
SIZE = 4


class Broken(Exception):
    """A promise that was broken."""


@implementer(ISwitchedLog)
class RecordLog:
    """Records that never cross a file; those in front of `durable` outlive a power loss. What is
    confirmed is checked against all that was ever confirmed in the group."""

    start_offset = 0

    def __init__(self, world: World) -> None:
        self.world = world
        self.data = bytearray()
        self.durable = 0
        self.confirmed = self.seen = 0
        self._syncing: list[Deferred[int]] = []

    @property
    def written(self) -> int:
        return len(self.data)

    @property
    def end_offset(self) -> int:
        return self.durable

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

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, offset - offset % FILE_SIZE + FILE_SIZE, self.durable)
        return bytes(self.data[offset:end])

    def settled(self) -> Deferred[int]:
        if self.durable == self.written:
            return succeed(self.written)
        self._syncing.append(Deferred())
        return self._syncing[-1]

    def append(self, offset: int, data: bytes) -> Deferred[int]:
        if offset != len(self.data):
            raise self.world.broken(f"bytes for {offset} on a log up to {len(self.data)}")
        self.data += data
        self._syncing.append(Deferred())
        return self._syncing[-1]

    def end_at_whole_record(self) -> Deferred[None]:
        self.cut(self.whole_end(self.written))
        return succeed(None)

    def truncate(self, end: int) -> Deferred[None]:
        if self.whole_end(end) != end:
            raise self.world.broken(f"{end} is no end of a record")
        self.cut(end)
        return succeed(None)

    def cut(self, end: int) -> None:
        del self.data[end:]
        self.durable = min(self.durable, end)
        if self.whole_end(self.confirmed) < self.seen:
            raise self.world.broken(f"the log is cut at {end}, {self.seen} was seen by readers")
        self.confirmed = min(self.confirmed, end)

    def confirm(self, offset: int) -> None:
        if offset > self.written:
            raise self.world.broken(f"{offset} is confirmed on a log up to {self.written}")
        if offset > self.confirmed:
            self.confirmed = offset
            # A reader sees whole records.
            self.seen = self.whole_end(offset)
            self.world.seen(bytes(self.data[: self.seen]))

    def sync(self) -> None:
        self.durable = self.written
        waiting, self._syncing = self._syncing, []
        for waiter in waiting:
            waiter.callback(self.durable)

    def killed(self, kept: int) -> None:
        """A power loss leaves `kept` of the bytes that are not safe."""
        self._syncing.clear()
        del self.data[self.durable + kept :]
        self.confirmed = self.seen = 0


@attrs.define
class Controller:
    """Decides who is master; `alive` tells whom it could elect."""

    alive: Callable[[int], bool]
    end_of: Callable[[int], tuple[int, int]]
    master: int | None = None
    epoch: int = 0
    applied: SyncMembers = attrs.field(factory=lambda: SyncMembers(frozenset(), 0))

    def elect(self, *, but: int | None = None) -> None:
        """A member that is alive, the one with the most; `but` is passed over if it can be."""
        able = [each for each in self.applied.members if self.alive(each) and each != but]
        if not self.epoch:
            able = [each for each in IDS if self.alive(each)]
        if not able:
            return
        self.master = max(able, key=self.end_of)
        self.epoch += 1
        self.applied = SyncMembers(frozenset({self.master}), self.applied.epoch + 1)

    def alter(self, by: int, epoch: int, base: int, members: frozenset[int]) -> SyncMembers:
        if (by, epoch, base) != (self.master, self.epoch, self.applied.epoch):
            raise RequestError(ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, "not any more")
        if not all(map(self.alive, members)):
            raise RequestError(ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, "one is gone")
        self.applied = SyncMembers(members, base + 1)
        return self.applied


@attrs.define(eq=False)
class Send:
    node: Node
    end: int
    at: float
    log: bytes
    code: int | None = None


class Node:
    """One broker: its log and epochs, and what its role makes of them."""

    def __init__(self, world: World, own_id: int) -> None:
        self.world = world
        self.own_id = own_id
        self.address = f"10.0.0.{own_id}:10912"
        self.log = world.make_log(world)
        self.files = MemoryFiles()
        self.clock = Clock()
        self.alive = False
        self.life = 0
        self.epoch = 0
        #: The controller's epoch when the process began.
        self.former_epoch = 0
        self.service: AutoSwitchHAService | None = None
        self.client: AutoSwitchHAClient | None = None
        self.changing = False

    def start(self) -> None:
        self.clock = Clock()
        self.former_epoch = self.world.controller.epoch
        self.alive, self.epoch, self.changing = True, 0, False
        self.service = self.client = None
        self.log.sync()
        # A recovery ends the log at its last whole record.
        self.log.cut(self.log.whole_end(self.log.written))
        self.epochs = KeptEpochs(EpochFile(self.files, "/epochFileCheckpoint"), maybeDeferred)
        self.epochs.load(self.log.written)

    def kill(self, *, power: bool) -> None:
        self.alive = False
        self.life += 1
        lost = self.log.written - self.log.durable
        if power:
            self.log.killed(self.world.random.randrange(lost + 1))
            self.files = self.files.crash()
        else:
            self.log.killed(lost)
        for link in self.world.links:
            for near, far in ((link.near, link.far), (link.far, link.near)):
                if near.node is self:
                    near.lost = True
                    if not link.frozen:
                        self.world.soon.append(far.lose)

    def sync(self) -> None:
        self.log.sync()
        if self.service is not None:
            self.service.log_grew()
            self.world.settle()

    def poll(self) -> None:
        """Hears from the controller what holds now."""
        controller = self.world.controller
        if not self.alive or self.changing or controller.master is None:
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
        self, master: int, epoch: int, applied: SyncMembers
    ) -> Generator[Deferred[Any], Any, None]:
        life = self.life
        service, client, self.service, self.client = self.service, self.client, None, None
        if service is not None:
            yield service.stop()
        if client is not None:
            yield client.stop()
        if not self.alive or self.life != life:
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
                self.clock,
                epochs=self.epochs,
                own_id=self.own_id,
                applied=applied,
                confirmed=self.log.confirmed,
                propose=lambda members: self.world.ask(self, members),
                renounce=lambda: self.world.renounce(self),
            )
            self.service.doStart()
            self.service.log_grew()
        else:
            address = self.world.nodes[master - 1]
            self.client = self.world.make_client(
                self.log,
                self.world.settings,
                self.clock,
                epochs=self.epochs,
                handshake=SlaveHandshake(self.own_id),
                compare=lambda point: self._compare(master, point),
            )
            self.client.follow(address.address, Way(self, address))
        self.changing = False

    def _compare(self, master: int, point: int) -> Deferred[Comparison]:
        if not self.world.compares:
            return succeed(Comparison(differs=False))
        theirs = self.world.nodes[master - 1]
        if not theirs.alive:
            return fail(ConnectionLost())
        start, end = self.log.newest_message(point)
        if not end:
            return succeed(Comparison(differs=False))
        if theirs.log.data[start:end] != self.log.data[start:end]:
            return succeed(Comparison(differs=True))
        return succeed(Comparison(differs=False, same_until=end))


@implementer(IStreamClientEndpoint)
@attrs.define
class Way:
    """How a slave reaches a master's HA port."""

    slave: Node
    master: Node

    def connect(self, factory: Any) -> Deferred[Any]:
        world = self.slave.world
        if not self.master.alive or self.master.service is None:
            return fail(ConnectionRefusedError())
        link = Link(world, self.slave, self.master.address)
        link.near.node, link.far.node = self.slave, self.master
        world.links.append(link)
        link.far.protocol = self.master.service.buildProtocol(link.far.getPeer())
        link.near.protocol = factory.buildProtocol(link.near.getPeer())
        link.far.protocol.makeConnection(link.far)
        link.near.protocol.makeConnection(link.near)
        return succeed(link.near.protocol)


class World:
    """Three brokers, their links and their controller."""

    def __init__(
        self,
        seed: int,
        *,
        make_log: Callable[[World], RecordLog] = RecordLog,
        make_service: Callable[..., AutoSwitchHAService] = AutoSwitchHAService,
        make_client: Callable[..., AutoSwitchHAClient] = AutoSwitchHAClient,
    ) -> None:
        self.random = dice = random.Random(seed)
        self.make_log, self.make_service, self.make_client = make_log, make_service, make_client
        self.now = 0.0
        #: How many of the steps are faults.
        self.faults = dice.choice([0.03, 0.06, 0.1])
        #: Whether slaves look at a record of the master as well, or at epochs alone.
        self.compares = dice.random() < 0.5
        self.settings = HASettings(
            file_size=FILE_SIZE,
            batch_size=dice.choice([16, 64, 300]),
            heartbeat_ms=HEARTBEAT_MS,
            housekeeping_ms=HOUSEKEEPING_MS,
            slave_timeout_ms=TIMEOUT_MS,
            all_ack=dice.random() < 0.8,
            in_sync_replicas=2,
            not_caught_up_ms=BEHIND_MS,
            check_ms=CHECK_MS,
        )
        self.links: list[Link] = []
        self.soon: list[Callable[[], None]] = []
        #: Questions on their way to the controller, in order.
        self.asked: list[tuple[Node, Callable[[], None]]] = []
        self.sends: list[Send] = []
        self.acknowledged: list[Send] = []
        self.truth = b""
        self.failures: list[Broken] = []
        self.trace: list[tuple[object, ...]] = []
        self.nodes = [Node(self, own_id) for own_id in IDS]
        self.controller = Controller(
            lambda own_id: self.nodes[own_id - 1].alive,
            lambda own_id: self._progress(self.nodes[own_id - 1]),
        )
        for node in self.nodes:
            node.start()
        self.controller.elect()

    @staticmethod
    def _progress(node: Node) -> tuple[int, int]:
        last = node.epochs.table.last
        return (-1 if last is None else last.epoch), node.log.written

    # What may happen

    def step(self) -> None:
        actions = [self.sync] * 4 + [self.deliver] * 6 + [self.send] * 2 + [self.poll] * 2
        actions += [self.answer]
        if self.random.random() < self.faults:
            actions = [self.cut, self.freeze, self.kill, self.revive, self.revive, self.depose]
        action = self.random.choice(actions)
        action()
        self.trace.append((round(self.now, 3), action.__name__, self.digest()))
        self.advance(self.random.choice([0.0, 0.001, 0.02, 0.1]))

    def calm_step(self) -> None:
        """Everything arrives, is synced and answered."""
        for link in self.links:
            for end in (link.near, link.far):
                if not link.frozen:
                    end.deliver(len(end.unsent))
        if self.controller.master is None or not self.nodes[self.controller.master - 1].alive:
            self.controller.elect()
        for node in self.nodes:
            node.sync()
            node.poll()
        while self.asked:
            self.asked.pop(0)[1]()
        self.advance(CALM_SECONDS)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for node in self.nodes:
            if node.alive:
                node.clock.advance(seconds)
        while self.soon:
            self.soon.pop(0)()
        self.links = [link for link in self.links if not link.gone]
        self.settle()
        if self.failures:
            raise self.failures[0]

    def send(self) -> None:
        """Every broker that takes itself for the master stores a message."""
        for node in self.nodes:
            if node.alive and node.service is not None and not node.service.refusal():
                end = node.log.put(self.random.randbytes(self.random.randrange(8, 90)))
                send = Send(node, end, self.now, bytes(node.log.data))
                self.sends.append(send)
                node.service.wait(end).addCallback(self._replicated, send)

    def sync(self) -> None:
        for node in self.random.sample(self.nodes, 2):
            if node.alive:
                node.sync()

    def deliver(self) -> None:
        for link in self.links:
            for end in (link.near, link.far):
                if not link.frozen and self.random.random() < 0.7:
                    size = len(end.unsent)
                    end.deliver(self.random.choice([size, self.random.randrange(size + 1)]))

    def poll(self) -> None:
        self.random.choice(self.nodes).poll()

    def answer(self) -> None:
        if self.asked:
            self.asked.pop(0)[1]()

    def cut(self) -> None:
        if self.links:
            self.random.choice(self.links).near.lose()

    def freeze(self) -> None:
        if self.links:
            self.random.choice(self.links).frozen = True

    def kill(self) -> None:
        node = self.random.choice(self.nodes)
        if node.alive:
            node.kill(power=self.random.random() < 0.5)
            self.sends = [send for send in self.sends if send.node is not node]
            if self.controller.master == node.own_id:
                self.controller.elect()

    def revive(self) -> None:
        for node in self.nodes:
            if not node.alive:
                node.start()
        if self.controller.master is None or not self.nodes[self.controller.master - 1].alive:
            self.controller.elect()

    def depose(self) -> None:
        """An administrator wants another master; the present one hears of it late."""
        self.controller.elect(but=self.controller.master)

    def ask(self, node: Node, members: frozenset[int]) -> Deferred[SyncMembers]:
        """A proposal on its way."""
        answer: Deferred[SyncMembers] = Deferred()
        assert node.service is not None
        life, epoch, base = node.life, node.epoch, node.service.states.applied.epoch
        fate = self.random.choice(["good"] * 6 + ["request lost", "answer lost", "late"])

        def decide() -> None:
            outcome: Any = ConnectionLost()
            if fate != "request lost":
                try:
                    outcome = self.controller.alter(node.own_id, epoch, base, members)
                except RequestError as error:
                    outcome = error
            if answer.called or node.life != life:
                return
            if fate == "answer lost" or isinstance(outcome, Exception):
                lost = ConnectionLost()
                answer.errback(lost if fate == "answer lost" else outcome)
            else:
                answer.callback(outcome)

        self.asked.append((node, decide))
        if fate == "late":
            self.soon.append(lambda: None if answer.called else answer.errback(ConnectionLost()))
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
            if send.code is None or send.node.log.durable < send.end:
                continue
            self.sends.remove(send)
            self.trace.append((send.end, send.code))
            if send.code == ResponseCode.SUCCESS and self.settings.all_ack:
                self.acknowledged.append(send)

    def digest(self) -> tuple[int, ...]:
        return tuple(hash(bytes(node.log.data)) for node in self.nodes)

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
    world.revive()
    for link in world.links:
        link.frozen = False
    for _ in range(1000):
        if world.is_settled():
            break
        world.calm_step()
    else:
        raise Broken("the group does not come together again")
    tables = {node.epochs.table.entries for node in world.nodes}
    world.trace.append(("epochs", len(tables)))
    return world
