"""Whatever brokers register and however they leave: who has a place in a group is alive, and what
is kept of those that are gone goes with them."""

from __future__ import annotations

from random import Random

import pytest

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.namesrv import room
from rocketmq_tw.namesrv.brokers import BrokerKey, Registration
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.errors import RequestError
from tests.support.tables import tables_of


class Life:
    """Brokers of two clusters and two names come, change and go."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.table = RouteTable(NamesrvConfig())
        self.owners = [object() for _ in range(6)]
        self.now = 0

    def step(self) -> None:
        chance, table = self.chance, self.table
        self.now += chance.choice([1, 100, 5_000, 60_000])
        cluster, name = chance.choice("CD"), chance.choice("ab")
        address = f"10.0.0.{chance.randrange(5)}:1"
        action = chance.random()
        if action < 0.6:
            self.register(cluster, name, address)
        elif action < 0.7:
            live = table.living(cluster, address)
            if live is not None:
                table.unregister(cluster, address, live.broker_name)
        elif action < 0.8:
            list(table.lose(chance.choice(self.owners)))
        elif action < 0.9:
            list(table.expire(self.now))
        elif len(table._living):
            table.forget(chance.choice(list(table._living._by_key.values())))

    def register(self, cluster: str, name: str, address: str) -> None:
        chance, owner = self.chance, self.chance.randrange(len(self.owners))
        topics = {topic: TopicConfig(topic_name=topic) for topic in "TUV"[: chance.randrange(4)]}
        version = DataVersion(
            state_version=chance.choice([0, 0, 1, 2, 3, 150]), counter=chance.randrange(3)
        )
        new = Registration(
            cluster=cluster,
            broker_name=name,
            broker_id=chance.randrange(-1, 4),
            address=address,
            owner=self.owners[owner],
            host=f"10.0.0.{owner // 2}",
            acting_master=chance.choice([None, False, True]),
            heartbeat_timeout=chance.choice([1_000, 120_000]),
            topics=TopicConfigTable(topic_config_table=topics, data_version=version),
        )
        holder = self.table.holder(new, self.now)
        if holder is not None and not holder.gives_way:
            return
        self.table.make_room(new)
        try:
            _, steps = self.table.register(new, self.now)
        except RequestError:
            return
        for _ in steps:
            pass

    def check(self) -> None:
        table = self.table
        for name, group in table._brokers.items():
            for address in group.broker_addrs.values():
                known = [
                    table._living.get(BrokerKey(cluster, address))
                    for cluster in table._clusters_of[name]
                ]
                assert any(live and live.broker_name == name for live in known), (name, address)
        for name, clusters in table._clusters_of.items():
            assert all(table._living.has(name, cluster) for cluster in clusters)
            assert all(name in table.names_in(cluster) for cluster in clusters)
        for (name, broker_id), key in table._ids._displaced.items():
            live = table._living.get(key)
            assert live is not None
            assert (live.broker_name, live.displaced_from) == (name, broker_id)


@pytest.mark.parametrize("seed", range(60))
def test_who_has_a_place_is_alive(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_BROKERS_OF_NAME", 3)
    monkeypatch.setattr(room, "MAX_BROKERS", 7)
    life = Life(seed)
    for _ in range(300):
        life.step()
        life.check()
    list(life.table.expire(life.now + 1_000_000))
    rooms = ("RouteTable.", "LivingBrokers.", "BrokerIds.")
    kept = {name for name, count in tables_of(life.table).items() if count}
    assert not {name for name in kept if name.startswith(rooms)}
