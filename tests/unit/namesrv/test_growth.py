"""Large tables, registrations and lists hold nobody up, and what they may take is limited."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_tw.namesrv import route_table
from rocketmq_tw.namesrv.requests.registration import SMALL_REGISTRATION
from rocketmq_tw.namesrv.requests.waiting import MAX_WAITING_REGISTRATIONS
from rocketmq_tw.net.growing_answers import MOST_WAITING_ANSWERS
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import ClusterInfo
from rocketmq_tw.wire.bodies.topics import TopicList
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.large_registrations import MANY, registration, send, topics_of
from tests.support.network import FakePeer
from tests.support.wait import go_on


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_registration_is_read_in_a_thread_and_taken_in_bit_by_bit(
    namesrv: Any, compressed: bool
) -> None:
    namesrv.threads.eager = False
    answered = send(namesrv, registration(compressed=compressed))
    assert not answered and not topics_of(namesrv)
    namesrv.threads.run()
    assert not answered and 0 < topics_of(namesrv) < MANY
    assert go_on(namesrv, answered).code == 0
    assert topics_of(namesrv) == MANY


def test_what_a_broker_says_first_is_taken_in_first(namesrv: Any) -> None:
    namesrv.threads.eager = False
    peer = FakePeer()
    first = send(namesrv, registration(perm=6), peer)
    second = send(namesrv, registration(perm=4, topics=2), peer)
    assert go_on(namesrv, second).code == 0 and first
    assert namesrv.route("T1")["queueDatas"][0]["perm"] == 4
    assert len(namesrv.route("T7")["queueDatas"]) == 1
    request = registration()
    third = send(namesrv, request, peer)
    leaving = send(namesrv, RemotingCommand(104, ext_fields=request.ext_fields), peer)
    assert not leaving
    assert go_on(namesrv, leaving).code == 0 and third
    assert namesrv.ask(106, {}).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


@pytest.mark.parametrize("in_slices", [False, True])
def test_a_broker_that_goes_during_its_registration_leaves_nothing(
    namesrv: Any, in_slices: bool
) -> None:
    namesrv.threads.eager = False
    peer = FakePeer()
    answered = send(namesrv, registration(), peer)
    if in_slices:
        namesrv.threads.run()
        assert topics_of(namesrv)
    peer.lose()
    assert namesrv.route("T1") is None
    go_on(namesrv, answered)
    for _ in range(100):
        namesrv.clock.advance(0.001)
    assert len(namesrv.server.table.queues) == 0
    assert namesrv.ask(106, {}).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_one_large_registration_stands_in_memory_at_a_time(namesrv: Any) -> None:
    namesrv.threads.eager = False
    first = send(namesrv, registration(compressed=True))
    second = send(namesrv, registration(name="broker-b", port=10921, compressed=True))
    namesrv.threads.run()
    assert not first and 0 < topics_of(namesrv) < MANY
    assert not namesrv.threads.waiting, "the second is not read before the first is taken in"
    go_on(namesrv, first)
    assert len(namesrv.threads.waiting) == 1
    assert go_on(namesrv, second).code == 0


def test_a_newer_registration_takes_the_place_of_one_that_waits(namesrv: Any) -> None:
    namesrv.threads.eager = False
    peer = FakePeer()
    reading = send(namesrv, registration(topics=9, perm=2, compressed=True), peer)
    waiting = send(namesrv, registration(topics=2_000), peer)
    part = send(namesrv, registration(topics=2, perm=4), peer)
    newest = send(namesrv, registration(topics=2_000, perm=4), peer)
    assert not reading
    for given_up in (waiting, part):
        assert given_up[0].value.code == ResponseCode.SYSTEM_BUSY
        assert "a newer registration of 127.0.0.1:10911 came" in given_up[0].value.remark
    last = send(namesrv, registration(topics=2, perm=6), peer)
    assert not newest, "what is smaller may be a part"
    assert go_on(namesrv, last).code == newest[0].code == reading[0].code == 0
    assert topics_of(namesrv) == 2_000
    assert namesrv.route("T1")["queueDatas"][0]["perm"] == 6
    assert namesrv.route("T5")["queueDatas"][0]["perm"] == 4


def test_connections_take_turns_with_large_registrations(namesrv: Any) -> None:
    namesrv.threads.eager = False
    flooding = FakePeer()
    flood = [
        send(namesrv, registration(name=f"b-{n}", port=n + 1, topics=9, compressed=True), flooding)
        for n in range(MAX_WAITING_REGISTRATIONS + 1)
    ]
    with pytest.raises(RequestError, match="32 registrations of this connection wait") as raised:
        send(namesrv, registration(name="more", port=99, compressed=True), flooding)
    assert raised.value.code == ResponseCode.SYSTEM_BUSY
    other = send(namesrv, registration(name="other", port=98, topics=9, compressed=True))
    assert go_on(namesrv, other).code == 0
    assert sum(map(bool, flood)) == 1, "the one that was read"
    assert go_on(namesrv, flood[-1]).code == 0 and all(flood)


def test_the_last_one_to_speak_for_a_name_is_believed(make_namesrv: Any) -> None:
    namesrv = make_namesrv(refuse_taken_broker_ids=False)
    namesrv.threads.eager = False
    old = send(namesrv, registration(perm=4))
    namesrv.threads.run()
    new = send(namesrv, registration(perm=6, port=10921, topics=3))
    assert go_on(namesrv, new).code == 0
    go_on(namesrv, old)
    assert namesrv.route("T1")["queueDatas"][0]["perm"] == 6
    assert topics_of(namesrv) < MANY


def test_the_topics_of_a_broker_that_leaves_are_gone_at_once_and_freed_bit_by_bit(
    namesrv: Any,
) -> None:
    queues = namesrv.server.table.queues
    peer = FakePeer()
    go_on(namesrv, send(namesrv, registration(), peer))
    go_on(namesrv, send(namesrv, registration(name="broker-b", port=10921, topics=2)))
    peer.lose()
    assert 2 < len(queues) < MANY + 2, "some are still there"
    assert set(namesrv.addresses("T1")) == {"broker-b"}
    assert namesrv.route("T2") is None
    listed = go_on(namesrv, send(namesrv, RemotingCommand(206)))
    assert decode_body(TopicList, listed.body).topic_list == ["T0", "T1"]
    # It comes back with less before all is freed.
    namesrv.register(topics=("T7", "T8"))
    assert set(namesrv.addresses("T7")) == {"broker-a"} and namesrv.route("T9") is None
    for _ in range(1000):
        namesrv.clock.advance(0.001)
    assert len(queues) == 4
    assert set(namesrv.addresses("T7")) == {"broker-a"}


def test_lists_are_made_bit_by_bit_and_encoded_in_a_thread(namesrv: Any) -> None:
    go_on(namesrv, send(namesrv, registration()))
    namesrv.threads.eager = False
    wanted = sorted(f"T{n}" for n in range(MANY))
    requests = (RemotingCommand(206), RemotingCommand(224, ext_fields={"cluster": "C"}))
    for request in requests:
        answered = send(namesrv, request)
        assert not answered
        assert decode_body(TopicList, go_on(namesrv, answered).body).topic_list == wanted
    answer = go_on(namesrv, send(namesrv, RemotingCommand(311)))
    assert decode_body(TopicList, answer.body).topic_list == []


def with_brokers(make_namesrv: Any, count: int) -> Any:
    namesrv = make_namesrv(order_message_enable=True, support_acting_master=True)
    for n in range(count):
        # The id of a slave that acts as the master where that is gone.
        id_ = n % 7 and 1
        namesrv.register(
            f"broker-{n}",
            broker_id=id_,
            port=n + 1,
            topics=("T1", "T2", "T3"),
            enableActingMaster="true",
            clusterName=f"C{n % 3}",
            __ZONE_NAME=f"zone-{n % 2}",
        )
    namesrv.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "broker-1:4"})
    return namesrv


LARGE_ANSWERS = [
    (105, {"topic": "T1"}, 479),
    (105, {"topic": "T1", "acceptStandardJsonOnly": "true"}, 300),
    (105, {"topic": "T1", "__ZONE_MODE": "true", "__ZONE_NAME": "zone-1"}, 300),
    (106, {}, 479),
]


@pytest.mark.parametrize(("code", "fields", "version"), LARGE_ANSWERS)
def test_answers_with_many_brokers_are_made_bit_by_bit_and_encoded_in_a_thread(
    make_namesrv: Any, monkeypatch: Any, code: int, fields: dict[str, str], version: int
) -> None:
    namesrv = with_brokers(make_namesrv, 1_200)
    monkeypatch.setattr(route_table, "_FEW_BROKERS", 10_000)
    at_once = namesrv.ask(code, fields, version=version).body
    assert len(at_once) > 20_000
    monkeypatch.undo()
    namesrv.threads.eager = False
    copied = []
    copy = namesrv.server.table._copy
    monkeypatch.setattr(namesrv.server.table, "_copy", lambda b: copied.append(b) or copy(b))
    request = RemotingCommand(code, ext_fields=fields, version=version)
    answered = send(namesrv, request)
    assert not answered and len(copied) < 1_150
    while not namesrv.threads.waiting:
        namesrv.clock.advance(0.001)
    assert go_on(namesrv, answered).body == at_once


def test_very_many_clusters_are_listed_bit_by_bit(make_namesrv: Any) -> None:
    namesrv = make_namesrv()
    for n in range(250):
        namesrv.register(f"broker-{n}", port=n + 1, topics=(), clusterName=f"C{n}")
    info = ClusterInfo()
    steps = namesrv.server.table.collect_cluster_info(info)
    while len(info.broker_addr_table) < 250:
        next(steps)
    seen = [len(info.cluster_addr_table) for _ in steps]
    assert seen[0] < 250 and len(info.cluster_addr_table) == 250


def test_who_asks_before_an_answer_is_begun_shares_it(make_namesrv: Any) -> None:
    namesrv = with_brokers(make_namesrv, 300)
    namesrv.threads.eager = False
    request = RemotingCommand(105, ext_fields={"topic": "T1"}, version=479)
    first = send(namesrv, request)
    while not namesrv.threads.waiting:
        namesrv.clock.advance(0.001)
    namesrv.register("late", port=9_999, topics=("T1", "T2"))
    behind = [send(namesrv, request) for _ in range(50)]
    other = send(namesrv, RemotingCommand(106))
    assert len(namesrv.threads.waiting) == 1, "one at a time"

    def brokers(answered: list[Any]) -> int:
        return len(json.loads(go_on(namesrv, answered).body)["brokerDatas"])

    jobs = 0
    while not all(behind) or not other:
        jobs += namesrv.threads.run()
        namesrv.clock.advance(0.001)
    assert jobs == 3
    assert len({answered[0].body for answered in behind}) == 1
    assert (brokers(first), brokers(behind[0])) == (300, 301)


def test_zones_that_are_made_up_are_bounded_and_hold_no_other_route_back(
    make_namesrv: Any,
) -> None:
    namesrv = with_brokers(make_namesrv, 300)
    namesrv.threads.eager = False

    def ask(**fields: str) -> list[Any]:
        return send(namesrv, RemotingCommand(105, ext_fields={"topic": "T1", **fields}))

    def of_zone(zone: str) -> list[Any]:
        return ask(__ZONE_MODE="true", __ZONE_NAME=zone)

    zones = [of_zone(f"zone-{n}") for n in range(1 + MOST_WAITING_ANSWERS)]
    with pytest.raises(RequestError, match="ask again later") as refused:
        of_zone("one more")
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    joined, whole, clusters = of_zone("zone-9"), ask(), send(namesrv, RemotingCommand(106))
    assert not any([*zones, joined, whole, clusters])
    assert len(json.loads(go_on(namesrv, whole).body)["brokerDatas"]) == 300
    assert go_on(namesrv, clusters).code == 0
    assert joined[0].body == zones[9][0].body
    assert go_on(namesrv, of_zone("one more")).body == zones[-1][0].body


def test_a_topic_whose_brokers_leave_during_the_question_has_no_route(make_namesrv: Any) -> None:
    namesrv = make_namesrv()
    peer = FakePeer()
    for n in range(300):
        namesrv.register(f"broker-{n}", port=n + 1, topics=("T1", "T2"), peer=peer)
    namesrv.threads.eager = False
    asked = [send(namesrv, RemotingCommand(105, ext_fields={"topic": "T1"})) for _ in range(3)]
    peer.lose()
    assert go_on(namesrv, asked[2]).code == ResponseCode.TOPIC_NOT_EXIST
    assert all(asked)
    assert namesrv.route("T1") is None


def test_permissions_change_bit_by_bit(namesrv: Any) -> None:
    go_on(namesrv, send(namesrv, registration()))
    answered = send(namesrv, RemotingCommand(205, ext_fields={"brokerName": "broker-a"}))
    assert not answered
    assert go_on(namesrv, answered).ext_fields == {"wipeTopicCount": str(MANY)}
    queues = namesrv.server.table.queues
    assert not any(queues.of_topic(f"T{n}")["broker-a"].perm & 2 for n in range(MANY))


def test_what_topics_may_take_is_limited(make_namesrv: Any) -> None:
    namesrv = make_namesrv(max_topic_bytes=10_000)
    namesrv.register(topics=tuple(f"T{n}" for n in range(12)))
    queues = namesrv.server.table.queues
    assert 8_000 < queues.size < 10_000
    with pytest.raises(RequestError, match="maxTopicBytes"):
        namesrv.register("broker-b", port=10921, topics=("U1", "U2", "U3"))
    assert namesrv.register(topics=tuple(f"T{n}" for n in range(12))).code == 0
    assert namesrv.register("broker-b", port=10921, topics=("T1", "T2")).code == 0
    mapping = {"T1": {"topic": "T1", "currIdMap": {str(n): n for n in range(1000)}}}
    body = {
        "topicConfigSerializeWrapper": {
            "topicConfigTable": {"T1": {"topicName": "T1"}, "V": {"topicName": "V"}},
            "topicQueueMappingInfoMap": mapping,
        }
    }
    with pytest.raises(RequestError, match="maxTopicBytes"):
        namesrv.ask(
            103,
            registration(topics=1).ext_fields,
            json.dumps(body).encode(),
        )


def test_a_value_is_there_once_it_is_kept(namesrv: Any) -> None:
    namesrv.threads.eager = False
    fields = {"namespace": "N", "key": "k", "value": "v"}
    first = send(namesrv, RemotingCommand(100, ext_fields=fields))
    second = send(namesrv, RemotingCommand(100, ext_fields=fields | {"key": "l"}))
    assert not first and namesrv.server.kv.get("N", "k") is None
    assert go_on(namesrv, second).code == 0 and first
    assert json.loads(namesrv.server.kv.namespace("N")) == {"table": {"k": "v", "l": "v"}}
    changed = send(namesrv, RemotingCommand(318, body=b"orderMessageEnable=true"))
    assert not changed and not namesrv.config.order_message_enable
    assert go_on(namesrv, changed).code == 0
    assert namesrv.config.order_message_enable


def test_oversized_changes_are_refused(namesrv: Any) -> None:
    with pytest.raises(RequestError, match="send at most"):
        namesrv.ask(318, {}, b"#" * 100_000)
    with pytest.raises(RequestError, match="send at most"):
        namesrv.ask(217, {"topic": "T"}, b" " * 300_000)


def test_small_registrations_wait_for_nothing(namesrv: Any) -> None:
    namesrv.threads.eager = False
    request = registration(topics=50)
    assert len(request.body) < SMALL_REGISTRATION
    assert send(namesrv, request)[0].code == 0


def test_very_many_lists_of_topics_that_changed_are_all_answered(namesrv: Any) -> None:
    """The 124th of those that waited for a sort used up the stack, and none was answered again."""
    go_on(namesrv, send(namesrv, registration(topics=900)))
    waiting = [send(namesrv, RemotingCommand(206)) for _ in range(300)]
    for answered in waiting:
        assert go_on(namesrv, answered).code == ResponseCode.SUCCESS
    assert go_on(namesrv, send(namesrv, RemotingCommand(206))).code == ResponseCode.SUCCESS


def test_registrations_whose_connections_are_lost_while_they_wait_hold_up_no_other(
    namesrv: Any,
) -> None:
    first = send(namesrv, registration(name="broker-z", compressed=True))
    lost = [FakePeer() for _ in range(300)]
    for number, peer in enumerate(lost):
        send(namesrv, registration(name=f"broker-{number}", topics=1, compressed=True), peer)
    for peer in lost:
        peer.lose()
    assert go_on(namesrv, first).code == ResponseCode.SUCCESS
    later = send(namesrv, registration(name="broker-y", topics=300, compressed=True))
    assert go_on(namesrv, later).code == ResponseCode.SUCCESS
    assert topics_of(namesrv, "broker-y") == 300
