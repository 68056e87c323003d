"""One seed's schedule: what happens to a group, step by step, with its promises looked at after
every call that the clock makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.client.controller import ControllerClient
from tests.support.network import Trouble
from tests.support.sim.brokers import CLUSTER, NAME, BrokerProcess
from tests.support.sim.checks import Broken, ControllerChecks, Decided, GroupChecks
from tests.support.sim.controllers import PEERS, ControllerProcess
from tests.support.sim.disks import (
    START_ERRORS,
    Struck,
    fault_of_a_start,
    mend,
    needs_restart,
    some_fault,
    spoil_for_good,
    struck_kinds,
)
from tests.support.sim.simulation import Process, Simulation, reproducible

STEPS = 14
#: Seconds within which a group that nothing happens to any more must be well.
CALM = 180.0
#: Seconds within which a group goes on whose master lost its disk.
GOES_ON = 90.0
#: How often a disk refuses something while a server starts.
SPOILT_STARTS = 0.5
#: Calls of the clock within one step: more are an endless loop.
MAX_CALLS = 200_000


class World(Simulation):
    """Three controllers, two or three brokers, producers and readers."""

    def __init__(self, seed: int, *, disks_fail: bool = False) -> None:
        self.disks_fail = disks_fail
        chance = Random(seed)
        weather = Trouble(
            chance,
            slowest=chance.choice([0.01, 0.1, 1.0]),
            latest=chance.choice([0.01, 2.0, 10.0]),
        )
        #: How often what is killed comes back before anybody can have noticed.
        self.haste = chance.choice([0.1, 0.8])
        self.flush = chance.choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
        self.trace: list[str] = []
        super().__init__(
            chance=chance, weather=weather, slowest_disk=chance.choice([0.01, 0.3, 2.0])
        )
        keys: dict[str, Any] = {
            "scan_not_active_broker_interval": 1000,
            "scan_inactive_master_interval": 1000,
            "notify_broker_role_changed": chance.random() < 0.7,
            "is_process_read_event": chance.random() < 0.2,
        }
        self._controller_checks = ControllerChecks()
        self.controllers = [
            ControllerProcess(self, member, keys, self._applied) for member in PEERS
        ]
        settings = {
            "enable_controller_mode": True,
            "controller_addr": ";".join(PEERS.values()),
            "controller_heart_beat_timeout_mills": chance.choice([1500, 3000]),
            "sync_broker_metadata_period": chance.choice([500, 5000]),
            "check_sync_state_set_period": chance.choice([500, 5000]),
        }
        store = {
            "all_ack_in_sync_state_set": True,
            "min_in_sync_replicas": 1,
            "flush_disk_type": self.flush,
            "mapped_file_size_commit_log": chance.choice([2048, 1 << 16]),
            "message_index_enable": False,
            "ha_max_time_slave_not_catchup": chance.choice([1000, 5000]),
        }
        self.brokers = [
            BrokerProcess(self, f"10.0.0.{number}", settings=settings, keys=store)
            for number in range(1, chance.choice([3, 4, 4]))
        ]
        self.checks = GroupChecks(self.brokers, self._controller_checks)
        self._sent = 0
        self._failed: Exception | None = None
        self._admin = ControllerClient(
            self.clock, self.network.client("10.9.0.1"), list(PEERS.values())
        )

    @property
    def latest(self) -> Decided:
        """What the controllers have decided last."""
        return self._controller_checks.latest

    @property
    def struck(self) -> Counter[Struck]:
        """What disks refused: error, operation and kind of file -> how often."""
        return struck_kinds((*self.controllers, *self.brokers))

    # What may happen

    def live(self, steps: int = STEPS) -> None:
        """Begins, goes through `steps` of trouble, and comes together again."""
        for controller in self.controllers:
            controller.start()
        for broker in self.brokers:
            self.start_broker(broker)
            self.run(self.chance.choice([0.01, 1.0]))
        if self.chance.random() < 0.8:
            self.come_together()
        trouble = [
            (self.send, 10),
            (self.lose_broker, 4),
            (self.revive, 5),
            (self.pause, 3),
            (self.go_on, 4),
            (self.lose_controller, 2),
            (self.cut, 3),
            (self.heal, 3),
            (self.reset, 2),
            (self.disturb_a_proposal, 2),
            (self.designate, 1),
        ]
        if self.disks_fail:
            trouble += [
                (self.spoil_a_disk, 8),
                (self.mend_disks, 2),
                (self.lose_the_masters_disk, 1),
            ]
        actions, weights = zip(*trouble, strict=True)
        for _ in range(steps):
            (action,) = self.chance.choices(actions, weights)
            self._note(action.__name__)
            action()
            self.run(self.chance.choice([0.002, 0.02, 0.1, 0.5, 2.0, 8.0]))
        self.recover()

    def calm_down(self) -> None:
        """All is repaired, and time goes on until nothing is missing."""
        self.network.heal()
        for process in (*self.controllers, *self.brokers):
            if process.is_paused:
                process.go_on()
        for controller in self.controllers:
            if not controller.is_running:
                controller.start()
        for broker in self.brokers:
            if not broker.is_running:
                self.start_broker(broker)
        self.mend_disks()
        self.come_together()

    def recover(self) -> None:
        """The trouble is over: all must be well in the end."""
        self.calm_down()
        self.send()
        self.run(1.0)
        self.come_together()
        self.checks.ends_well()
        self._note("well")

    def send(self) -> None:
        """Every broker that takes itself for a master gets some messages."""
        for broker in self._brokers_that(lambda one: one.state.role is Role.MASTER):
            for _ in range(self.chance.randrange(1, 4)):
                self._sent += 1
                body = b"message-%d" % self._sent
                broker.send(body, partial(self._acknowledged, broker))
                self.checks.look()
                if self.chance.random() < 0.5:
                    self.run(self.chance.choice([0.001, 0.05]))

    def lose_broker(self) -> None:
        """kill -9; or power, where the configuration promises to survive that."""
        victim = self._victim(self._running(self.brokers), self._is_master)
        if victim is not None:
            power = self.flush == "SYNC_FLUSH" and self.chance.random() < 0.5
            self._note(f"{victim.host} {'power' if power else 'kill'}")
            victim.end(power=power)
            self.checks.ended(victim, power=power)
            if self.chance.random() < self.haste:
                self.try_to_start(victim)

    def lose_controller(self) -> None:
        """A controller is killed or loses its power."""
        victim = self._victim(self._running(self.controllers), lambda one: one.leads)
        if victim is not None:
            victim.end(power=self.chance.random() < 0.5)

    def revive(self) -> None:
        """Something that is down comes up again."""
        both: list[BrokerProcess | ControllerProcess] = [*self.controllers, *self.brokers]
        down = [one for one in both if not one.is_running]
        if down:
            one = self.chance.choice(down)
            self._note(one.host)
            self.try_to_start(one)

    def pause(self) -> None:
        """SIGSTOP of a broker or a controller."""
        if self.chance.random() < 0.5:
            victim: Process | None = self._victim(
                [one for one in self.brokers if one.is_able], self._is_master
            )
        else:
            victim = self._victim(
                [one for one in self.controllers if one.is_able], lambda one: one.leads
            )
        if victim is not None:
            self._note(victim.host)
            victim.pause()

    def go_on(self) -> None:
        """SIGCONT of whatever is stopped."""
        for process in (*self.controllers, *self.brokers):
            if process.is_paused and self.chance.random() < 0.7:
                process.go_on()

    def cut(self) -> None:
        """A host is not heard, or hears nothing, or both, of some others."""
        hosts = [one.host for one in (*self.controllers, *self.brokers)]
        victim = self.chance.choice(hosts)
        ways = self.chance.choice([(True, False), (False, True), (True, True)])
        for other in hosts:
            if other != victim and self.chance.random() < 0.6:
                self._note(f"{victim}/{other} {ways}")
                self.network.cut |= {(victim, other)} if ways[0] else set()
                self.network.cut |= {(other, victim)} if ways[1] else set()

    def heal(self) -> None:
        """All links are well again."""
        self.network.heal()

    def reset(self) -> None:
        """Somebody loses a connection."""
        able = [one.host for one in (*self.controllers, *self.brokers) if one.is_able]
        if able:
            self.network.reset(self.chance.choice(able), self.chance)

    def disturb_a_proposal(self) -> None:
        """Somebody joins or is lost, and while the controllers are told of that, the teller is
        killed and comes back at once, or it loses its connections; then it gets messages."""
        down = [one for one in self.brokers if not one.is_running]
        slaves = self._brokers_that(lambda one: one.state.role is Role.SLAVE)
        if down:
            self.try_to_start(self.chance.choice(down))
        elif slaves:
            victim = self.chance.choice(slaves)
            victim.end(power=False)
            self.checks.ended(victim, power=False)
            if self.chance.random() < 0.7:
                self.run(1.0)
                self.try_to_start(victim)
        for _ in range(2000):
            asking = self._brokers_that(lambda one: one.is_asking)
            if asking:
                break
            self.run(0.001)
        else:
            return
        self._note(f"{asking[0].host} asks")
        if self.chance.random() < 0.5:
            asking[0].end(power=False)
            self.checks.ended(asking[0], power=False)
            self.start_broker(asking[0])
        else:
            for _ in range(6):
                self.network.reset(asking[0].host, self.chance)
        for _ in range(self.chance.randrange(4)):
            self.run(0.8)
            self.send()

    def designate(self) -> None:
        """An administrator wants another master."""
        wanted = self.chance.choice(self.brokers).broker_id
        if wanted:
            asked: Deferred[Any] = self._admin.elect_master(CLUSTER, NAME, wanted, designate=True)
            asked.addErrback(lambda _: None)

    def spoil_a_disk(self) -> None:
        """Some calls of one process on some of its files fail, once or for good."""
        victim: Any = self._victim(self._running(self.brokers), self._is_master)
        if self.chance.random() < 0.2:
            victim = self._victim(self._running(self.controllers), lambda one: one.leads)
        if victim is not None:
            fault = some_fault(self.chance, victim)
            self._note(f"{victim.host} {fault}")
            victim.disk.faults.append(fault)

    def mend_disks(self) -> None:
        """All disks work again; who says that it needs it is started again."""
        mend((*self.controllers, *self.brokers))
        for controller in self._running(self.controllers):
            if needs_restart(controller):
                controller.end(power=False)
                controller.start()
        for broker in self._running(self.brokers):
            if needs_restart(broker):
                self._note(f"{broker.host} is started again")
                broker.end(power=False)
                self.checks.ended(broker, power=False)
                self.start_broker(broker)

    def lose_the_masters_disk(self) -> None:
        """The disk of a master whose group is well fails: another one takes messages within a
        bounded time, unless the master is the only one in sync by then and elected anew: it cannot
        write the epoch that it would have to begin."""
        if len(self.brokers) < 2:
            return
        self.calm_down()
        (master,) = self._brokers_that(self._is_master)
        faults = spoil_for_good(self.chance, master)
        self._note(f"{master.host} {faults[0]}")
        known, give_up = len(self.checks.acknowledged), self.clock.seconds() + GOES_ON
        alone, epoch = {master.broker_id}, self.latest.master_epoch
        while not (self.latest.members == alone and self.latest.master_epoch > epoch):
            others = [one for one in self._brokers_that(self._is_master) if one is not master]
            # It may never touch what it cannot write.
            able = others or ([] if any(fault.hits for fault in faults) else [master])
            if able and len(self.checks.acknowledged) > known:
                break
            if self.clock.seconds() > give_up:
                raise Broken(f"the group does not go on when {master.host} has {faults}")
            self.send()
            self.run(1.0)
        self.mend_disks()

    def start_broker(self, broker: BrokerProcess) -> None:
        """A broker comes up."""
        broker.start()
        self.checks.began(broker)

    def try_to_start(self, process: BrokerProcess | ControllerProcess) -> None:
        """Something comes up, or its disk refuses that and it stays down."""
        is_spoilt = self.disks_fail and self.chance.random() < SPOILT_STARTS
        if is_spoilt:
            process.disk.faults.append(fault_of_a_start(self.chance, process))
        try:
            process.start()
        except START_ERRORS as error:
            if not is_spoilt:
                raise
            self._note(f"{process.host} cannot start: {error}")
            process.end(power=False)
            return
        if isinstance(process, BrokerProcess):
            self.checks.began(process)

    # Time

    def run(self, seconds: float) -> None:
        """Time goes on. Raises `Broken`."""
        until = self.clock.seconds() + seconds
        for _ in range(MAX_CALLS):
            if not self.clock.step(until):
                break
            if self._failed is not None:
                raise self._failed
            self.checks.look()
        else:
            raise Broken("it does not come to rest")

    def come_together(self) -> None:
        """Time goes on until nothing is missing."""
        give_up = self.clock.seconds() + CALM
        while missing := self.checks.come_together():
            if self.clock.seconds() > give_up:
                raise Broken(f"the group does not come together: {missing}")
            self.run(0.5)

    # Helpers

    def _applied(self, process: ControllerProcess, index: int) -> None:
        assert process.controller is not None
        try:
            self._controller_checks.applied(index, process.controller.machine.state)
        except Broken as broken:
            self._failed = broken

    def _acknowledged(self, broker: BrokerProcess, body: bytes, offset: int) -> None:
        try:
            self.checks.acknowledge(broker, body, offset)
        except Broken as broken:
            self._failed = broken

    def _running(self, processes: list[Any]) -> list[Any]:
        return [one for one in processes if one.is_running]

    def _brokers_that(self, wanted: Callable[[BrokerProcess], bool]) -> list[BrokerProcess]:
        return [one for one in self.brokers if one.is_able and wanted(one)]

    def _is_master(self, broker: BrokerProcess) -> bool:
        return broker.state.role is Role.MASTER

    def _victim(self, able: list[Any], preferred: Callable[[Any], bool]) -> Any:
        """One of them, mostly one whose loss is felt; None where there is none."""
        felt = [one for one in able if preferred(one)]
        pool = felt if felt and self.chance.random() < 0.6 else able
        return self.chance.choice(pool) if pool else None

    def _note(self, what: str) -> None:
        checks, latest = self.checks, self.latest
        self.trace.append(
            f"{self.clock.seconds():.6f} {what}: epoch {latest.master_epoch} of {latest.master},"
            f" {sorted(latest.members)} in sync ({latest.epoch}), {len(checks.acknowledged)}"
            f" acknowledged, {len(checks.seen)} seen, {len(checks.promised)} bytes"
        )


def simulate(
    seed: int,
    steps: int = STEPS,
    trace: list[str] | None = None,
    *,
    disks_fail: bool = False,
) -> World:
    """One schedule, told in `trace`. Raises `Broken` with the seed in its text."""
    world = World(seed, disks_fail=disks_fail)
    world.trace = [] if trace is None else trace
    try:
        with reproducible(seed):
            world.live(steps)
    except Broken as broken:
        raise Broken(f"seed {seed}: {broken}") from broken
    return world
