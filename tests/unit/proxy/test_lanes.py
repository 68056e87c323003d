"""Which connection to brokers stands for which client of a proxy."""

from __future__ import annotations

import pytest

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.proxy.cluster import lanes as lanes_module
from rocketmq_tw.proxy.cluster.lanes import Departure, Lanes
from rocketmq_tw.proxy.memberships import Addressee, Membership, addressee_of
from rocketmq_tw.wire.bodies.clients import MAX_GROUPS_PER_PEER
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.asked import refused
from tests.support.proxy import FakeClient

CONSUMERS, PRODUCERS = Membership("g", True), Membership("g", False)
OTHERS = Membership("other", True)


def lane_of(lanes: Lanes, client: FakeClient) -> int | None:
    place = lanes.place(client)
    return None if place is None else place.lane


def enter(lanes: Lanes, client: FakeClient, memberships: list[Membership]) -> None:
    """Puts a client into groups, of which a broker is told."""
    lanes.enter(client, memberships)
    place = lanes.place(client)
    assert place is not None
    place.brokers.add("broker-a")


def groups_of(departure: Departure | None) -> set[Membership]:
    """The groups that brokers are to forget a client in."""
    return set() if departure is None else set(departure.memberships)


def test_clients_of_one_group_stand_on_lanes_of_their_own() -> None:
    lanes = Lanes(8)
    first, second, producer, other = map(FakeClient, "abcd")
    lanes.enter(first, [CONSUMERS])
    lanes.enter(second, [CONSUMERS])
    lanes.enter(producer, [PRODUCERS])
    lanes.enter(other, [OTHERS])
    assert [lane_of(lanes, client) for client in (first, second, producer, other)] == [0, 1, 0, 0]
    assert len(lanes) == 2
    assert lanes.find(1, Addressee(CONSUMERS, None)) is second
    assert lanes.find(0, Addressee(PRODUCERS, None)) is producer
    assert lanes.find(0, Addressee(None, "d")) is other
    assert lanes.find(1, Addressee(OTHERS, None)) is None
    assert lanes.find(7, Addressee(CONSUMERS, None)) is None


def test_a_lane_is_taken_again() -> None:
    lanes = Lanes(8)
    first, second, third = map(FakeClient, "abc")
    enter(lanes, first, [CONSUMERS])
    lanes.enter(second, [CONSUMERS])
    assert groups_of(lanes.remove(first)) == {CONSUMERS}
    assert lanes.remove(first) is None
    lanes.enter(third, [CONSUMERS])
    assert lane_of(lanes, third) == 0
    assert lanes.find(0, Addressee(CONSUMERS, "c")) is third
    # Not somebody else than the one that is meant.
    assert lanes.find(0, Addressee(CONSUMERS, "a")) is None


def test_a_client_that_enters_a_group_whose_lane_is_taken_moves() -> None:
    lanes = Lanes(8)
    first, second = map(FakeClient, "ab")
    lanes.enter(first, [CONSUMERS])
    lanes.enter(second, [OTHERS])
    assert lanes.enter(second, [OTHERS]) == []
    place = lanes.place(second)
    assert place is not None
    place.brokers.add("broker-a")
    former = lanes.enter(second, [CONSUMERS, OTHERS])
    assert former == [Departure("b", 0, [OTHERS], {"broker-a"})]
    assert lane_of(lanes, second) == 1
    assert lanes.find(1, Addressee(OTHERS, None)) is second
    assert lanes.find(0, Addressee(OTHERS, None)) is None


def test_what_a_client_does_not_tell_any_more_it_has_left() -> None:
    lanes = Lanes(8)
    client, second = map(FakeClient, "ab")
    enter(lanes, client, [CONSUMERS, PRODUCERS])
    (departure,) = lanes.enter(client, [CONSUMERS, OTHERS])
    assert groups_of(departure) == {PRODUCERS}
    place = lanes.place(client)
    assert place is not None and place.memberships == {CONSUMERS, OTHERS}
    lanes.enter(second, [PRODUCERS])
    assert lane_of(lanes, second) == 0


