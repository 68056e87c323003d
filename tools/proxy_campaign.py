"""kill -9 of proxies under load, and of what is behind them: what is acknowledged is neither lost
nor comes again.

    nice python -m tools.proxy_campaign --kills 100
    python -m tools.proxy_campaign --kills 20 --events broker namesrv

Two proxies before a broker and two name servers, all of them processes; with the event `master`
before two brokers that a controller leads, of which the master is killed; with `local` two brokers
with a proxy in the process of each; with `broker-moves` before two brokers, one of which goes on
with its store at another address, as a name server does with `namesrv-moves`. Producers try a send
three times at most, at the proxies by turns; consumers receive and acknowledge at both, one has its
messages renewed and keeps them for longer than they were hidden at first (`--longest-kept`), and
one goes to the other proxy with its handles after each receive. Each kill falls at a random moment,
the server is started again, and so on. The exit code is 1 where a promise was broken: a message
that was sent and lost, that came again after its acknowledgement was answered with OK, or before
the time was over for which it was hidden. While a broker is away sends may be refused, and what it
had not written of pops and acknowledgements may come again at any time; that is counted.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from rocketmq_tw.net.address import split_address
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.controlled import ControlledGroup
from tests.support.controllers import ControllerGroup
from tests.support.mqadmin_cases import NEW
from tests.support.ports import LOOPBACK
from tests.support.processes import BrokerProcess, NameServerProcess, ServerProcess
from tests.support.proxies import BrokerWithProxy, OurProxy
from tests.support.proxy_load import RENEWED, RENEWED_KEYS, ProxyLoad
from tests.support.remoting import create_topic
from tests.support.wait import wait_until

PROXY, BROKER, NAME_SERVER, MASTER = "proxy", "broker", "namesrv", "master"
BROKER_MOVES, NAME_SERVER_MOVES = "broker-moves", "namesrv-moves"
#: Brokers with a proxy in their process; other events are of proxies by themselves.
LOCAL = "local"
EVENTS = (PROXY, BROKER, NAME_SERVER, MASTER, LOCAL, BROKER_MOVES, NAME_SERVER_MOVES)
NAME = "broker-a"
#: Where a server may be.
PLACES = (LOOPBACK, "127.0.0.2")
TOPIC, GROUP = "Campaign", "campaign"
QUEUES = 4
#: Seconds of load between two kills.
LEAST, MOST = 0.3, 1.5
#: The last of so many kills finds messages that were renewed.
PATIENCE = 10
#: Seconds in which all comes again and is acknowledged: a renewal hides for a minute.
DRAIN = 150.0
#: Offsets are written often, so that little comes again after the kill of a broker; stock's broker
#: pops with timers only.
_SETTINGS = {"flushConsumerOffsetInterval": "500", "timerWheelEnable": "true"}


@dataclass
class Outcome:
    """What a campaign counted; `faults` are broken promises."""

    kills: int
    sent: int
    retried: int
    refused: list[str]
    came_again: int
    renewed: int
    moved: int
    seconds: float
    faults: list[str]

    def __str__(self) -> str:
        return (
            f"{self.kills} kills in {self.seconds:.0f} s: {self.sent} messages sent,"
            f" {self.retried} tries repeated, {len(self.refused)} sends refused,"
            f" {self.came_again} came more than once, {self.renewed} renewed,"
            f" {self.moved} acknowledged at another proxy, {len(self.faults)} faults"
        )


#: Kills something, and returns when it is back.
Strike = Callable[[random.Random], str]


def run(
    home: Path,
    kills: int,
    *,
    seed: int = 1,
    events: Sequence[str] = (PROXY,),
    longest_kept: float = 3.0,
    patience: int = PATIENCE,
    pause: float = 0.0,
    kind: str = OURS,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Runs a campaign with servers under `home`; `longest_kept`: seconds for which consumers keep
    messages that are renewed. Where that is beyond the time for which they are hidden at first, the
    last of each `patience` kills waits for such a one; `pause`: seconds between two sends; `kind`:
    of the brokers, for events that do not end them."""
    chance = random.Random(seed)
    began = time.monotonic()
    with ExitStack() as stack:
        name_servers = [make_name_server(OURS, home / f"namesrv-{each}") for each in "ab"]
        for server in name_servers:
            stack.enter_context(server)
        strikes: dict[str, Strike] = {
            NAME_SERVER: _restart(name_servers),
            NAME_SERVER_MOVES: _move(name_servers),
        }
        # Who asks a name server knows all places where it may be.
        names = ";".join(
            f"{place}:{split_address(each.address)[1]}" for place in PLACES for each in name_servers
        )
        settings = {**_SETTINGS, "namesrvAddr": names}
        brokers: Sequence[BrokerProcess]
        local: list[BrokerWithProxy] = []
        if LOCAL in events:
            for each in "ab":
                local.append(
                    BrokerWithProxy(
                        f"broker-{each}",
                        home / f"local-{each}",
                        name_servers,
                        settings=settings,
                        proxy_keys=RENEWED_KEYS,
                    )
                )
            for made in local:
                stack.enter_context(made)
            brokers, strikes[LOCAL] = local, _restart(local)
        elif MASTER in events:
            group = _controlled_group(home, name_servers[0], stack)
            brokers, strikes[MASTER] = group.brokers, _kill_master(group)
        else:
            broker_names = [NAME, "broker-b"] if BROKER_MOVES in events else [NAME]
            brokers = [
                stack.enter_context(
                    make_broker(kind, name, home / name, name_servers, settings=settings)
                )
                for name in broker_names
            ]
        strikes[BROKER], strikes[BROKER_MOVES] = _restart(brokers), _move(brokers)
        places = [each.proxy_ports.grpc for each in local]
        if not local:
            proxies = [
                stack.enter_context(OurProxy(home / f"proxy-{each}", names, **RENEWED_KEYS))
                for each in "ab"
            ]
            places, strikes[PROXY] = [each.address for each in proxies], _restart(proxies)
        serving = brokers[:1] if MASTER in events else brokers
        for server_with_topic in serving:
            create_topic(server_with_topic.address, TOPIC, QUEUES)
        wait_until(lambda: name_servers[0].routes(TOPIC, list(serving)), "the route")
        load = stack.enter_context(
            ProxyLoad(places, TOPIC, GROUP, longest_kept=longest_kept, pause=pause)
        )
        load.start()
        wait_until(lambda: len(load.seen) > 20, "messages to come")
        for number in range(kills):
            if longest_kept > RENEWED and number % patience == patience - 1:
                _wait_renewed(load)
            time.sleep(chance.uniform(LEAST, MOST))
            victim = strikes[events[number % len(events)]](chance)
            say(f"{number + 1}: {victim}, {len(load.sent)} sent")
        load.stop_sending()
        # What does not come is told as a fault of each message.
        with suppress(TimeoutError):
            load.wait_drained(DRAIN)
        return Outcome(
            kills,
            len(load.sent),
            load.retried,
            load.refused,
            load.duplicates(),
            load.renewed,
            load.moved,
            time.monotonic() - began,
            _faults(load, events),
        )


