"""One broker of the group: real sides of the links on a log, files and a clock in memory."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import attrs
from twisted.internet.defer import Deferred, fail, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.error import ConnectionLost, ConnectionRefusedError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from zope.interface import implementer

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.replication.auto_switch.client import AutoSwitchHAClient, RecordComparison
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFile, KeptEpochs
from rocketmq_tw.replication.auto_switch.frames import SlaveHandshake
from rocketmq_tw.replication.auto_switch.service import (
    AutoSwitchHAService,
    ControllerCalls,
    EpochBegin,
)
from rocketmq_tw.wire.group_state import SyncStateSet
from tests.support.ha_links import Link

if TYPE_CHECKING:
    from tests.support.switched.group import World


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
        self, master: int, epoch: int, applied: SyncStateSet
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
                begin=EpochBegin(self.own_id, applied, self.log.confirmed),
                controller=ControllerCalls(
                    propose=lambda members: self.world.ask(self, members),
                    renounce=lambda: self.world.renounce(self),
                ),
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

    def _compare(self, master: int, point: int) -> Deferred[RecordComparison]:
        if not self.world.compares:
            return succeed(RecordComparison(differs=False))
        theirs = self.world.nodes[master - 1]
        if not theirs.alive:
            return fail(ConnectionLost())
        start, end = self.log.newest_message(point)
        if not end:
            return succeed(RecordComparison(differs=False))
        if theirs.log.data[start:end] != self.log.data[start:end]:
            return succeed(RecordComparison(differs=True))
        return succeed(RecordComparison(differs=False, same_until=end))


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