def test_a_broker_that_is_told_no_more_is_to_forget_the_client() -> None:
    lanes = Lanes(8)
    client = FakeClient("a")
    enter(lanes, client, [CONSUMERS])
    # Where not all brokers can be found out all of them stay.
    assert lanes.enter(client, [CONSUMERS]) == []
    assert lanes.enter(client, [CONSUMERS], ["broker-a", "broker-b"]) == []
    assert lanes.enter(client, [CONSUMERS], ["broker-b"]) == [
        Departure("a", 0, [CONSUMERS], {"broker-a"})
    ]
    assert not lanes.has_member(0, CONSUMERS, "broker-a")
    assert lanes.enter(client, [CONSUMERS], ["broker-b"]) == []
    enter(lanes, client, [CONSUMERS])
    assert lanes.has_member(0, CONSUMERS, "broker-a")


def test_memberships_do_not_pile_up() -> None:
    lanes = Lanes(8)
    client = FakeClient("a")
    for number in range(50):
        lanes.enter(client, [Membership(f"g{number}-{each}", False) for each in range(100)])
    place = lanes.place(client)
    assert place is not None and len(place.memberships) == 100


def test_another_client_of_the_same_id_is_asked_nothing_of_its_groups() -> None:
    lanes = Lanes(8)
    owner, thief = FakeClient("victim"), FakeClient("victim")
    lanes.enter(owner, [CONSUMERS])
    lanes.enter(thief, [OTHERS])
    assert lane_of(lanes, thief) == 1
    assert lanes.find(0, Addressee(CONSUMERS, "victim")) is owner
    assert lanes.find(0, Addressee(None, "victim")) is owner
    assert lanes.find(1, Addressee(CONSUMERS, "victim")) is None
    # Where no lane is left, the group tells them apart.
    lanes = Lanes(1)
    lanes.enter(owner, [CONSUMERS])
    lanes.enter(thief, [OTHERS])
    assert lanes.find(0, Addressee(CONSUMERS, "victim")) is None
    assert lanes.find(0, Addressee(CONSUMERS, None)) is owner


def test_a_client_that_changes_its_id_leaves_nothing_behind() -> None:
    lanes = Lanes(8)
    client = FakeClient("a")
    lanes.enter(client, [CONSUMERS])
    for number in range(3):
        client.client_id = str(number)
        lanes.enter(client, [CONSUMERS])
    assert lane_of(lanes, client) == 0
    assert lanes.find(0, Addressee(CONSUMERS, "2")) is client
    assert lanes.find(0, Addressee(CONSUMERS, "a")) is None
    client.client_id = "late"
    lanes.remove(client)
    assert lanes.find(0, Addressee(CONSUMERS, "2")) is None


def test_a_client_takes_nobody_else_out_of_a_group() -> None:
    lanes = Lanes(8)
    owner, thief = map(FakeClient, "ab")
    enter(lanes, owner, [CONSUMERS])
    enter(lanes, thief, [OTHERS])
    assert lanes.leave(thief, [CONSUMERS]) is None
    assert lanes.find(0, Addressee(CONSUMERS, "a")) is owner
    # Neither where it shares the last lane with others of the group.
    lanes = Lanes(1)
    enter(lanes, owner, [CONSUMERS])
    enter(lanes, thief, [CONSUMERS])
    assert lanes.leave(thief, [CONSUMERS]) is None
    assert lanes.remove(thief) is None
    assert lanes.find(0, Addressee(CONSUMERS, "a")) is owner


