"""Registered brokers and the topics that they have. Pure: callers pass the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv.broker_ids import BrokerIds, BrokerPlace, Holder
from rocketmq_tw.namesrv.brokers import (
    BrokerKey,
    LiveBroker,
    MasterAddresses,
    MinIdChange,
    Registration,
    smallest_id,
)
from rocketmq_tw.namesrv.living_brokers import LivingBrokers
from rocketmq_tw.namesrv.room import Room
from rocketmq_tw.namesrv.topic_queues import QUEUE_BYTES, TopicQueues, size_of_topics
from rocketmq_tw.runtime.slices import all_steps
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.route import (
    MASTER_ID,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)
from rocketmq_tw.wire.bodies.topics import (
    TopicConfig,
)
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import READ, WRITE

#: Topics, or mappings, that one step takes in.
_STEP = 500
#: Brokers that one step puts into an answer.
_FEW_BROKERS = 100


class RouteTable:
    """Brokers by cluster, name and id; topics by broker name.

    `in_slices` is given steps that go through all topics of a broker, between which anything may
    change; at once is right too.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        on_min_id_change: Callable[[MinIdChange], None] = lambda change: None,
        in_slices: Callable[[Iterator[None]], object] = all_steps,
    ) -> None:
        self._in_slices = in_slices
        self._config = config
        self._on_min_id_change = on_min_id_change
        self._clusters: dict[str, set[str]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._living = LivingBrokers()
        self._ids = BrokerIds(self._living)
        #: Broker name -> clusters in which a broker of that name lives.
        self._clusters_of: dict[str, set[str]] = {}
        #: Names whose topics' permissions were changed, until a broker of that name registers next.
        self._overruled: set[str] = set()
        self.queues = TopicQueues()
        self._room = Room(config, self._living, self.queues)

    # Registrations and heartbeats ---------------------------------------------------------------

    def register(self, new: Registration, now_ms: int) -> tuple[MasterAddresses, Iterator[None]]:
        """Takes in a broker, or what it says anew; its topics with the steps, which end early where
        it is gone or another one speaks for its name. Raises `RequestError` where it cannot.

        As in stock a registration is passed over, with success, where another address has its
        id with topics of a newer controller epoch.
        """
        group = self._brokers.get(new.broker_name)
        addresses = {} if group is None else group.broker_addrs
        holder = self._living.get(BrokerKey(new.cluster, addresses.get(new.broker_id, "")))
        if holder is not None and self._ids.is_outdated(new, holder, now_ms):
            # With its place under another id: nobody else would ever take that back.
            former = self._living.get(new.key)
            if former is not None:
                self.forget(former)
            return MasterAddresses(), iter(())
        if new.broker_id not in addresses and len(new.topics.topic_config_table) == 1:
            # A broker sends one topic alone only when it has registered before.
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"broker {new.broker_name} {new.broker_id} sends one topic and is not registered:"
                " register with all topics first",
            )
        self._room.check(new, addresses)
        former = self._living.get(new.key)
        if former is not None and former.broker_name != new.broker_name:
            # An address has one name; nobody else would ever take the former one back.
            self.unregister(new.cluster, new.address, former.broker_name)
        if group is None:
            group = self._brokers[new.broker_name] = BrokerData(
                cluster=new.cluster, broker_name=new.broker_name
            )
            addresses = group.broker_addrs
        self._clusters.setdefault(new.cluster, set()).add(new.broker_name)
        self._clusters_of.setdefault(new.broker_name, set()).add(new.cluster)
        if new.broker_id >= MASTER_ID or not addresses:
            group.enable_acting_master = bool(new.acting_master)
            group.zone_name = new.zone
        smallest_before = smallest_id(addresses)
        # A slave that became master keeps its address: one address has one id.
        for broker_id, address in list(addresses.items()):
            if address == new.address and broker_id != new.broker_id:
                self._ids.give_up(new.broker_name, broker_id, addresses)
        is_first = not addresses.get(new.broker_id)
        self._ids.take(new, addresses, self._clusters_of[new.broker_name])
        is_changed = (
            is_first
            or new.broker_name in self._overruled
            or self.data_version(*new.key) != new.topics.data_version
        )
        self._forget_live(new.key)
        live = LiveBroker(
            key=new.key,
            broker_name=new.broker_name,
            last_update=now_ms,
            heartbeat_timeout=new.heartbeat_timeout,
            data_version=new.topics.data_version,
            ha_address=new.ha_address,
            filter_servers=new.filter_servers,
            owner=new.owner,
            host=new.host,
        )
        self._living.put(live)
        if smallest_before is not None and MASTER_ID <= new.broker_id < smallest_before:
            self._on_min_id_change(
                MinIdChange(new.broker_name, dict(addresses), ha_address=new.ha_address)
            )
        return self._master_of(new, addresses), self._take_topics(new, addresses, live, is_changed)

    def unregister(self, cluster: str, address: str, broker_name: str) -> None:
        """Forgets the broker, and the topics that no other broker of its name has."""
        gone = self._forget_live(BrokerKey(cluster, address))
        group = self._brokers.get(broker_name)
        if group is None:
            return
        addresses = group.broker_addrs
        smallest_before = smallest_id(addresses)
        for broker_id in [known for known, its in addresses.items() if its == address]:
            self._ids.give_up(broker_name, broker_id, addresses, gone)
        if not addresses:
            del self._brokers[broker_name]
            self._forget_name(broker_name)
            return
        if not self._living.has(broker_name, cluster):
            self._leave_cluster(broker_name, cluster)
        smallest = smallest_id(addresses)
        if group.enable_acting_master and smallest != MASTER_ID:
            self._in_slices(self._close_for_writes(broker_name))
        if group.enable_acting_master and smallest not in (None, smallest_before):
            self._on_min_id_change(
                MinIdChange(broker_name, dict(addresses), offline_address=address)
            )

    def lose(self, owner: object) -> Iterator[LiveBroker]:
        """Forgets the brokers of a connection that is gone, and yields each. One that registers
        anew meanwhile stays."""
        return filter(self.forget, self._living.of(owner))

    def expire(self, now_ms: int) -> Iterator[LiveBroker]:
        """Forgets the brokers that have been silent for too long, and yields each. One that is
        heard of meanwhile stays."""
        silent = self._living.silent(now_ms)
        return (live for live in silent if live.is_silent(now_ms) and self.forget(live))

    def forget(self, live: LiveBroker) -> bool:
        """Forgets a broker where it is registered as it was; returns whether it was."""
        if self._living.get(live.key) is not live:
            return False
        self.unregister(live.key.cluster, live.key.address, live.broker_name)
        return True

    def heartbeat(self, cluster: str, address: str, now_ms: int) -> None:
        """Notes a sign of life; a broker that is not registered changes nothing by it."""
        live = self._living.get(BrokerKey(cluster, address))
        if live is not None:
            live.last_update = now_ms

    def living(self, cluster: str, address: str) -> LiveBroker | None:
        """Returns the broker that is registered at this address; None where there is none."""
        return self._living.get(BrokerKey(cluster, address))

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        """Returns the version of the topics that a broker registered; None: it has not."""
        live = self._living.get(BrokerKey(cluster, address))
        return None if live is None else live.data_version

    def holder(self, new: Registration, now_ms: int) -> Holder | None:
        """Returns the other living broker that has the name and id of `new`; None where there is
        none, or where its controller epoch is newer, which `register` judges."""
        group = self._brokers.get(new.broker_name)
        if group is None:
            return None
        clusters = self._clusters_of[new.broker_name]
        return self._ids.holder(new, group.broker_addrs, clusters, now_ms)

    def contested(self, member: BrokerPlace, now_ms: int) -> LiveBroker | None:
        """Returns the living broker whose id a member of its group changes to and may not have;
        None where there is none. See `BrokerIds.contested`."""
        group = self._brokers.get(member.broker_name)
        if group is None:
            return None
        clusters = self._clusters_of[member.broker_name]
        return self._ids.contested(member, group.broker_addrs, clusters, now_ms)

    def make_room(self, new: Registration) -> LiveBroker | None:
        """Forgets, and returns, the broker that gives way to `new` where there is no room for it;
        None where none does. See `Room.giving_way`."""
        group = self._brokers.get(new.broker_name)
        addresses = {} if group is None else group.broker_addrs
        clusters = self._clusters_of.get(new.broker_name, ())
        live = self._room.giving_way(new, addresses, clusters)
        if live is not None:
            self.forget(live)
        return live

    def at_address(self, new: Registration, now_ms: int) -> LiveBroker | None:
        """Returns what is registered at the address of `new` and alive, in its cluster or under its
        name; None where nothing is."""
        clusters = [new.cluster, *self._clusters_of.get(new.broker_name, ())]
        return self._living.living_at(new.address, clusters, now_ms)

    @staticmethod
    def _speaks_for_its_name(new: Registration, addresses: dict[int, str]) -> bool:
        """Returns whether this broker's topics count for its name: a master's do, or a slave's that
        acts as master and has the smallest id."""
        if new.broker_id == MASTER_ID:
            return True
        return new.acting_master is not None and new.broker_id == smallest_id(addresses)

    def _master_of(self, new: Registration, addresses: dict[int, str]) -> MasterAddresses:
        master = addresses.get(MASTER_ID)
        if new.broker_id == MASTER_ID or master is None:
            return MasterAddresses()
        live = self._living.get(BrokerKey(new.cluster, master))
        return MasterAddresses() if live is None else MasterAddresses(master, live.ha_address)

    def _forget_live(self, key: BrokerKey) -> LiveBroker | None:
        live = self._living.remove(key)
        if live is not None:
            self._ids.forget_displaced(live)
        return live

    def _forget_name(self, broker_name: str) -> None:
        self._overruled.discard(broker_name)
        for cluster in list(self._clusters_of[broker_name]):
            self._leave_cluster(broker_name, cluster)
        del self._clusters_of[broker_name]
        self._in_slices(self.queues.remove_broker(broker_name))

    def _leave_cluster(self, broker_name: str, cluster: str) -> None:
        self._clusters_of[broker_name].discard(cluster)
        names = self._clusters.get(cluster, set())
        names.discard(broker_name)
        if not names:
            self._clusters.pop(cluster, None)

    # Topics ----------------------------------------------------------------------------------

    def register_topic(self, topic: str, queues: list[QueueData]) -> bool:
        """Adds a topic to brokers; False, and nothing is added, where one is not registered."""
        if not queues or any(queue.broker_name not in self._brokers for queue in queues):
            return False
        self._room.check_topics(len(queues), len(queues) * QUEUE_BYTES + size_of_topics([topic]))
        for queue in queues:
            self.queues.put(topic, queue)
        return True

    def delete_topic(self, topic: str, cluster: str | None = None) -> int:
        """Forgets a topic, of one cluster's brokers or of all; returns how many had it."""
        holders = set(self.queues.of_topic(topic))
        if cluster:
            holders &= self._clusters.get(cluster, set())
        for name in holders:
            self.queues.remove(topic, name)
        return len(holders)

    def set_writable(
        self,
        broker_name: str,
        writable: bool,
        changed: dict[tuple[int, int], int] | None = None,
    ) -> tuple[int, Iterator[None]]:
        """Takes the write permission of all topics of a broker, or gives them read and write, with
        the steps; how many topics those are. `changed`: see `TopicQueues.change_permission`."""
        change = _give_read_and_write if writable else _take_write
        steps = self.queues.change_permission(broker_name, change, changed)
        return self.queues.count_of(broker_name), steps

    def _close_for_writes(self, broker_name: str) -> Iterator[None]:
        """Takes the write permission of all topics of a group without a master; ends early where
        the master is back, with its topics' own permissions."""
        for _ in self.set_writable(broker_name, False)[1]:
            yield
            group = self._brokers.get(broker_name)
            if group is None or MASTER_ID in group.broker_addrs:
                return

    def overrule(self, broker_name: str) -> None:
        """Makes the next registration of a broker of this name count as changed, so that its topics
        have its own permissions again."""
        if broker_name in self._brokers:
            self._overruled.add(broker_name)

    def is_overruled(self, cluster: str, address: str) -> bool:
        """Returns whether the topics of a broker have other permissions than it said last."""
        live = self._living.get(BrokerKey(cluster, address))
        return live is not None and live.broker_name in self._overruled

    def collect_route(self, topic: str, route: TopicRouteData) -> Iterator[None]:
        """Adds the topic's brokers and queues to `route`, unordered; nothing where there are none.
        The caller may change the brokers, not the queues, which the table shares."""
        queues = dict(self.queues.of_topic(topic))
        found: list[BrokerData] = []
        for number, name in enumerate(queues):
            group = self._brokers.get(name)
            if group is not None:
                broker = self._copy(group)
                found.append(broker)
                self._add_filter_servers(broker, route.filter_server_table)
            if number % _FEW_BROKERS == _FEW_BROKERS - 1:
                yield
        route.broker_datas = found
        route.queue_datas = [queues[broker.broker_name] for broker in found]
        mappings = self.queues.mappings(topic)
        route.topic_queue_mapping_by_broker = None if mappings is None else dict(mappings)

    def _add_filter_servers(self, broker: BrokerData, servers: dict[str, list[str]]) -> None:
        for address in broker.broker_addrs.values():
            live = self._living.get(BrokerKey(broker.cluster or "", address))
            if live is not None and live.filter_servers:
                servers[address] = list(live.filter_servers)

    def _take_topics(
        self, new: Registration, addresses: dict[int, str], live: LiveBroker, is_changed: bool
    ) -> Iterator[None]:
        if not self._speaks_for_its_name(new, addresses):
            return
        self._overruled.discard(new.broker_name)
        table = new.topics.topic_config_table
        mappings = new.topics.topic_queue_mapping_info_map or {}
        name, read_only = new.broker_name, new.broker_id != MASTER_ID and bool(new.acting_master)
        gone: Iterable[str] = ()
        if self._config.delete_topic_with_broker_registration and not mappings:
            gone = self.queues.of_broker(name) - table.keys()
        for number, topic in enumerate(chain(gone, table)):
            config = table.get(topic)
            if config is None:
                self.queues.remove(topic, name)
            elif is_changed or not self.queues.has(topic, name):
                self.queues.put(topic, _queues_of(name, config, read_only))
            if number % _STEP == _STEP - 1:
                yield
                if not self._still_speaks(new, addresses, live):
                    return
        for number, (topic, info) in enumerate(mappings.items() if is_changed else ()):
            if info.bname in (None, name):
                self.queues.put_mapping(topic, name, info)
            if number % _STEP == _STEP - 1:
                yield
                if not self._still_speaks(new, addresses, live):
                    return

    def _still_speaks(self, new: Registration, addresses: dict[int, str], live: LiveBroker) -> bool:
        """Returns whether the broker that registered is the one that has its place, and speaks for
        its name."""
        return (
            self._living.get(new.key) is live
            and addresses.get(new.broker_id) == new.address
            and self._speaks_for_its_name(new, addresses)
        )

    @staticmethod
    def _copy(broker: BrokerData) -> BrokerData:
        """Returns a copy, with its ids in order, that a reader of the route may change."""
        return BrokerData(
            cluster=broker.cluster,
            broker_name=broker.broker_name,
            broker_addrs=dict(sorted(broker.broker_addrs.items())),
            zone_name=broker.zone_name,
            enable_acting_master=broker.enable_acting_master,
        )

    # Reading ---------------------------------------------------------------------------

    def collect_cluster_info(self, info: ClusterInfo) -> Iterator[None]:
        """Adds all brokers and clusters to `info`, in no order."""
        for number, name in enumerate(list(self._brokers)):
            group = self._brokers.get(name)
            if group is not None:
                info.broker_addr_table[name] = self._copy(group)
            if number % _FEW_BROKERS == _FEW_BROKERS - 1:
                yield
        for number, cluster in enumerate(list(self._clusters)):
            names = self._clusters.get(cluster, ())
            known = [name for name in names if name in info.broker_addr_table]
            if known:
                info.cluster_addr_table[cluster] = known
            if number % _FEW_BROKERS == _FEW_BROKERS - 1:
                yield

    def members(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """Returns the brokers of one name; none where the name is unknown."""
        group = self._brokers.get(broker_name)
        return BrokerMemberGroup(
            cluster=cluster,
            broker_name=broker_name,
            broker_addrs={} if group is None else self._copy(group).broker_addrs,
        )

    def names_in(self, cluster: str) -> frozenset[str]:
        """Returns the broker names that a cluster has."""
        return frozenset(self._clusters.get(cluster, ()))

    def names(self) -> set[str]:
        """Returns the names of clusters and brokers, which are topics too."""
        return {*self._clusters, *self._brokers}

    def broker_names(self) -> list[str]:
        """Returns the names of brokers, in the order in which they came."""
        return list(self._brokers)

    def address_of(self, broker_name: str) -> str | None:
        """Returns the address with the smallest id of a name; None where the name is unknown."""
        group = self._brokers.get(broker_name)
        smallest = None if group is None else smallest_id(group.broker_addrs)
        return None if group is None or smallest is None else group.broker_addrs[smallest]


def _give_read_and_write(_: int) -> int:
    return READ | WRITE


def _take_write(perm: int) -> int:
    return perm & ~WRITE


def _queues_of(broker_name: str, config: TopicConfig, read_only: bool) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm & ~WRITE if read_only else config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )
