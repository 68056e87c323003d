"""A group of brokers that change places, with a controller that is always right, by seed.

The links, the master's and the slaves' sides are the real ones; logs and the network are in memory.
A power loss takes what was not synced. The controller is one object; what it is asked and what it
says is late, gets lost on either way, or comes after its asker gave up or was started again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from rocketmq_tw.replication.auto_switch.client import AutoSwitchHAClient
from rocketmq_tw.replication.auto_switch.service import AutoSwitchHAService
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import SyncStateSet
from tests.support.ha_links import Link
from tests.support.switched.controller import IDS, Controller
from tests.support.switched.node import Node, Send
from tests.support.switched.record_log import FILE_SIZE, Broken, RecordLog

HEARTBEAT_MS, HOUSEKEEPING_MS, TIMEOUT_MS, BEHIND_MS, CHECK_MS = 300, 1500, 1000, 1200, 400
CALM_SECONDS = 0.02


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

    def ask(self, node: Node, members: frozenset[int]) -> Deferred[SyncStateSet]:
        """A proposal on its way."""
        answer: Deferred[SyncStateSet] = Deferred()
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