def _wait_renewed(load: ProxyLoad) -> None:
    renewed = load.renewed
    wait_until(lambda: load.renewed > renewed, "renewed messages to be acknowledged", limit=300)


def _faults(load: ProxyLoad, events: Sequence[str]) -> list[str]:
    is_broker_gone = bool({BROKER, BROKER_MOVES, MASTER, LOCAL}.intersection(events))
    faults = load.faults(a_broker_died=is_broker_gone)
    if {BROKER, MASTER}.intersection(events) and BROKER_MOVES not in events:
        # There is no other broker.
        return faults
    return faults + [f"a send that three tries did not help: {each}" for each in load.refused]


def _restart(servers: Sequence[ServerProcess]) -> Strike:
    def strike(chance: random.Random) -> str:
        victim = chance.choice(servers)
        victim.kill()
        victim.start()
        return victim.name

    return strike


def _move(servers: Sequence[ServerProcess]) -> Strike:
    """A server that was stopped, or killed, goes on with its files at another address."""

    def strike(chance: random.Random) -> str:
        victim = chance.choice(servers)
        chance.choice((victim.stop, victim.kill))()
        victim.move(next(place for place in PLACES if place != victim.ip))
        victim.start()
        return f"{victim.name}, now at {victim.address}"

    return strike


def _controlled_group(
    home: Path, name_server: NameServerProcess, stack: ExitStack
) -> ControlledGroup:
    """Two brokers, each of which has all that is acknowledged."""
    controllers = ControllerGroup(home / "controllers", [OURS])
    stack.callback(controllers.close)
    controllers.start()
    controllers.wait_leader()
    group = ControlledGroup(NAME, home, name_server, controllers, [OURS, OURS], _SETTINGS)
    stack.enter_context(group)
    group.start()
    return group


def _kill_master(group: ControlledGroup) -> Strike:
    """The other broker becomes the master, and the former one its slave."""

    def strike(chance: random.Random) -> str:
        former = group.master.broker_id
        assert former is not None
        group[former].kill()
        group.wait_master(3 - former)
        group[former].start()
        group.wait_in_sync(1, 2)
        return f"master {former}"

    return strike


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--events", nargs="+", choices=EVENTS, default=[PROXY])
    parser.add_argument(
        "--longest-kept",
        type=float,
        default=RENEWED + 5.0,
        help="seconds for which messages are kept that are renewed",
    )
    parser.add_argument(
        "--brokers",
        default=OURS,
        choices=(OURS, NEW),
        help="whose brokers stand behind the proxies; stock's for the event proxy alone",
    )
    options = parser.parse_args()
    if options.brokers != OURS and set(options.events) != {PROXY}:
        parser.error("before stock's brokers the campaign kills proxies only")
    with tempfile.TemporaryDirectory(prefix="rmq-proxies-") as home:
        outcome = run(
            Path(home),
            options.kills,
            seed=options.seed,
            events=options.events,
            longest_kept=options.longest_kept,
            kind=options.brokers,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    print(outcome)
    for refused in outcome.refused[:10]:
        print(f"  refused: {refused}")
    for fault in outcome.faults[:50]:
        print(f"  {fault}")
    return bool(outcome.faults)


if __name__ == "__main__":
    sys.exit(main())
