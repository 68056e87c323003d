"""Who may register, and what that does to the route table beyond the recorded conversations."""

import json
import zlib
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.namesrv import room
from rocketmq_tw.net.administrators import ADMINISTRATOR
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import ClusterInfo
from rocketmq_tw.wire.bodies.topics import TopicList
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.network import FakePeer

REGISTRATION = {
    "clusterName": "C",
    "brokerName": "broker-a",
    "brokerId": 0,
    "brokerAddr": "127.0.0.1:10911",
    "haServerAddr": "127.0.0.1:10912",
}


@pytest.mark.parametrize("field", sorted(REGISTRATION))
def test_a_missing_field_is_named(namesrv: Any, field: str) -> None:
    fields = {name: value for name, value in REGISTRATION.items() if name != field}
    with pytest.raises(RequestError, match=field) as caught:
        namesrv.ask(103, fields)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("brokerName", ""),
        ("brokerName", "b" * 256),
        ("clusterName", "c" * 256),
        ("brokerAddr", "nowhere"),
        ("brokerAddr", "127.0.0.1:0"),
        ("brokerAddr", "127.0.0.1:65536"),
        ("brokerAddr", f"{'h' * 256}:1"),
        ("haServerAddr", "127.0.0.1"),
        ("brokerId", "first"),
        ("bodyCrc32", "12"),
    ],
)
def test_a_wrong_field_is_refused_and_leaves_nothing(namesrv: Any, field: str, value: str) -> None:
    with pytest.raises(RequestError) as caught:
        namesrv.ask(103, REGISTRATION | {field: value})
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert namesrv.ask(106, {}).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"{", {}),
        (b"[]", {}),
        (b'{"topicConfigSerializeWrapper":7}', {}),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"x"}}}}', {}),
        (b"\xff\xff", {}),
        (b"no zlib", {"compressed": "true"}),
        (zlib.compress(b"\x00\x00\x00\x05"), {"compressed": "true"}),
        (zlib.compress(b"\x7f\xff\xff\xff"), {"compressed": "true"}),
        (zlib.compress(b"\x00\x00\x00\x02{}\xff\xff\xff\xff"), {"compressed": "true"}),
        (zlib.compress(b"x" * 100)[:-8], {"compressed": "true"}),
    ],
)
def test_a_broken_body_is_refused_and_leaves_nothing(
    namesrv: Any, body: bytes, fields: dict[str, str]
) -> None:
    with pytest.raises(RequestError) as caught:
        namesrv.ask(103, REGISTRATION | fields, body)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    assert namesrv.ask(106, {}).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_a_topic_with_an_endless_name_is_refused(namesrv: Any) -> None:
    with pytest.raises(RequestError, match="256 characters"):
        namesrv.register(topics=("t" * 256, "T2"))
    assert namesrv.register(topics=("%RETRY%" + "g" * 248, "T2")).code == 0


def test_one_topic_of_a_stranger_leaves_nothing(namesrv: Any) -> None:
    with pytest.raises(RequestError, match="not registered"):
        namesrv.register(topics=("T1",))
    assert namesrv.ask(106, {}).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_deflated_bodies_of_5_3_3_that_call_themselves_plain(namesrv: Any) -> None:
    topic = b"T1 8 8 6 SINGLE_TAG {}"
    version = b'{"counter":1}'
    parts = [
        len(version).to_bytes(4, "big") + version,
        (2).to_bytes(4, "big"),
        len(topic).to_bytes(4, "big") + topic,
        len(topic).to_bytes(4, "big") + topic.replace(b"T1", b"T2"),
        (2).to_bytes(4, "big") + b"[]",
        (0).to_bytes(4, "big"),
    ]
    body = zlib.compress(b"".join(parts), 9)
    assert namesrv.ask(103, REGISTRATION | {"compressed": "false"}, body).code == 0
    assert namesrv.addresses("T2") == {"broker-a": {"0": "127.0.0.1:10911"}}


def test_an_older_controller_epoch_at_another_address_is_passed_over(namesrv: Any) -> None:
    namesrv.register(state_version=5)
    assert namesrv.register(port=10921, state_version=4).code == 0
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10911"}}
    namesrv.register(port=10921, state_version=6)
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10921"}}


def test_a_member_whose_registration_is_passed_over_leaves_nothing(make_namesrv: Any) -> None:
    """Its place under another id stayed for good, and while it had the smallest one no slave acted
    for the master."""
    namesrv = make_namesrv(support_acting_master=True)
    master, slave, late = FakePeer(), FakePeer(), FakePeer()
    acting = {"enableActingMaster": "true"}
    namesrv.register(peer=master, state_version=6, **acting)
    namesrv.register(broker_id=2, port=10931, peer=slave, state_version=6, **acting)
    namesrv.register(broker_id=1, port=10921, peer=late, state_version=5, **acting)
    assert namesrv.register(port=10921, peer=late, state_version=5, **acting).code == 0
    found = {"0": "127.0.0.1:10911", "2": "127.0.0.1:10931"}
    assert namesrv.addresses("T1") == {"broker-a": found}
    late.lose()
    namesrv.sent.clear()
    master.lose()
    assert {fields["minBrokerId"] for _, fields in namesrv.sent} == {"2"}
    slave.lose()
    assert namesrv.server.table.broker_names() == []


def test_topics_that_a_broker_no_longer_has(make_namesrv: Any) -> None:
    keeping, deleting = make_namesrv(), make_namesrv(delete_topic_with_broker_registration=True)
    for namesrv in (keeping, deleting):
        namesrv.register(topics=("T1", "T2", "T3"))
        namesrv.register(topics=("T1", "T2"))
    assert keeping.route("T3") is not None
    assert deleting.route("T3") is None
    assert deleting.route("T1") is not None


def test_memory_is_bounded(namesrv: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "MAX_QUEUE_ENTRIES", 5)
    monkeypatch.setattr(room, "MAX_BROKERS", 2)
    namesrv.register(topics=("T1", "T2"))
    with pytest.raises(RequestError, match="room for 5"):
        namesrv.register("broker-b", port=10921, topics=("T1", "T2", "T3", "T4"))
    namesrv.register("broker-b", port=10921, topics=("T1", "T2"))
    with pytest.raises(RequestError, match="2 brokers"):
        namesrv.register("broker-c", port=10931, topics=())
    fields = {"clusterName": "C", "brokerName": "broker-b", "brokerId": 0}
    namesrv.ask(104, fields | {"brokerAddr": "127.0.0.1:10921"})
    assert namesrv.register("broker-c", port=10931, topics=("T1", "T2")).code == 0


def test_a_full_name_server_still_takes_what_it_knows(namesrv: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "MAX_QUEUE_ENTRIES", 3)
    namesrv.register(topics=("T1", "T2", "T3"))
    assert namesrv.register(topics=("T1", "T2", "T3")).code == 0
    with pytest.raises(RequestError, match="room for 3"):
        namesrv.register(topics=("T1", "T4"))


def test_brokers_of_one_name_are_bounded(namesrv: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "MAX_BROKERS_OF_NAME", 2)
    namesrv.register(broker_id=0)
    namesrv.register(broker_id=1, port=10921)
    with pytest.raises(RequestError, match="2 brokers named broker-a"):
        namesrv.register(broker_id=2, port=10931)
    assert namesrv.register(broker_id=1, port=10921).code == 0


@pytest.mark.parametrize(
    "keys", [{"support_acting_master": True}, {"notify_min_broker_id_changed": True}]
)
def test_a_group_is_told_of_its_smallest_id(make_namesrv: Any, keys: dict[str, bool]) -> None:
    """Request 905: who left and who came, to the others."""
    namesrv = make_namesrv(**keys)
    master, first, second = (f"127.0.0.1:{port}" for port in (10911, 10921, 10931))
    namesrv.register(broker_id=0, enableActingMaster="true")
    namesrv.register(broker_id=1, port=10921, enableActingMaster="true")
    namesrv.register(broker_id=2, port=10931, enableActingMaster="true")
    namesrv.sent.clear()
    leaving = {"clusterName": "C", "brokerName": "broker-a", "brokerId": 0}
    namesrv.ask(104, leaving | {"brokerAddr": master})
    left = {
        "minBrokerId": "1",
        "brokerName": "broker-a",
        "minBrokerAddr": first,
        "offlineBrokerAddr": master,
    }
    assert namesrv.sent == [(first, left), (second, left)]
    namesrv.sent.clear()
    namesrv.register(broker_id=0, enableActingMaster="true")
    back = {
        "minBrokerId": "0",
        "brokerName": "broker-a",
        "minBrokerAddr": master,
        "haBrokerAddr": "127.0.0.1:10912",
    }
    assert namesrv.sent == [(first, back), (second, back)]


def test_without_the_keys_and_without_acting_masters_nobody_is_told(make_namesrv: Any) -> None:
    namesrv, plain = make_namesrv(), make_namesrv(support_acting_master=True)
    namesrv.register(broker_id=0, enableActingMaster="true")
    namesrv.register(broker_id=1, port=10921, enableActingMaster="true")
    plain.register(broker_id=0)
    plain.register(broker_id=1, port=10921)
    plain.sent.clear()
    leaving = {"clusterName": "C", "brokerName": "broker-a", "brokerId": 0}
    for each in (namesrv, plain):
        each.ask(104, leaving | {"brokerAddr": "127.0.0.1:10911"})
        assert each.sent == []


@pytest.mark.parametrize(("supported", "shown"), [(True, "0"), (False, "1")])
def test_the_substitute_of_a_master_that_left(
    make_namesrv: Any, supported: bool, shown: str
) -> None:
    namesrv = make_namesrv(support_acting_master=supported)
    namesrv.register(broker_id=0, enableActingMaster="true")
    namesrv.register(broker_id=1, port=10921, enableActingMaster="true")
    leaving = {"clusterName": "C", "brokerName": "broker-a", "brokerId": 0}
    namesrv.ask(104, leaving | {"brokerAddr": "127.0.0.1:10911"})
    assert namesrv.addresses("T1") == {"broker-a": {shown: "127.0.0.1:10921"}}
    assert namesrv.route("T1")["queueDatas"][0]["perm"] == 4
    namesrv.register(broker_id=0, enableActingMaster="true")
    assert namesrv.route("T1")["queueDatas"][0]["perm"] == 6


def test_brokers_of_4_9_have_no_substitute(make_namesrv: Any) -> None:
    namesrv = make_namesrv(support_acting_master=True)
    namesrv.register(broker_id=0)
    namesrv.register(broker_id=1, port=10921)
    leaving = {"clusterName": "C", "brokerName": "broker-a", "brokerId": 0}
    namesrv.ask(104, leaving | {"brokerAddr": "127.0.0.1:10911"})
    assert namesrv.addresses("T1") == {"broker-a": {"1": "127.0.0.1:10921"}}
    assert namesrv.route("T1")["queueDatas"][0]["perm"] == 6


def test_routes_wait_where_they_are_told_to(make_namesrv: Any) -> None:
    namesrv = make_namesrv(need_wait_for_service=True, wait_seconds_for_service=3)
    namesrv.register()
    namesrv.clock.advance(2.9)
    assert "waitSecondsForService" in namesrv.server.not_ready()
    with pytest.raises(RequestError, match="waitSecondsForService"):
        namesrv.route("T1")
    namesrv.clock.advance(0.1)
    assert namesrv.server.not_ready() == ""
    assert namesrv.route("T1")


@pytest.mark.parametrize(
    ("key", "code", "fields"),
    [
        ("enable_all_topic_list", 206, {}),
        ("enable_topic_list", 224, {"cluster": "C"}),
        ("enable_topic_list", 311, {}),
        ("enable_topic_list", 313, {}),
    ],
)
def test_lists_that_are_switched_off(
    make_namesrv: Any, key: str, code: int, fields: dict[str, str]
) -> None:
    assert make_namesrv().ask(code, fields).code == 0
    with pytest.raises(RequestError, match="is false"):
        make_namesrv(**{key: False}).ask(code, fields)


def test_an_address_has_one_name(namesrv: Any) -> None:
    namesrv.register("broker-a")
    namesrv.register("broker-b")
    assert namesrv.addresses("T1") == {"broker-b": {"0": "127.0.0.1:10911"}}
    assert b"broker-a" not in namesrv.ask(106, {}).body


def test_a_name_that_is_gone_is_in_no_cluster(namesrv: Any) -> None:
    namesrv.register()
    namesrv.register(clusterName="D")
    fields = {"brokerName": "broker-a", "brokerId": 0, "brokerAddr": "127.0.0.1:10911"}
    namesrv.ask(104, fields | {"clusterName": "C"})
    namesrv.ask(104, fields | {"clusterName": "D"})
    assert namesrv.ask(106, {}).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def clusters_of(namesrv: Any) -> dict[str, list[str]]:
    """What 106 says of clusters and the names in them."""
    return decode_body(ClusterInfo, namesrv.ask(106, {}).body).cluster_addr_table


@pytest.mark.parametrize("leaves", ["says so", "is lost", "is silent", "has another name"])
def test_a_cluster_without_a_broker_of_a_name_is_not_its_cluster(namesrv: Any, leaves: str) -> None:
    """A stranger's clusters stayed, each of them, until the last broker of the name was gone."""
    namesrv.server.liveness.start()
    namesrv.register()
    for cluster in ("X1", "X2", "X3"):
        peer = FakePeer("10.66.0.1:40000")
        stranger = {"clusterName": cluster, "brokerAddr": "10.66.0.1:10911"}
        silence = {"heartbeatTimeoutMillis": 1_000}
        namesrv.register(broker_id=9, topics=(), peer=peer, **stranger, **silence)
        assert clusters_of(namesrv)[cluster] == ["broker-a"]
        # Its place anew.
        namesrv.register(broker_id=9, topics=(), peer=peer, **stranger, **silence)
        if leaves == "says so":
            namesrv.ask(104, {"brokerName": "broker-a", "brokerId": 9, **stranger}, peer=peer)
        elif leaves == "is lost":
            peer.lose()
        elif leaves == "is silent":
            namesrv.clock.advance(5)
        else:
            namesrv.register("other", topics=(), peer=peer, **stranger)
    others = ["other"] if leaves == "has another name" else []
    clusters = clusters_of(namesrv)
    assert clusters.pop("C") == ["broker-a"]
    assert all(names == ["other"] for names in clusters.values())
    listed = decode_body(TopicList, namesrv.ask(304, {}).body).topic_list
    assert listed == sorted(["C", "broker-a", *clusters, *others])


def test_mappings_stay_with_the_queues_that_they_map(namesrv: Any) -> None:
    table = {
        "topicConfigTable": {"T1": {"topicName": "T1"}, "T2": {"topicName": "T2"}},
        "topicQueueMappingInfoMap": {
            "T1": {"topic": "T1", "bname": "broker-a", "totalQueues": 4},
            "T2": {"topic": "T2", "bname": "broker-z"},
            "T3": {"topic": "T3"},
        },
    }
    namesrv.ask(103, REGISTRATION, json.dumps({"topicConfigSerializeWrapper": table}).encode())
    assert list(namesrv.route("T1")["topicQueueMappingByBroker"]) == ["broker-a"]
    assert "topicQueueMappingByBroker" not in namesrv.route("T2")
    queues = namesrv.server.table.queues
    assert [topic for topic in ("T1", "T2", "T3") if queues.mappings(topic)] == ["T1"]
    fields = {key: value for key, value in REGISTRATION.items() if key != "haServerAddr"}
    namesrv.ask(104, fields)
    assert not queues.mappings("T1")


@pytest.mark.parametrize(
    ("servers", "what"), [(["127.0.0.1:1"] * 65, "at most 64"), (["h" * 300], "300 characters")]
)
def test_filter_servers_are_bounded(namesrv: Any, servers: list[str], what: str) -> None:
    with pytest.raises(RequestError, match=what):
        namesrv.ask(103, REGISTRATION, json.dumps({"filterServerList": servers}).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"clusterName": "D"},
        {"brokerAddr": "10.0.0.9:10911"},
        {"brokerName": "broker-b"},
    ],
)
def test_a_stranger_unregisters_nobody(namesrv: Any, fields: dict[str, Any]) -> None:
    namesrv.register(peer=FakePeer("10.0.0.1:40000"))
    leaving = {"clusterName": "C", "brokerName": "broker-a", "brokerAddr": "127.0.0.1:10911"}
    try:
        namesrv.ask(104, leaving | {"brokerId": 0} | fields, peer=FakePeer("10.0.0.9:40000"))
    except RequestError as refusal:
        assert refusal.code == ResponseCode.NO_PERMISSION
        assert "unregister it from there" in refusal.remark
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10911"}}
    namesrv.ask(104, leaving | {"brokerId": 0}, peer=FakePeer("10.0.0.1:40001"))
    assert namesrv.addresses("T1") == {}, "over another connection of its host"


def test_a_living_brokers_name_and_id_are_no_others(namesrv: Any) -> None:
    namesrv.register(topics=("T1", "T2"))
    with capturedLogs() as events, pytest.raises(RequestError, match="0 and alive") as caught:
        namesrv.register(port=10921, topics=())
    assert "refuseTakenBrokerIds" in caught.value.remark
    (event,) = [event for event in events if event["log_level"].name == "error"]
    assert event["holder"] == "127.0.0.1:10911"
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10911"}}
    # In another cluster it is the same name, and a slave's id is a broker's too.
    with pytest.raises(RequestError, match="alive"):
        namesrv.register(port=10921, clusterName="D")
    namesrv.register(broker_id=1, port=10931)
    with pytest.raises(RequestError, match="alive"):
        namesrv.register(broker_id=1, port=10941)
    assert namesrv.register().code == 0


def test_a_name_and_id_may_be_taken_where_it_is_said_so(make_namesrv: Any) -> None:
    namesrv = make_namesrv(refuse_taken_broker_ids=False)
    namesrv.register()
    with capturedLogs() as events:
        assert namesrv.register(port=10921).code == 0
    assert [event["holder"] for event in events if event["log_level"].name == "error"]
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10921"}}


def test_a_broker_that_is_gone_or_silent_may_be_started_elsewhere(namesrv: Any) -> None:
    peer = FakePeer()
    namesrv.register(peer=peer)
    peer.lose()
    assert namesrv.register(port=10921).code == 0
    # Its host died without a word: it counts until its time-out.
    namesrv.clock.advance(119)
    with pytest.raises(RequestError, match="silent"):
        namesrv.register(port=10931)
    namesrv.clock.advance(2)
    assert namesrv.register(port=10931).code == 0
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10931"}}


def test_a_slave_becomes_the_master_though_the_former_one_is_not_gone(namesrv: Any) -> None:
    """As in a DLedger group, whose elections name servers know nothing of."""
    namesrv.register()
    namesrv.register(broker_id=2, port=10921)
    assert namesrv.register(broker_id=0, port=10921).code == 0
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10921"}}
    with pytest.raises(RequestError, match="alive"):
        namesrv.register(broker_id=0)
    assert namesrv.register(broker_id=1).code == 0


AT_HOME = {"brokerAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"brokerId": 1},
        {"clusterName": "D"},
        {"clusterName": "D", "brokerId": 1},
        {"brokerName": "broker-b"},
    ],
)
def test_a_stranger_does_not_speak_for_a_living_broker(
    namesrv: Any, fields: dict[str, Any]
) -> None:
    """It had the slaves follow a log of its own, and took the broker along when it left."""
    namesrv.register(peer=FakePeer("10.0.0.1:40000"), **AT_HOME)
    stranger = FakePeer("10.0.0.66:40000")
    with capturedLogs() as events, pytest.raises(RequestError, match="is alive: register it from"):
        namesrv.register(peer=stranger, **{**AT_HOME, "haServerAddr": "10.0.0.66:10912", **fields})
    assert [event for event in events if event["log_level"].name == "error"]
    stranger.lose()
    assert namesrv.addresses("T1") == {"broker-a": {"0": "10.0.0.1:10911"}}
    slave = namesrv.register(broker_id=1, port=10921)
    assert slave.ext_fields["haServerAddr"] == "10.0.0.1:10912"


@pytest.mark.parametrize("host", ["10.0.0.1", "192.168.0.1", "127.0.0.1"])
def test_a_broker_speaks_for_itself_over_another_connection(namesrv: Any, host: str) -> None:
    """From its own address, from where it spoke before, or on the name server's machine."""
    namesrv.register(peer=FakePeer("192.168.0.1:40000"), **AT_HOME)
    assert namesrv.register(peer=FakePeer(f"{host}:40001"), **AT_HOME).code == 0


def test_a_broker_that_is_gone_or_silent_may_speak_from_elsewhere(make_namesrv: Any) -> None:
    namesrv = make_namesrv()
    former = FakePeer("192.168.0.1:40000")
    namesrv.register(peer=former, **AT_HOME)
    former.lose()
    assert namesrv.register(peer=FakePeer("192.168.0.2:40000"), **AT_HOME).code == 0
    namesrv.clock.advance(121)
    assert namesrv.register(peer=FakePeer("192.168.0.3:40000"), **AT_HOME).code == 0
    lenient = make_namesrv(refuse_taken_broker_ids=False)
    lenient.register(peer=former, **AT_HOME)
    assert lenient.register(peer=FakePeer("192.168.0.2:40000"), **AT_HOME).code == 0


def test_a_living_brokers_place_is_not_taken_by_a_controllers_epoch(namesrv: Any) -> None:
    """Its own registrations were passed over from then on, with success."""
    namesrv.register()
    with pytest.raises(RequestError, match="alive"):
        namesrv.register(port=10921, state_version=7)
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10911"}}


def test_a_stranger_does_not_keep_a_broker_out_that_is_started_again(namesrv: Any) -> None:
    """It tries again and again, and is faster than the start."""
    broker, stranger = FakePeer(), FakePeer("10.0.0.66:40000")
    for peer in (broker, FakePeer()):
        namesrv.register(peer=peer)
        peer.lose()
        namesrv.register(port=10921, peer=stranger)
        namesrv.clock.advance(30)
        with capturedLogs() as events:
            namesrv.register(peer=(again := FakePeer()))
        assert [event for event in events if event["log_level"].name == "warn"]
        assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10911"}}
        with pytest.raises(RequestError, match="alive"):
            namesrv.register(port=10921, peer=stranger)
        stranger.lose()
        stranger = FakePeer("10.0.0.66:40000")
        with pytest.raises(RequestError, match="alive"):
            namesrv.register(port=10921, peer=stranger)
        again.lose()


def test_who_has_a_name_for_long_keeps_it(namesrv: Any) -> None:
    """A broker was moved, and its former process is started by mistake, much later."""
    peer = FakePeer()
    namesrv.register(peer=peer)
    peer.lose()
    for _ in range(11):
        namesrv.register(port=10921)
        namesrv.clock.advance(60)
    with pytest.raises(RequestError, match="alive"):
        namesrv.register()


@pytest.mark.parametrize("epoch", [0, 4])
def test_the_log_says_who_takes_a_living_masters_place(namesrv: Any, epoch: int) -> None:
    """An election's new master, or anybody who says so."""
    namesrv.register(state_version=epoch)
    if not epoch:
        namesrv.register(broker_id=2, port=10921)
    with capturedLogs() as events:
        namesrv.register(port=10921, state_version=epoch and epoch + 1)
    (event,) = [event for event in events if event["log_level"].name == "warn"]
    assert event["holder"] == "127.0.0.1:10911" and event["address"] == "127.0.0.1:10921"
    assert namesrv.addresses("T1") == {"broker-a": {"0": "127.0.0.1:10921"}}


@pytest.mark.parametrize("code", [205, 327])
def test_permissions_that_a_stranger_changed_are_the_brokers_again(namesrv: Any, code: int) -> None:
    def perm() -> int:
        return int(namesrv.route("T1")["queueDatas"][0]["perm"])

    topics = {"T1": {"topicName": "T1", "perm": 6 if code == 205 else 4}}
    changed = 4 if code == 205 else 6
    version = {"stateVersion": 0, "timestamp": 1, "counter": 1}
    body = {"topicConfigSerializeWrapper": {"topicConfigTable": topics, "dataVersion": version}}
    data = json.dumps({**body, "filterServerList": []}).encode()
    known = {"T2": {"topicName": "T2"}, **topics}
    body["topicConfigSerializeWrapper"]["topicConfigTable"] = known
    data = json.dumps(body).encode()
    asked = {key: value for key, value in REGISTRATION.items() if key != "haServerAddr"}
    namesrv.ask(103, REGISTRATION, data)

    def is_changed() -> str:
        answer = namesrv.ask(322, asked, json.dumps(version).encode())
        return answer.ext_fields["changed"]

    administrator = FakePeer()
    administrator.identity = ADMINISTRATOR
    lasting = namesrv.ask(code, {"brokerName": "broker-a"}, peer=administrator)
    assert lasting.remark is None
    namesrv.ask(103, REGISTRATION, data)
    assert perm() == changed and is_changed() == "false"
    passing = namesrv.ask(code, {"brokerName": "broker-a"}, peer=FakePeer("10.0.0.66:5"))
    assert passing.remark.startswith(
        "it holds until the broker registers again, as its registerNameServerPeriod says (30 s by"
    )
    assert "add 10.0.0.66 to adminAddresses" in passing.remark
    assert perm() == changed and is_changed() == "true"
    namesrv.ask(103, REGISTRATION, data)
    assert perm() == 10 - changed and is_changed() == "false"
    namesrv.ask(code, {"brokerName": "nobody"}, peer=FakePeer("10.0.0.66:5"))


OWNER = {"brokerAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}
OTHER = {"brokerAddr": "10.0.0.2:10911", "haServerAddr": "10.0.0.2:10912"}


class Members:
    """A master at 10.0.0.1 and a slave with the id 7 at 10.0.0.2."""

    def __init__(self, namesrv: Any) -> None:
        self.namesrv = namesrv
        self.owner, self.other = FakePeer("10.0.0.1:40000"), FakePeer("10.0.0.2:40000")
        namesrv.register(peer=self.owner, **OWNER)
        namesrv.register(broker_id=7, peer=self.other, **OTHER)

    def asks(self, broker_id: int = 0) -> list[Any]:
        """The slave registers with another id; the answer, or the failure, once it comes."""
        answers: list[Any] = []
        body = {"topicConfigSerializeWrapper": {"topicConfigTable": {}}}
        fields = {**REGISTRATION, **OTHER, "brokerId": str(broker_id)}
        command = RemotingCommand(103, ext_fields=fields, body=json.dumps(body).encode())
        answer = self.namesrv.server.handlers[103](command, self.other)
        if isinstance(answer, Deferred):
            answer.addBoth(answers.append)
        else:
            answers.append(answer)
        return answers

    def answer(self) -> None:
        """The master answers what it was asked."""
        for request, asking in self.owner.requests:
            if not asking.called:
                asking.callback(request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))

    def pass_seconds(self, seconds: int, *, answering: bool) -> None:
        for _ in range(seconds * 2):
            if answering:
                self.answer()
            self.namesrv.clock.advance(0.5)

    @property
    def addresses(self) -> dict[str, str]:
        return dict(self.namesrv.addresses("T1")["broker-a"])


def test_a_member_does_not_take_the_id_of_one_that_answers(namesrv: Any) -> None:
    """Whoever registers is a slave of any group, and was its master a moment later."""
    group = Members(namesrv)
    answers = group.asks()
    group.pass_seconds(9, answering=True)
    assert not answers, "the former master of a DLedger group gives its id up a little later"
    with capturedLogs() as events:
        group.pass_seconds(3, answering=True)
    (refusal,) = answers
    assert "is broker broker-a 0 and alive" in refusal.getErrorMessage()
    assert any(event["log_level"].name == "error" for event in events)
    assert group.addresses == {"0": "10.0.0.1:10911", "7": "10.0.0.2:10911"}
    assert namesrv.register(peer=group.owner, **OWNER).code == 0


def test_a_member_gets_the_id_once_its_holder_gives_it_up(namesrv: Any) -> None:
    """As in a DLedger group, whose elections name servers know nothing of."""
    group = Members(namesrv)
    answers = group.asks()
    group.pass_seconds(2, answering=True)
    namesrv.register(broker_id=1, peer=group.owner, **OWNER)
    group.pass_seconds(2, answering=True)
    assert [answer.code for answer in answers] == [0]
    assert group.addresses == {"0": "10.0.0.2:10911", "1": "10.0.0.1:10911"}


def test_a_member_gets_the_id_of_one_that_does_not_answer(namesrv: Any) -> None:
    """Its machine died without a word; the name server would miss it after two minutes."""
    group = Members(namesrv)
    answers = group.asks()
    with capturedLogs() as events:
        group.pass_seconds(4, answering=False)
    assert [answer.code for answer in answers] == [0]
    assert any("does not answer" in formatEvent(event) for event in events)
    assert group.addresses == {"0": "10.0.0.2:10911"}


def test_a_holder_that_was_paused_is_heard_again(namesrv: Any) -> None:
    """And where it only gives the id up then, the new holder has it at once."""
    group = Members(namesrv)
    group.asks()
    group.pass_seconds(4, answering=False)
    assert namesrv.register(peer=group.owner, **OWNER).code == 0
    assert group.addresses == {"0": "10.0.0.1:10911"}
    namesrv.register(broker_id=1, peer=group.owner, **OWNER)
    assert group.addresses == {"0": "10.0.0.2:10911", "1": "10.0.0.1:10911"}
    group.other.lose()
    assert group.addresses == {"1": "10.0.0.1:10911"}


def test_many_who_ask_for_an_id_ask_its_holder_once(namesrv: Any) -> None:
    group = Members(namesrv)
    for number in range(3, 9):
        host = f"10.0.0.{number}"
        fields = {"brokerAddr": f"{host}:10911", "haServerAddr": f"{host}:10912"}
        group.other = FakePeer(f"{host}:40000")
        namesrv.register(broker_id=number + 10, peer=group.other, **fields)
        answer = namesrv.server.handlers[103](
            RemotingCommand(103, ext_fields=REGISTRATION | fields | {"brokerId": "0"}), group.other
        )
        assert isinstance(answer, Deferred)
        answer.addErrback(lambda _: None)
    assert len(group.owner.requests) == 1


HUGE = 10**12


def test_an_epoch_far_ahead_does_not_make_the_masters_own_old(namesrv: Any) -> None:
    owner = FakePeer("10.0.0.1:40000")
    namesrv.register(peer=owner, state_version=5, **OWNER)
    stranger = FakePeer("10.0.0.66:40000")
    with pytest.raises(RequestError, match="alive"):
        namesrv.register(peer=stranger, state_version=HUGE, **OTHER)
    # Nor as a slave that changes its id.
    namesrv.register(broker_id=7, peer=stranger, state_version=HUGE, **OTHER)
    with pytest.raises(RequestError, match="alive"):
        namesrv.register(peer=stranger, state_version=HUGE, **OTHER)
    for epoch in (5, 6):
        assert namesrv.register(peer=owner, state_version=epoch, **OWNER).code == 0
        assert namesrv.addresses("T1")["broker-a"]["0"] == "10.0.0.1:10911"


@pytest.mark.parametrize(("former", "ahead"), [(5, HUGE), (0, HUGE), (0, 1)])
@pytest.mark.parametrize("is_other", [False, True])
def test_an_epoch_that_was_made_up_meanwhile_keeps_no_master_out(
    namesrv: Any, former: int, ahead: int, is_other: bool
) -> None:
    """The master is started again, or another one was elected meanwhile."""
    owner = FakePeer("10.0.0.1:40000")
    namesrv.register(peer=owner, state_version=former, **OWNER)
    owner.lose()
    stranger = FakePeer("10.0.0.66:40000")
    fields = {"brokerAddr": "10.0.0.66:10911", "haServerAddr": "10.0.0.66:10912"}
    namesrv.register(peer=stranger, state_version=ahead, **fields)
    if is_other and former:
        namesrv.register(peer=FakePeer("10.0.0.2:4"), state_version=former + 1, **OTHER)
        assert namesrv.addresses("T1") == {"broker-a": {"0": "10.0.0.2:10911"}}
    else:
        namesrv.register(peer=FakePeer("10.0.0.1:40001"), state_version=former, **OWNER)
        assert namesrv.addresses("T1") == {"broker-a": {"0": "10.0.0.1:10911"}}
    with pytest.raises(RequestError, match="alive"):
        namesrv.register(peer=stranger, state_version=HUGE, **fields)


def test_nobody_fills_a_group_for_its_members(namesrv: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "MAX_BROKERS_OF_NAME", 6)
    namesrv.register(peer=FakePeer("10.0.0.1:40000"), **OWNER)
    stranger = FakePeer("10.0.0.66:40000")
    for number in range(1, 6):
        namesrv.register(broker_id=number, port=20000 + number, peer=stranger)
    with pytest.raises(RequestError, match="6 brokers named"):
        namesrv.register(broker_id=6, port=20006, peer=stranger)
    with capturedLogs() as events:
        assert namesrv.register(broker_id=8, peer=FakePeer("10.0.0.2:1"), **OTHER).code == 0
    (event,) = [event for event in events if event["log_level"].name == "error"]
    assert "10.0.0.66" in formatEvent(event)
    found = namesrv.addresses("T1")["broker-a"]
    assert found["0"] == "10.0.0.1:10911" and found["8"] == "10.0.0.2:10911" and len(found) == 6


def test_nobody_fills_the_name_server_for_others(namesrv: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(room, "MAX_BROKERS", 6)
    namesrv.register(peer=FakePeer("10.0.0.1:40000"), **OWNER)
    stranger = FakePeer("10.0.0.66:40000")
    for number in range(1, 6):
        namesrv.register(f"stranger-{number}", port=20000 + number, peer=stranger)
    with pytest.raises(RequestError, match="6 brokers"):
        namesrv.register("stranger-6", port=20006, peer=stranger)
    with capturedLogs() as events:
        namesrv.register("broker-b", peer=FakePeer("10.0.0.2:1"), **OTHER)
    (event,) = [event for event in events if event["log_level"].name == "error"]
    assert "10.0.0.66" in formatEvent(event)
    names = set(namesrv.server.table.broker_names())
    assert {"broker-a", "broker-b"} < names and len(names) == 6 and "stranger-5" not in names
    # Hosts that have as few as others keep theirs.
    for number in range(3, 7):
        host = f"10.0.0.{number}"
        fields = {"brokerAddr": f"{host}:10911", "haServerAddr": f"{host}:10912"}
        peer = FakePeer(f"{host}:1")
        if number == 6:
            with pytest.raises(RequestError, match="6 brokers"):
                namesrv.register(host, peer=peer, **fields)
        else:
            namesrv.register(host, peer=peer, **fields)
