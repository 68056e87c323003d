"""One cell of the matrix: controllers and brokers of chosen kinds that fail under a load."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.cluster import OURS, make_name_server
from tests.support.controllers import STOCK_VERSION, ControllerGroup, running_controllers
from tests.support.elected_brokers import ElectedBrokers, SteadyLoad
from tests.support.hosts import HostNetwork
from tests.support.java_client import JavaClients
from tests.support.outages import Outage
from tests.support.processes import ServerProcess
from tests.support.storecheck import check_store
from tests.support.wait import wait_until

#: Silence is noticed after three seconds, so that a round need not take longer.
_BROKERS = {"controllerHeartBeatTimeoutMills": "3000", "haMaxTimeSlaveNotCatchup": "3000"}
_CONTROLLERS = {"scanNotActiveBrokerInterval": "500", "scanInactiveMasterInterval": "500"}
#: A stock client refuses what it cannot reach only after this.
_PRODUCER = {"retries": 0, "timeoutMs": 3000}
#: Acknowledged sends before and after each change.
_SENDS = 50
_QUEUES = 4


class Round(NamedTuple):
    """One outage; of the broker that is the master, or else of the controller that leads."""

    outage: Outage
    of_master: bool
    #: Whether all brokers are in sync again before it, or only enough for an election.
    after_all: bool


class CellFigures(NamedTuple):
    """What a cell went through."""

    acknowledged: int
    refused: int
    epochs: int
    restarted: int
    log_bytes: int
    seconds: float

    def __str__(self) -> str:
        restarted = f", {self.restarted} brokers restarted" if self.restarted else ""
        return (
            f"{self.acknowledged} acknowledged, {self.refused} not, {self.epochs} masters"
            f"{restarted}; each once in every log, SHA-256 of {self.log_bytes >> 10} KiB equal;"
            f" {self.seconds:.0f} s"
        )


def make_rounds(counts: dict[Outage, int], seed: int) -> list[Round]:
    """As many of each as asked for, in the seed's order; every second hits the master."""
    dice = random.Random(seed)
    rounds = [
        Round(outage, number % 2 == 0, dice.random() < 0.5)
        for outage, count in counts.items()
        for number in range(count)
    ]
    dice.shuffle(rounds)
    return rounds


def run_cell(
    home: Path,
    controllers: Sequence[str],
    brokers: Sequence[str],
    java: JavaClients,
    rounds: Sequence[Round],
    *,
    network: HostNetwork | None = None,
    restart_after: float | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> CellFigures:
    """Lets the servers fail, one after the other, while a stock producer sends; raises
    `AssertionError` where a message was lost or doubled or logs differ. Cut links need `network`;
    `restart_after` is for brokers that stay out of sync, see `ElectedBrokers`.
    """
    began = time.monotonic()
    topic = "outages"
    name_server = make_name_server(OURS, home / "names")
    if network is not None:
        name_server.place(network.add_host())
    with (
        name_server,
        running_controllers(home, controllers, _CONTROLLERS, network) as elected_by,
        ElectedBrokers(
            "cell",
            home,
            name_server,
            elected_by,
            brokers,
            _BROKERS,
            network=network,
            restart_after=restart_after,
        ) as group,
    ):
        java.create_topic(name_server.address, group.wait_in_sync().address, topic, _QUEUES)
        with (
            java.producer(name_server.address, java.handle("cell"), **_PRODUCER) as producer,
            SteadyLoad(producer, topic) as load,
        ):
            for number, each in enumerate(rounds, 1):
                _let_fail(group, elected_by, load, each, number, say)
            say("all rounds are over")
            group.wait_in_sync()
            load.wait_more(_SENDS)
            acknowledged, refused = load.stop(), load.refused
        end = group.check_equal()
        epochs = wait_until(lambda: group.master.epoch, "the last epoch")
        for broker in group.brokers:
            broker.stop()
        for broker, seen in zip(group.brokers, group.bodies(topic), strict=True):
            lost = [body for body in acknowledged if not seen[body]]
            doubled = [body for body, times in seen.items() if times > 1]
            assert not lost, f"{broker.home.name} has lost {len(lost)}: {sorted(lost)[:5]}"
            assert not doubled, f"{broker.home.name} has {len(doubled)} twice: {doubled[:5]}"
            check_store(broker.store, unconfirmed=True)
    seconds = time.monotonic() - began
    return CellFigures(len(acknowledged), refused, epochs, group.restarted, end, seconds)


def _let_fail(
    group: ElectedBrokers,
    controllers: ControllerGroup,
    load: SteadyLoad,
    each: Round,
    number: int,
    say: Callable[[str], None],
) -> None:
    needed = len(group.brokers) if each.after_all else 2
    began = time.monotonic()
    load.wait_more(_SENDS)
    group.wait_in_sync(needed)
    gone: ServerProcess
    if each.of_master:
        gone = group.fail_master(each.outage, needed)
    else:
        gone = controllers.fail_leader(each.outage)
    load.wait_more(_SENDS)
    each.outage.end(gone)
    say(
        f"round {number}: {each.outage} of {gone.home.name}, {needed} in sync,"
        f" {time.monotonic() - began:.1f} s, {len(load.acknowledged)} acknowledged"
    )
    if not each.of_master:
        # Two of three must be there to elect the next one.
        gone.wait_ready()


def kinds(word: str, *, controllers: bool) -> list[str]:
    """Three servers for "ours", "stock" or "mixed"."""
    stock = "stock" if controllers else STOCK_VERSION
    chosen = {"ours": [OURS] * 3, "stock": [stock] * 3, "mixed": [OURS, stock, OURS]}
    return chosen[word]
