"""Members of a group hear of the others that come and go: once for all changes of a turn."""

from __future__ import annotations

import json
from collections.abc import Iterator

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.clients.member_notices import MemberNotices
from rocketmq_tw.broker.clients.registry import Client
from rocketmq_tw.wire.bodies.clients import ConsumerData, SubscriptionData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.clients import GetConsumerListByGroupRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer

NOTICE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


def notices(peers: list[FakePeer]) -> list[int]:
    """How many notices each peer got since it was asked last."""
    found = []
    for peer in peers:
        found.append(sum(command.code == NOTICE for command in peer.oneways))
        peer.oneways.clear()
    return found


def join(broker: BrokerInMemory, peer: FakePeer, client_id: str, group: str = "G") -> None:
    data = ConsumerData(
        group_name=group,
        message_model="CLUSTERING",
        subscription_data_set=[SubscriptionData(topic="Topic")],
    )
    client = Client(peer, client_id, "JAVA", 479)
    broker.clients.register_consumer(client, data, notify_changes=True)


def members(broker: BrokerInMemory, count: int, group: str = "G") -> list[FakePeer]:
    peers = [FakePeer(f"10.0.0.1:{1024 + number}") for number in range(count)]
    for number, peer in enumerate(peers):
        join(broker, peer, f"{group}{number}", group)
    return peers


def settle(broker: BrokerInMemory) -> None:
    broker.clock.pump([0.001] * 200)


def id_list(broker: BrokerInMemory) -> list[str]:
    header = GetConsumerListByGroupRequestHeader(consumer_group="G")
    answer = broker.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
    return json.loads(answer.body)["consumerIdList"]


def test_a_host_that_dies_costs_each_member_one_notice() -> None:
    broker = BrokerInMemory()
    peers = members(broker, 300)
    settle(broker)
    notices(peers)
    gone, left = peers[:200], peers[200:]
    for peer in gone:
        peer.lose()
    assert sum(notices(peers)) == 0, "nobody is notified while others may be found gone"
    settle(broker)
    assert notices(gone) == [0] * 200
    assert notices(left) == [1] * 100


def test_all_of_a_group_may_die() -> None:
    broker = BrokerInMemory()
    peers = members(broker, 100)
    settle(broker)
    notices(peers)
    for peer in peers:
        peer.lose()
    settle(broker)
    assert notices(peers) == [0] * 100


def test_changes_while_members_are_notified_cost_one_more_notice() -> None:
    broker = BrokerInMemory()
    peers = members(broker, 500)
    others = members(broker, 3, "H")
    settle(broker)
    notices(peers + others)
    peers[0].lose()
    broker.clock.advance(0)
    told = notices(peers)
    for peer in (peers[1], peers[2], others[0]):
        peer.lose()
    settle(broker)
    again = notices(peers)
    assert [one + two for one, two in zip(told[3:], again[3:], strict=True)] == [2] * 497
    assert again[:3] == [0, 0, 0]
    assert notices(others) == [0, 1, 1]


def test_members_are_notified_in_slices_and_none_that_left_meanwhile() -> None:
    broker = BrokerInMemory()
    peers = members(broker, 200)
    settle(broker)
    notices(peers)
    rounds: list[Iterator[None]] = []
    told = MemberNotices(lambda steps: rounds.append(steps) or Deferred())
    group = broker.clients.consumer_group("G")
    assert group is not None
    told.changed(group)
    (steps,) = rounds
    counts = []
    for number, _ in enumerate(steps):
        counts.append(sum(notices(peers)))
        if number == 1:
            # Gone, though its connection is not closed.
            broker.clients.unregister_consumer("G", peers[-1])
    counts.append(sum(notices(peers)))
    assert counts[0] == 0 and max(counts) <= 50 and sum(counts) == 199


def test_members_that_come_in_one_turn() -> None:
    broker = BrokerInMemory()
    peers = members(broker, 50)
    settle(broker)
    assert notices(peers) == [1] * 50


def test_who_leaves_while_the_others_are_notified_is_passed_over() -> None:
    broker = BrokerInMemory()
    peers = members(broker, 3)
    settle(broker)
    notices(peers)
    peers[0].lose()
    broker.clients.unregister_consumer("G", peers[1])
    settle(broker)
    assert notices(peers) == [0, 0, 1]


def test_the_ids_of_members_are_those_of_the_moment() -> None:
    broker = BrokerInMemory()
    peers = members(broker, 3)
    assert id_list(broker) == id_list(broker) == ["G0", "G1", "G2"]
    peers[1].lose()
    assert id_list(broker) == ["G0", "G2"]
    join(broker, FakePeer(), "new")
    assert id_list(broker) == ["G0", "G2", "new"]
    join(broker, peers[0], "other")
    assert id_list(broker) == ["other", "G2", "new"]
