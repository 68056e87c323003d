"""What a simulated group has promised, looked at after every call that the clock makes."""

from __future__ import annotations

from typing import Any, NamedTuple

from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.controller.core.state import ControllerState
from tests.support.broker import messages_of
from tests.support.sim.brokers import NAME, BrokerProcess
from tests.support.sim.disks import works_for_checks

TOPIC = "Topic"


class Broken(Exception):
    """A promise that was broken."""


class Decided(NamedTuple):
    """What the controllers say of the group behind one entry of their log."""

    master: int | None
    master_epoch: int
    members: frozenset[int]
    epoch: int


NOBODY = Decided(None, 0, frozenset(), 0)


def decided(state: ControllerState) -> Decided:
    """What a controller has decided."""
    group = state.group(NAME)
    if group is None:
        return NOBODY
    sync = group.sync
    return Decided(sync.master, sync.master_epoch, sync.members, sync.epoch)


class ControllerChecks:
    """All controllers apply the same; of each epoch there is one master, which was in sync."""

    def __init__(self) -> None:
        self.latest = NOBODY
        self._latest_index = -1
        self._history: dict[int, Decided] = {}
        self._masters: dict[int, int | None] = {}
        self._sets: dict[int, frozenset[int]] = {}

    def applied(self, index: int, state: ControllerState) -> None:
        """A controller has applied the entry of this index."""
        now = decided(state)
        known = self._history.setdefault(index, now)
        if known != now:
            raise Broken(f"controllers differ behind entry {index}: {known} and {now}")
        if index <= self._latest_index:
            return
        before, self.latest, self._latest_index = self.latest, now, index
        if self._masters.setdefault(now.master_epoch, now.master) != now.master:
            raise Broken(f"two masters in epoch {now.master_epoch}")
        if self._sets.setdefault(now.epoch, now.members) != now.members:
            raise Broken(f"two SyncStateSets of epoch {now.epoch}")
        if (
            now.master_epoch > before.master_epoch > 0
            and now.master is not None
            and now.master not in before.members
        ):
            raise Broken(f"{now.master} is elected from outside of {sorted(before.members)}")
        if now.master is not None and now.master not in now.members:
            raise Broken(f"the master {now.master} is not in sync: {sorted(now.members)}")

    def master_of(self, epoch: int) -> int | None:
        """Who was elected for an epoch; None where nobody is known."""
        return self._masters.get(epoch)


