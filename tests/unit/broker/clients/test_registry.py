from collections.abc import Sequence

import pytest

from rocketmq_tw.broker.clients import registry as clients
from rocketmq_tw.broker.clients.member_notices import MemberNotices
from rocketmq_tw.broker.clients.registry import Client, ClientRegistry
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.runtime.slices import all_steps
from rocketmq_tw.wire.bodies.clients import MAX_GROUPS_PER_PEER, ConsumerData, SubscriptionData
from rocketmq_tw.wire.errors import RequestError
from tests.support.heartbeats import push_consumer
from tests.support.network import FakePeer


class World:
    """A registry with a clock of its own, and clients of it."""

    def __init__(self, **config: bool) -> None:
        self.now = 1_000
        self.time_of_day = 0
        self.registry = ClientRegistry(
            BrokerConfig(**config),  # type: ignore[arg-type]
            lambda: self.time_of_day + self.now,
            lambda: self.now,
            MemberNotices(all_steps).changed,
        )

    def consume(
        self,
        client: Client,
        topics: Sequence[str] = ("T",),
        group: str = "G",
        model: str = "CLUSTERING",
        notify_changes: bool = True,
        fingerprint: int = 0,
        without_sub: bool = False,
        version: int = 1,
    ) -> bool:
        wanted = [
            SubscriptionData(topic=topic, sub_string="*", sub_version=version) for topic in topics
        ]
        data = push_consumer(group, *wanted, message_model=model)
        return self.registry.register_consumer(
            client,
            data,
            notify_changes=notify_changes,
            fingerprint=fingerprint,
            without_sub=without_sub,
        )


def make_client(name: str) -> Client:
    return Client(FakePeer(), name, "JAVA", 479)


def notices(client: Client) -> list[str]:
    """The groups of the change notices since the last call."""
    sent = [command.ext_fields["consumerGroup"] for command in client.peer.oneways]
    assert all(command.code == 40 for command in client.peer.oneways)
    client.peer.oneways.clear()
    return sent


def subscribers(world: World, topic: str) -> set[str]:
    found: set[str] = set()
    for _ in world.registry.add_subscribers(topic, found):
        pass
    return found


def test_members_are_told_of_a_newcomer() -> None:
    world, first, second = World(), make_client("c1"), make_client("c2")
    world.consume(first)
    notices(first)
    world.consume(second)
    assert notices(first) == ["G"]
    assert notices(second) == ["G"]
    group = world.registry.consumer_group("G")
    assert group is not None
    assert group.client_ids() == ["c1", "c2"]
    assert group.find("c2") is second


def test_a_heartbeat_that_changes_nothing_tells_nobody() -> None:
    world, client = World(), make_client("c1")
    world.consume(client)
    notices(client)
    world.consume(client)
    assert notices(client) == []


def test_a_changed_subscription_is_told_and_kept() -> None:
    world, client = World(), make_client("c1")
    world.consume(client, ["T"])
    notices(client)
    world.consume(client, ["T", "U"])
    assert notices(client) == ["G"]
    assert world.registry.subscription("G", "U") is not None
    world.consume(client, ["U"])
    assert world.registry.subscription("G", "T") is None
    assert subscribers(world, "U") == {"G"}


def test_an_older_subscription_does_not_replace_a_newer_one() -> None:
    world, client = World(), make_client("c1")
    world.consume(client, version=5)
    world.consume(client, version=3)
    found = world.registry.subscription("G", "T")
    assert found is not None
    assert found.sub_version == 5


def test_all_reads_of_a_subscription_share_its_tags() -> None:
    world, client = World(), make_client("c1")

    def subscribe(codes: list[int], version: int) -> None:
        wanted = SubscriptionData(topic="T", sub_string="many", code_set=codes, sub_version=version)
        data = ConsumerData(group_name="G", subscription_data_set=[wanted])
        world.registry.register_consumer(
            client, data, notify_changes=False, fingerprint=0, without_sub=False
        )

    subscribe(list(range(1000)), 1)
    group = world.registry.consumer_group("G")
    assert group is not None
    first = group.wanted_tags("T")
    assert first is not None and first(999) and not first(1000)
    subscribe(list(range(2000)), 1)
    assert group.wanted_tags("T") is first, "the version did not change"
    subscribe(list(range(2000)), 2)
    changed = group.wanted_tags("T")
    assert changed is not None and changed(1999)


