"""Groups whose slaves act for their masters, in trouble that a seed decides.

Links between name servers and brokers are cut and restored, brokers and name servers killed, paused
and started, while messages are sent, plain and delayed, and read where the route says. Promises:

- only masters accept messages;
- two brokers of a group do not both deliver for longer than `MOST_OVERLAP` while one of them can
  hear of the other one, by the HA link of master and slave or by a name server that reaches both;
- when all is well again, every acknowledged message is read;
- where no broker was killed, offsets are then what they were committed as last, whoever took them;
  but for groups whose master was back, and waited its time, before a slave that had acted.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations
from random import Random
from typing import NamedTuple

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import BrokerInMemory, messages_of
from tests.support.network import Trouble
from tests.support.sim.acting import BEAT_MS, NOT_ACTIVE_MS, SCAN_MS, ActingCluster
from tests.support.sim.brokers import BrokerProcess, Sender
from tests.support.sim.checks import Broken
from tests.support.sim.simulation import Process, reproducible

GROUPS = ("a", "b", "c")
TOPIC, QUEUES, CONSUMERS = "Topic", 4, "G"
#: Seconds between two looks at all brokers, and of trouble.
LOOK, TROUBLE = 0.1, 30.0
#: Seconds from which on two brokers of a group deliver for too long: a time-out, a scan and two
#: questions.
MOST_OVERLAP = (NOT_ACTIVE_MS + SCAN_MS + 2 * BEAT_MS) / 1000
#: Seconds that a master which is back waits for a slave that no name server lists.
MOST_WAIT = (NOT_ACTIVE_MS + 2 * BEAT_MS) / 1000
#: Seconds that healing takes at most.
HEALING = 120.0


class ActingWorld:
    """Two name servers, three groups, and what is sent to and read from them."""

    def __init__(self, seed: int, trace: list[str] | None = None) -> None:
        self.chance = chance = Random(seed)
        weather = Trouble(chance, slowest=0.1, latest=0.3) if chance.random() < 0.5 else None
        self._skips_pre_online = chance.random() < 0.25
        self.cluster = cluster = ActingCluster(
            name_servers=2,
            chance=chance,
            weather=weather,
            settings={
                "compatible_with_old_name_srv": chance.random() < 0.5,
                "register_name_server_period": 10_000,
                "skip_pre_online": self._skips_pre_online,
            },
            total_replicas=2,
            ha_send_heartbeat_interval=500,
        )
        self.trace: list[str] = [] if trace is None else trace
        self.acknowledged: set[bytes] = set()
        #: How often each message was read.
        self.read: Counter[bytes] = Counter()
        self._next: dict[tuple[str, int], int] = {}
        self._sent = 0
        self._a_broker_was_killed = False
        #: By pair of brokers, since when both deliver although they can hear of each other.
        self._since: dict[tuple[BrokerProcess, BrokerProcess], float] = {}
        self.longest_overlap = 0.0
        #: How often a slave began to act.
        self.acts = 0
        self._acting: set[BrokerProcess] = set()
        #: Slaves that acted since their master led last.
        self._has_acted: set[BrokerProcess] = set()
        #: Since when a broker is there, where it was paused.
        self._back_at: dict[BrokerProcess, float] = {}
        #: Groups whose master led again before a slave that had acted was back (docs/acting.md).
        self._excused: set[str] = set()
        for name in GROUPS:
            master = cluster.start_group(name, slaves=chance.choice([1, 1, 2]))
            master.add_topic(TOPIC, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        cluster.run(8)

    def live(self) -> None:
        """Trouble, then healing; raises `Broken`."""
        end = self.cluster.clock.seconds() + TROUBLE
        while self.cluster.clock.seconds() < end:
            self._trouble()
            self._go_on(self.chance.choice([0.3, 1.0, 3.0, 6.0]))
        self._heal()

    # Trouble

    def _trouble(self) -> None:
        chance, network = self.chance, self.cluster.network
        processes = self._processes()
        what = chance.choice(["cut", "cut", "cut off", "heal", "heal", "kill", "pause", "start"])
        if what == "cut":
            one, other = chance.sample(processes, 2)
            pairs = [(one.host, other.host), (other.host, one.host)]
            network.cut.update(pairs[: chance.choice([1, 2, 2])])
            self._note(f"cut {one.host} {other.host}")
        elif what == "cut off":
            one = chance.choice(processes)
            others = [each.host for each in processes if each is not one]
            network.cut.update((one.host, other) for other in others)
            network.cut.update((other, one.host) for other in others)
            self._note(f"cut off {one.host}")
        elif what == "heal":
            network.heal()
            self._note("heal")
        elif what in ("kill", "pause"):
            able = [each for each in processes if each.is_able]
            if len(able) > len(processes) // 2:
                victim = chance.choice(able)
                victim.end() if what == "kill" else victim.pause()
                if what == "kill" and isinstance(victim, BrokerProcess):
                    self._a_broker_was_killed = True
                self._note(f"{what} {victim.host}")
        else:
            unable = [each for each in processes if not each.is_able]
            if unable:
                self._revive(chance.choice(unable))

    def _heal(self) -> None:
        self.cluster.network.heal()
        for process in self._processes():
            if not process.is_able:
                self._revive(process)
        self._note("all is well")
        end = self.cluster.clock.seconds() + HEALING
        while not self._is_well():
            if self.cluster.clock.seconds() > end:
                missing = sorted(self.acknowledged - self.read.keys())
                roles = {each.host: each.state.role.name for each in self._brokers()}
                raise Broken(
                    f"not well after {HEALING} s: missing {missing[:9]}, {roles}, groups put back"
                    f" {self._put_back()}"
                )
            self._go_on(1.0, sends=False)

    def _is_well(self) -> bool:
        return (
            self.acknowledged <= self.read.keys()
            and all(
                broker.state.role is (Role.SLAVE if number else Role.MASTER)
                for (_, number), broker in self.cluster.processes.items()
            )
            and not self._put_back()
        )

    def _put_back(self) -> dict[tuple[str, int], int]:
        """Returns group and queue -> the offset that its master says, where more was committed."""
        if self._a_broker_was_killed or self._skips_pre_online:
            return {}
        said = {
            (name, queue): self.cluster.broker(name, MASTER_ID).offsets.query(
                CONSUMERS, TOPIC, queue
            )
            for name, queue in self._next
            if name not in self._excused
        }
        return {key: offset for key, offset in said.items() if offset < self._next[key]}

    def _revive(self, process: Process) -> None:
        self._note(f"start {process.host}")
        if isinstance(process, BrokerProcess):
            self._back_at[process] = self.cluster.clock.seconds()
        if process.is_paused:
            process.go_on()
        else:
            process.start()  # type: ignore[attr-defined]

    # What goes on meanwhile

    def _go_on(self, seconds: float, *, sends: bool = True) -> None:
        for _ in range(round(seconds / LOOK)):
            self.cluster.run(LOOK)
            self._look()
            if sends and self.chance.random() < 0.3:
                self._send()
            self._read()

    def _send(self) -> None:
        """To any broker: only a master may take it."""
        (name, number), process = self.chance.choice(list(self.cluster.processes.items()))
        broker = process.broker
        if broker is None or process.is_paused:
            return
        self._sent += 1
        level = self.chance.choice(["", "", "1", "2", "3"])
        request = broker.send_request(
            b"%d" % self._sent,
            queue_id=self.chance.randrange(QUEUES),
            # Clients name each message.
            properties={"UNIQ_KEY": f"{self._sent:032}"} | ({"DELAY": level} if level else {}),
        )

        def acknowledged(body: bytes, _: int) -> None:
            if number != MASTER_ID:
                raise Broken(f"broker {name} {number} took a message")
            self._note(f"sent {body!r} to {name}, level {level or 0}")
            self.acknowledged.add(body)

        peer = Sender(request.body, acknowledged)
        answer = broker.request(request, peer)
        if answer is not None and answer not in peer.replies:
            peer.reply(answer)

    def _read(self) -> None:
        """A few messages of one queue, where a name server says."""
        name, queue = self.chance.choice(GROUPS), self.chance.randrange(QUEUES)
        broker = self._shown(name)
        if broker is None or not broker.broker.role.role.delivers:
            return
        offset = self._next.get((name, queue), 0)
        answer = broker.pull(offset, queue_id=queue)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        for message in messages_of(answer.body, TOPIC, queue):
            if message.queue_offset != offset:
                raise Broken(f"{name} {queue} has {message.queue_offset} where {offset} is next")
            offset += 1
            self.read[message.body] += 1
        self._next[name, queue] = offset
        broker.offsets.commit(CONSUMERS, TOPIC, queue, offset)

    def _shown(self, name: str) -> BrokerInMemory | None:
        """The broker that clients take for the master of a group."""
        name_server = self.chance.choice(range(len(self.cluster.name_servers)))
        if not self.cluster.name_servers[name_server].is_able:
            return None
        for group in self.cluster.route(TOPIC, name_server).broker_datas:
            if group.broker_name == name:
                address = group.broker_addrs.get(MASTER_ID, "")
                for process in self._brokers():
                    if address.startswith(f"{process.host}:") and process.is_able:
                        return process.broker
        return None

    # Promises

    def _look(self) -> None:
        now = self.cluster.clock.seconds()
        acting = {each for each in self._able() if each.state.role is Role.ACTING_MASTER}
        for each in acting - self._acting:
            self._note(f"{each.host} acts")
        self.acts += len(acting - self._acting)
        self._acting = acting
        self._has_acted |= acting
        for name in GROUPS:
            self._look_at_return(name, now)
        both: dict[tuple[BrokerProcess, BrokerProcess], float] = {}
        for name in GROUPS:
            its = [each for (group, _), each in self.cluster.processes.items() if group == name]
            deliver = [each for each in its if each.is_able and each.state.role.delivers]
            for pair in combinations(deliver, 2):
                if self._hear_of_each_other(*pair):
                    both[pair] = self._since.get(pair, now)
                    self.longest_overlap = max(self.longest_overlap, now - both[pair])
                    if now - both[pair] > MOST_OVERLAP:
                        hosts = " and ".join(each.host for each in pair)
                        raise Broken(f"{hosts} both deliver for {now - both[pair]:.1f} s")
        self._since = both

    def _look_at_return(self, name: str, now: float) -> None:
        master, *slaves = [each for (its, _), each in self.cluster.processes.items() if its == name]
        if not master.is_able or master.state.role is not Role.MASTER:
            return
        returned = [each for each in slaves if each in self._has_acted - self._acting]
        waited = now - self._back_at.get(master, now)
        if waited >= MOST_WAIT and any(not each.is_able for each in returned):
            self._excused.add(name)
        self._has_acted.difference_update(returned)

    def _hear_of_each_other(self, one: BrokerProcess, other: BrokerProcess) -> bool:
        # Slaves have no link to each other.
        its_master = MASTER_ID in (one.state.broker_id, other.state.broker_id)
        if its_master and self._are_linked(one, other):
            return True
        return any(
            each.is_able and self._are_linked(one, each) and self._are_linked(each, other)
            for each in self.cluster.name_servers
        )

    def _are_linked(self, *pair: Process) -> bool:
        reaches = self.cluster.network.reaches
        return all(reaches(one.host, other.host) for one, other in permutations(pair))

    def _brokers(self) -> list[BrokerProcess]:
        return list(self.cluster.processes.values())

    def _able(self) -> list[BrokerProcess]:
        return [each for each in self._brokers() if each.is_able]

    def _processes(self) -> list[Process]:
        return [*self.cluster.name_servers, *self._brokers()]

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.cluster.clock.seconds():.3f} {what}")


class Outcome(NamedTuple):
    """What came of one seed; `broken` is empty where all promises were kept. `repeated` are
    messages that were read more than once."""

    seed: int
    broken: str
    acknowledged: int
    repeated: int
    acts: int
    longest_overlap: float


def simulate(seed: int, trace: list[str] | None = None) -> Outcome:
    """Lives through one seed."""
    broken = ""
    with reproducible(seed):
        world = ActingWorld(seed, trace)
        try:
            world.live()
        except Broken as error:
            broken = f"seed {seed}: {error}"
    repeated = sum(number > 1 for number in world.read.values())
    return Outcome(
        seed, broken, len(world.acknowledged), repeated, world.acts, world.longest_overlap
    )