class _Copy:
    """What is known of one broker's log: its bytes as they are written, and how many of them are
    known to be what senders and readers rely on."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.checked = 0
        #: What readers of this process can see: messages of the queue.
        self.shown = 0
        #: It is up again after a power loss, or never lost any.
        self.is_known = True
        #: The broker of now, with what is looked at after each event.
        self.of: Any = None
        self.store: Any = None
        self.role: Any = None


class GroupChecks:
    """The brokers of the group.

    `acknowledged` are bodies of which a producer was told SEND_OK, `seen` those that some reader of
    the queue could see, `promised` the log up to behind the last of both: each member of the
    SyncStateSet has all of that.
    """

    def __init__(self, brokers: list[BrokerProcess], controllers: ControllerChecks) -> None:
        self.acknowledged: list[bytes] = []
        self.promised = b""
        self.seen: list[bytes] = []
        self._brokers = brokers
        self._controllers = controllers
        self._copies = {broker.host: _Copy() for broker in brokers}
        self._ids: dict[str, int] = {}
        self._masters: dict[int, str] = {}
        self._believed: dict[str, Any] = {}
        self._members_looked_at = NOBODY

    def acknowledge(self, broker: BrokerProcess, body: bytes, offset: int) -> None:
        """A producer was told SEND_OK of the message at a log offset."""
        self.look()
        data = self._copies[broker.host].data
        size = int.from_bytes(data[offset : offset + 4], "big")
        record = data[offset : offset + size]
        if len(record) < 4 or body not in record:
            raise Broken(f"{body!r} is acknowledged and not at {offset} of the log")
        self.acknowledged.append(body)
        self._promise(broker.host, data, offset + size)
        self._look_at_members()

    def began(self, broker: BrokerProcess) -> None:
        """A broker is a new process."""
        copy = self._copies[broker.host]
        copy.checked = copy.shown = 0
        copy.is_known = True
        copy.data.clear()
        self._believed.pop(broker.host, None)
        self._look_at(broker)
        self._look_at_members()

    def ended(self, broker: BrokerProcess, *, power: bool) -> None:
        """A broker is gone; what a power loss left of its log is known once it is up again."""
        self._copies[broker.host].is_known = not power

    def look(self) -> None:
        """Raises `Broken` where a promise does not hold."""
        changed = False
        for broker in self._brokers:
            if broker.broker is not None:
                changed = self._look_at(broker) or changed
        if changed or self._members_looked_at is not self._controllers.latest:
            self._look_at_members()

    def _look_at(self, broker: BrokerProcess) -> bool:
        """Takes in what has changed; whether members have to be looked at."""
        memory = broker.broker
        assert memory is not None
        copy = self._copies[broker.host]
        if copy.of is not memory:
            copy.of, copy.store, copy.role = memory, memory.store, memory.broker.role
        state = copy.role.state
        if state is not self._believed.get(broker.host):
            self._believed[broker.host] = state
            self._look_at_role(broker)
        if not broker.disk.faults:
            return self._look_at_log(broker, copy)
        with works_for_checks(broker.disk):
            return self._look_at_log(broker, copy)

    def _look_at_log(self, broker: BrokerProcess, copy: _Copy) -> bool:
        store = copy.store
        end, changed = store.written_offset, False
        if end < len(copy.data):
            del copy.data[end:]
            copy.checked = min(copy.checked, end)
            changed = True
        if end > len(copy.data):
            while len(copy.data) < end:
                found = store.read_log(len(copy.data), end - len(copy.data))
                if not found:
                    break
                copy.data += found
        top = store.max_queue_offset(TOPIC, 0)
        if top < copy.shown:
            raise Broken(f"{broker.host}: readers saw {copy.shown} messages, now there are {top}")
        if copy.shown < top and self._promise(broker.host, copy.data, store.dispatched_offset):
            changed = True
        while copy.shown < top:
            read = store.read_queue(TOPIC, 0, copy.shown, 32, 1 << 20)
            if read.next_offset <= copy.shown:
                raise Broken(f"{broker.host}: message {copy.shown} of {top} is not there: {read}")
            for number, message in enumerate(messages_of(read.data), copy.shown):
                self._saw(broker.host, number, message.body)
            copy.shown = read.next_offset
        return changed

    def _promise(self, host: str, data: bytearray, end: int) -> bool:
        """Somebody relies on a broker's log up to `end`; whether that is new."""
        promised = self.promised
        shared = min(len(promised), end)
        if data[:shared] != promised[:shared]:
            raise Broken(f"{host} makes promises without what was promised before")
        if end > len(promised):
            self.promised = bytes(data[:end])
        return end > shared

    def _saw(self, host: str, number: int, body: bytes) -> None:
        if number == len(self.seen):
            self.seen.append(body)
        elif self.seen[number] != body:
            raise Broken(f"{host} shows {body!r} at {number}, others {self.seen[number]!r}")

    def _look_at_role(self, broker: BrokerProcess) -> None:
        state, broker_id = broker.state, broker.broker_id
        if broker_id:
            if self._ids.setdefault(broker.host, broker_id) != broker_id:
                raise Broken(f"{broker.host} had the id {self._ids[broker.host]}, now {broker_id}")
            if len(set(self._ids.values())) < len(self._ids):
                raise Broken(f"an id was given twice: {self._ids}")
        if state.role is Role.MASTER:
            epoch = state.epoch
            assert epoch is not None
            if self._masters.setdefault(epoch, broker.host) != broker.host:
                raise Broken(f"{broker.host} and {self._masters[epoch]}: masters of epoch {epoch}")
            elected = self._controllers.master_of(epoch)
            if elected != broker_id:
                raise Broken(f"{broker_id} is master of epoch {epoch}, elected was {elected}")

    def _look_at_members(self) -> None:
        """Every broker that may be elected has all that was promised."""
        self._members_looked_at = latest = self._controllers.latest
        if not self.promised:
            return
        by_id = {broker_id: host for host, broker_id in self._ids.items()}
        for member in latest.members:
            host = by_id.get(member)
            if host is None:
                continue
            copy = self._copies[host]
            if not copy.is_known or copy.checked >= len(self.promised):
                continue
            if copy.data[copy.checked : len(self.promised)] != self.promised[copy.checked :]:
                raise Broken(
                    f"{member} is in sync ({latest}) and its log up to {len(copy.data)} has not"
                    f" all of the {len(self.promised)} bytes that were acknowledged"
                )
            copy.checked = len(self.promised)

    # The end

    def come_together(self) -> str:
        """What is missing for all to be well; empty where nothing is."""
        states = [broker.state for broker in self._brokers if broker.is_able]
        masters = [state for state in states if state.role is Role.MASTER]
        if len(states) < len(self._brokers) or len(masters) != 1:
            return f"the roles are {[state.role.value for state in states]}"
        latest = self._controllers.latest
        if len(latest.members) < len(self._brokers) or latest.master is None:
            return f"in sync are {latest}"
        logs = {bytes(copy.data) for copy in self._copies.values()}
        if len(logs) > 1:
            return f"the logs end at {sorted(map(len, logs))}"
        shown = {copy.shown for copy in self._copies.values()}
        if shown != {len(self.seen)}:
            return f"readers see {shown} of {len(self.seen)} messages"
        return ""

    def ends_well(self) -> None:
        """All that was acknowledged is there once."""
        counts = {body: self.seen.count(body) for body in self.acknowledged}
        wrong = {body: count for body, count in counts.items() if count != 1}
        if wrong:
            raise Broken(f"of what was acknowledged there are {wrong}")