def test_a_client_of_many_groups_leaves_room_for_others() -> None:
    lanes = Lanes(3)
    early, greedy, victim = map(FakeClient, "abc")
    lanes.enter(early, [CONSUMERS])
    lanes.enter(greedy, [Membership(f"x{each}", False) for each in range(MAX_GROUPS_PER_PEER)])
    lanes.enter(victim, [PRODUCERS])
    assert [lane_of(lanes, client) for client in (early, greedy, victim)] == [0, 1, 0]
    second = FakeClient("d")
    lanes.enter(second, [Membership(f"y{each}", False) for each in range(MAX_GROUPS_PER_PEER)])
    assert lane_of(lanes, second) == 2
    third = FakeClient("e")
    with refused(ResponseCode.SYSTEM_BUSY) as caught:
        lanes.enter(third, [Membership(f"z{each}", False) for each in range(MAX_GROUPS_PER_PEER)])
    assert "maxConnectionsPerBroker" in caught.value.remark
    with refused(ResponseCode.SYSTEM_ERROR) as caught:
        lanes.enter(
            third, [Membership(f"z{each}", False) for each in range(MAX_GROUPS_PER_PEER + 1)]
        )
    assert "further instances" in caught.value.remark
    assert lanes.place(third) is None


def test_groups_of_all_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "MAX_MEMBERSHIPS", 3)
    lanes = Lanes(8)
    first, second = map(FakeClient, "ab")
    lanes.enter(first, [CONSUMERS, OTHERS])
    with refused(ResponseCode.SYSTEM_BUSY):
        lanes.enter(second, [CONSUMERS, OTHERS])
    lanes.enter(first, [CONSUMERS])
    lanes.enter(second, [CONSUMERS, OTHERS])
    with refused(ResponseCode.SYSTEM_BUSY):
        lanes.enter(first, [CONSUMERS, OTHERS])
    lanes.remove(second)
    lanes.enter(first, [CONSUMERS, OTHERS, PRODUCERS])


def test_a_client_that_left_a_group_makes_room() -> None:
    lanes = Lanes(8)
    first, second = map(FakeClient, "ab")
    lanes.enter(first, [CONSUMERS, OTHERS])
    lanes.leave(first, [CONSUMERS])
    lanes.enter(second, [CONSUMERS])
    assert lane_of(lanes, second) == 0
    assert lanes.find(0, Addressee(OTHERS, None)) is first


def test_beyond_the_last_lane_the_first_client_counts_until_it_leaves() -> None:
    lanes = Lanes(2)
    changed: list[Membership] = []
    lanes.unseen_changed.add(changed.append)
    clients = [FakeClient(str(number)) for number in range(4)]
    for _ in range(3):
        for client in clients:
            assert lanes.enter(client, [CONSUMERS]) == []
    assert [lane_of(lanes, client) for client in clients] == [0, 1, 1, 1]
    assert lanes.find(1, Addressee(CONSUMERS, None)) is clients[1]
    assert list(lanes.unseen(CONSUMERS)) == clients[2:]
    assert changed == [CONSUMERS] * 2
    # By its id each of them is found.
    assert lanes.find(1, Addressee(CONSUMERS, "2")) is clients[2]
    # The next one that tells of itself takes its place.
    lanes.remove(clients[1])
    assert list(lanes.unseen(CONSUMERS)) == clients[2:]
    lanes.enter(clients[3], [CONSUMERS])
    lanes.enter(clients[2], [CONSUMERS])
    assert lanes.find(1, Addressee(CONSUMERS, None)) is clients[3]
    assert list(lanes.unseen(CONSUMERS)) == [clients[2]]
    # One for which there is a lane again moves to it.
    lanes.remove(clients[0])
    lanes.enter(clients[2], [CONSUMERS])
    assert lane_of(lanes, clients[2]) == 0
    assert not lanes.unseen(CONSUMERS)
    for client in clients:
        lanes.remove(client)
    assert lanes._shares.total == sum(seen.total for seen in lanes._seen) == 0


def test_a_client_that_is_seen_in_one_group_and_not_in_another_stays_where_it_is() -> None:
    lanes = Lanes(1)
    first, both = map(FakeClient, "ab")
    enter(lanes, first, [CONSUMERS])
    enter(lanes, both, [CONSUMERS, OTHERS])
    for _ in range(3):
        assert lanes.enter(both, [CONSUMERS, OTHERS]) == []
    assert lanes.has_member(0, OTHERS, "broker-a")
    assert lanes.unseen_in(both) == {CONSUMERS}
    assert groups_of(lanes.leave(both, [CONSUMERS, OTHERS])) == {OTHERS}
    assert not lanes.unseen(CONSUMERS)


