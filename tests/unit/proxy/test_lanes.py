"""Which connection to brokers stands for which client of a proxy."""

from __future__ import annotations

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import encode_record
from rocketmq_tw.proxy.cluster.lanes import Lanes
from rocketmq_tw.proxy.memberships import Addressee, Membership, addressee_of
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.proxy import FakeClient

CONSUMERS, PRODUCERS = Membership("g", True), Membership("g", False)
OTHERS = Membership("other", True)


def lane_of(lanes: Lanes, client: FakeClient) -> int | None:
    place = lanes.place(client)
    return None if place is None else place.lane


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
    lanes.enter(first, [CONSUMERS])
    lanes.enter(second, [CONSUMERS])
    place = lanes.remove(first)
    assert place is not None and place.memberships == {CONSUMERS}
    assert lanes.remove(first) is None
    lanes.enter(third, [CONSUMERS])
    assert lane_of(lanes, third) == 0
    assert lanes.find(0, Addressee(CONSUMERS, "a")) is third


def test_a_client_that_enters_a_group_whose_lane_is_taken_moves() -> None:
    lanes = Lanes(8)
    first, second = map(FakeClient, "ab")
    lanes.enter(first, [CONSUMERS])
    lanes.enter(second, [OTHERS])
    assert lanes.enter(second, [OTHERS]) is None
    former = lanes.enter(second, [CONSUMERS])
    assert former is not None and (former.lane, former.memberships) == (0, {OTHERS})
    assert lane_of(lanes, second) == 1
    assert lanes.find(1, Addressee(OTHERS, None)) is second
    assert lanes.find(0, Addressee(OTHERS, None)) is None


def test_a_client_that_left_a_group_makes_room() -> None:
    lanes = Lanes(8)
    first, second = map(FakeClient, "ab")
    lanes.enter(first, [CONSUMERS, OTHERS])
    lanes.leave(first, [CONSUMERS])
    lanes.enter(second, [CONSUMERS])
    assert lane_of(lanes, second) == 0
    assert lanes.find(0, Addressee(OTHERS, None)) is first


def test_beyond_the_last_lane_the_newest_client_counts() -> None:
    lanes = Lanes(2)
    clients = [FakeClient(str(number)) for number in range(4)]
    for client in clients:
        lanes.enter(client, [CONSUMERS])
    assert [lane_of(lanes, client) for client in clients] == [0, 1, 1, 1]
    assert lanes.find(1, Addressee(CONSUMERS, None)) is clients[3]
    # By its id each of them is found.
    assert lanes.find(1, Addressee(CONSUMERS, "2")) is clients[2]
    lanes.remove(clients[3])
    lanes.enter(clients[2], [CONSUMERS])
    assert lanes.find(1, Addressee(CONSUMERS, None)) is clients[2]


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