def test_members_are_told_of_a_leaver() -> None:
    world, first, second = World(), make_client("c1"), make_client("c2")
    world.consume(first)
    world.consume(second)
    notices(first)
    world.registry.unregister_consumer("G", second.peer)
    assert notices(first) == ["G"]
    world.registry.unregister_consumer("G", first.peer)
    assert world.registry.consumer_group("G") is None


def test_a_lost_connection_leaves_all_its_groups() -> None:
    world, first, second = World(), make_client("c1"), make_client("c2")
    world.consume(first)
    world.consume(second)
    world.consume(second, group="H")
    world.registry.register_producer("P", second)
    notices(first)
    second.peer.lose()
    assert notices(first) == ["G"]
    assert world.registry.consumer_group("H") is None
    assert world.registry.producers("P") == []


def test_setting_the_time_of_day_makes_nobody_silent() -> None:
    world = World()
    client = make_client("a")
    world.consume(client)
    world.registry.register_producer("P", client)
    world.time_of_day = 3_600_000
    for _ in world.registry.expire():
        pass
    assert client.peer.connected
    assert world.registry.producers("P")[0].last_update_ms == world.now


def test_a_silent_client_is_closed() -> None:
    world, silent, alive = World(), make_client("c1"), make_client("c2")
    world.consume(silent)
    world.consume(alive)
    world.now += 100_000
    world.consume(alive)
    world.now += 20_001
    for _ in world.registry.expire():
        pass
    assert silent.peer.closed is not None
    assert alive.peer.closed is None
    group = world.registry.consumer_group("G")
    assert group is not None
    assert group.client_ids() == ["c2"]


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"notify_consumer_ids_changed_enable": False}, {}),
        ({}, {"model": "BROADCASTING"}),
        ({}, {"notify_changes": False}),
    ],
)
def test_who_needs_no_notice_gets_none(config: dict[str, bool], kind: dict[str, object]) -> None:
    world, first, second = World(**config), make_client("c1"), make_client("c2")
    world.consume(first, **kind)  # type: ignore[arg-type]
    world.consume(second, **kind)  # type: ignore[arg-type]
    second.peer.lose()
    assert notices(first) == []


def test_a_heartbeat_without_subscriptions_keeps_them() -> None:
    world, client = World(), make_client("c1")
    assert not world.consume(client, fingerprint=7)
    assert not world.consume(client, [], fingerprint=7, without_sub=True)
    assert world.registry.subscription("G", "T") is not None


def test_subscriptions_are_asked_for_when_they_are_not_known() -> None:
    world, first, second = World(), make_client("c1"), make_client("c2")
    assert world.consume(first, [], fingerprint=7, without_sub=True)
    world.consume(first, fingerprint=7)
    assert world.consume(second, fingerprint=8)


def test_one_connection_cannot_fill_the_memory_with_groups() -> None:
    world, client = World(), make_client("p1")
    for number in range(MAX_GROUPS_PER_PEER):
        world.registry.register_producer(f"P{number}", client)
    with pytest.raises(RequestError):
        world.registry.register_producer("one-more", client)
    world.registry.register_producer("P0", client)


def test_what_all_groups_subscribe_to_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_SUBSCRIPTION_BYTES", 2_000)
    world = World()
    first, second = make_client("first"), make_client("second")
    world.consume(first, ("A", "B"), group="G1")
    world.consume(first, ("A", "B"), group="G1")
    world.consume(second, ("A",), group="G2")
    with pytest.raises(RequestError, match="subscribe to less"):
        world.consume(second, ("A", "B"), group="G3")
    assert world.registry.consumer_group("G3") is None
    with pytest.raises(RequestError, match="subscribe to less"):
        world.consume(second, ("A", "B"), group="G2")
    assert subscribers(world, "B") == {"G1"}
    first.peer.lose()
    world.consume(second, ("A", "B", "C"), group="G2")
    world.registry.unregister_consumer("G2", second.peer)
    assert world.registry._size == 0