def test_whom_a_broker_asks() -> None:
    half = StoredMessage(
        topic="T",
        body=b"",
        queue_id=0,
        born_timestamp=0,
        born_host=("10.0.0.9", 1),
        store_timestamp=0,
        store_host=("10.0.0.2", 1),
        properties=b"PGROUP\x01g\x02",
    )
    check = RemotingCommand.request(RequestCode.CHECK_TRANSACTION_STATE, body=encode_record(half))
    assert addressee_of(check) == Addressee(PRODUCERS, None)
    info = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO)
    info.ext_fields = {"consumerGroup": "g", "clientId": "a"}
    assert addressee_of(info) == Addressee(CONSUMERS, "a")
    reset = RemotingCommand.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    reset.ext_fields = {"group": "g"}
    assert addressee_of(reset) == Addressee(CONSUMERS, None)
    reply = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    reply.ext_fields = {"properties": "REPLY_TO_CLIENT\x01a\x02"}
    assert addressee_of(reply) == Addressee(None, "a")


def client_at(host: str, client_id: str = "c") -> FakeClient:
    client = FakeClient(client_id)
    client.address = f"{host}:40000"
    return client


def topics_of(name: str, number: int = MAX_GROUPS_PER_PEER) -> list[Membership]:
    return [Membership(f"{name}{each}", False) for each in range(number)]


def test_a_host_that_has_most_gives_way_to_others() -> None:
    lanes = Lanes(4)
    greedy = [client_at("10.0.0.1", f"greedy{number}") for number in range(4)]
    for client in greedy[:3]:
        enter(lanes, client, topics_of("t"))
    enter(lanes, greedy[3], topics_of("t", MAX_GROUPS_PER_PEER - 100))
    small = client_at("10.0.0.1", "small")
    enter(lanes, small, topics_of("s", 100))
    newcomer, other = client_at("10.0.0.2"), client_at("10.0.0.3", "other")
    (departure,) = lanes.enter(newcomer, [CONSUMERS, PRODUCERS])
    assert departure.client_id == "greedy0" and departure.brokers == {"broker-a"}
    assert groups_of(departure) == set(topics_of("t"))
    assert lanes.place(greedy[0]) is None and lane_of(lanes, newcomer) == 0
    assert lanes.enter(other, topics_of("x", 10)) == []
    # It does not come back at the cost of those, nor of its own.
    with refused(ResponseCode.SYSTEM_BUSY):
        lanes.enter(greedy[0], topics_of("t"))
    assert lane_of(lanes, newcomer) == lane_of(lanes, other) == 0
    assert lane_of(lanes, small) == 3
    # Who gives way is who has most there.
    big = client_at("10.0.0.4", "big")
    (departure, *_) = lanes.enter(big, topics_of("y", MAX_GROUPS_PER_PEER - 11))
    assert departure.client_id == "greedy1"
    for client in (*greedy, small, newcomer, other, big):
        lanes.remove(client)
    assert lanes._shares.total == sum(seen.total for seen in lanes._seen) == 0


def test_clients_that_share_a_lane_give_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "MAX_MEMBERSHIPS", 50)
    lanes = Lanes(2)
    greedy = [client_at("10.0.0.1", f"greedy{number}") for number in range(5)]
    for client in greedy:
        enter(lanes, client, topics_of("t", 10))
    newcomer = client_at("10.0.0.2")
    (departure,) = lanes.enter(newcomer, [CONSUMERS])
    assert groups_of(departure) == set(topics_of("t", 10))
    assert lanes.place(newcomer) is not None
    with refused(ResponseCode.SYSTEM_BUSY):
        lanes.enter(newcomer, topics_of("n", 45))
    assert groups_of(lanes.remove(newcomer)) == set()
    for client in greedy:
        lanes.remove(client)
    assert lanes._shares.total == sum(seen.total for seen in lanes._seen) == 0
