"""The state on which all controllers of a group agree: the replicas of each group of brokers, its
master and its SyncStateSet.

The state follows from the events alone, and from each of them as in stock, since one log may feed
stock's controllers and ours.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rocketmq_tw.controller.core.events import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ControllerEvent,
    ElectMaster,
    UpdateBrokerAddress,
)
from rocketmq_tw.net.networks import is_same_host
from rocketmq_tw.structs import msgspec

#: The lowest id; 0 is what a master shows to clients.
FIRST_BROKER_ID = 1
#: More ids than any group has brokers: a larger one was never given in turn.
LAST_ID_IN_TURN = 1 << 31


class Replica(msgspec.Struct, frozen=True):
    """Where a broker was seen last, and the code that proves that an id is its own."""

    address: str | None
    register_code: str | None


class ReplicaTable(msgspec.Struct):
    """The brokers of one name by their ids."""

    cluster: str | None
    replicas: dict[int, Replica] = {}
    next_id: int = FIRST_BROKER_ID

    @property
    def free_id(self) -> int:
        """The next id that no broker has; one may have applied for an id before its turn.
        After all in sync were cleaned away the count begins anew; such a table has no first id,
        and its next one is behind all that it has."""
        free, highest = self.next_id, max(self.replicas, default=0)
        if FIRST_BROKER_ID not in self.replicas and highest < LAST_ID_IN_TURN:
            return max(free, highest + 1)
        while free in self.replicas:
            free += 1
        return free

    def address(self, broker_id: int | None) -> str | None:
        """Returns `host:port` of a broker; None where it is not known."""
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    def add(self, broker_id: int, replica: Replica) -> None:
        """Gives a broker its id."""
        self.replicas[broker_id] = replica
        # Whatever id was applied for: as in stock, which counts.
        self.next_id += 1


class SyncState(msgspec.Struct):
    """The master and the SyncStateSet of one group, and how often each has changed. `former` are
    the members before the present master was elected, while it has not changed them. `moved` are
    members that somebody registered at another host since they came into the set, each with its
    address before that: no master has said since that they are in sync there."""

    cluster: str | None
    master: int | None = None
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    epoch: int = 0
    former: frozenset[int] = frozenset()
    moved: dict[int, str] = {}

    def set_master(self, broker_id: int | None) -> None:
        """Makes a broker the master, or none, in a new master epoch."""
        self.master = broker_id
        self.master_epoch += 1

    def set_members(self, members: frozenset[int]) -> None:
        """Makes these the SyncStateSet, in a new epoch of the set."""
        self.moved = {key: at for key, at in self.moved.items() if key in members & self.members}
        self.members = members
        self.epoch += 1
        self.former = frozenset()

    def note_move(self, broker_id: int, before: str, after: str) -> None:
        """Notes that a member is registered at another address; not where that is of the host
        that it was in sync at."""
        home = self.moved.get(broker_id, before)
        if is_same_host(home, after):
            self.moved.pop(broker_id, None)
        else:
            self.moved[broker_id] = home


class Group(NamedTuple):
    """The brokers of one name."""

    name: str
    table: ReplicaTable
    sync: SyncState

    @property
    def cluster(self) -> str:
        """The cluster that the brokers belong to; empty where stock's log names none."""
        return self.table.cluster or ""


class ControllerState(msgspec.Struct):
    """Two tables by broker name. After a cleaning one of them may lack a name that the other one
    has; such a group counts as unknown but for its ids."""

    replica_tables: dict[str, ReplicaTable] = {}
    sync_states: dict[str, SyncState] = {}

    def group(self, name: str) -> Group | None:
        """Returns a group that is in both tables."""
        table, sync = self.replica_tables.get(name), self.sync_states.get(name)
        return None if table is None or sync is None else Group(name, table, sync)

    def groups(self) -> Iterator[Group]:
        """Yields all groups that are in both tables."""
        for name in self.sync_states:
            group = self.group(name)
            if group is not None:
                yield group

    @property
    def replica_count(self) -> int:
        """The number of brokers in all groups."""
        return sum(len(table.replicas) for table in self.replica_tables.values())

    def apply(self, event: ControllerEvent) -> None:
        """Changes the state as `event` says; one that no longer fits changes nothing."""
        match event:
            case ApplyBrokerId():
                self._apply_broker_id(event)
            case ElectMaster():
                self._elect_master(event)
            case AlterSyncStateSet():
                group = self.group(event.broker_name)
                if group is not None:
                    group.sync.set_members(event.new_sync_state_set)
            case UpdateBrokerAddress():
                self._update_address(event)
            case CleanBrokerData():
                self._clean(event)

    def _apply_broker_id(self, event: ApplyBrokerId) -> None:
        replica = Replica(event.broker_address, event.register_check_code)
        group = self.group(event.broker_name)
        if group is None:
            table = ReplicaTable(event.cluster_name, {})
            self.replica_tables[event.broker_name] = table
            self.sync_states[event.broker_name] = SyncState(event.cluster_name)
            table.add(event.new_broker_id, replica)
        elif event.new_broker_id not in group.table.replicas:
            group.table.add(event.new_broker_id, replica)

    def _elect_master(self, event: ElectMaster) -> None:
        group = self.group(event.broker_name)
        if group is None:
            return
        master = event.new_master_broker_id
        if not event.new_master_elected:
            # The set stays: it says who may be the next master.
            group.sync.set_master(None)
        elif master is not None:
            former = group.sync.members
            group.sync.set_master(master)
            group.sync.set_members(frozenset((master,)))
            group.sync.moved = {}
            group.sync.former = former

    def _update_address(self, event: UpdateBrokerAddress) -> None:
        table = self.replica_tables.get(event.broker_name)
        known = None if table is None else table.replicas.get(event.broker_id)
        if table is None or known is None:
            return
        table.replicas[event.broker_id] = Replica(event.broker_address, known.register_code)
        sync = self.sync_states.get(event.broker_name)
        if sync is not None and event.broker_id in sync.members:
            sync.note_move(event.broker_id, known.address or "", event.broker_address or "")

    def _clean(self, event: CleanBrokerData) -> None:
        name, ids = event.broker_name, event.broker_id_set_to_clean
        if not ids:
            self.replica_tables.pop(name, None)
            self.sync_states.pop(name, None)
            return
        group = self.group(name)
        if group is None:
            return
        for broker_id in ids:
            group.table.replicas.pop(broker_id, None)
        group.sync.members -= ids
        group.sync.former -= ids
        group.sync.moved = {key: at for key, at in group.sync.moved.items() if key not in ids}
        if not group.table.replicas:
            del self.replica_tables[name]
        if not group.sync.members:
            del self.sync_states[name]
