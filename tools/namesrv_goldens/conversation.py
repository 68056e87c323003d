"""One conversation with a name server, step by step: what is asked, in an order that tells.

Each step is the JSON that the goldens keep: a name, the request, and since which version of stock
it can be asked.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

from rocketmq_tw.wire.codes import RequestCode as Code
from rocketmq_tw.wire.command import SerializeType
from tools.namesrv_goldens.steps import (
    V4_9_7,
    Step,
    broker,
    compressed,
    registration,
    route,
    since_5,
    step,
    topic,
    version,
)


def conversation() -> Iterator[Step]:
    """Every request that a name server answers, in an order that makes each answer matter."""
    yield from empty_server()
    yield from registrations()
    yield from compressed_registrations()
    yield from versions()
    yield from members()
    yield from routes()
    yield from many_brokers()
    yield from lists()
    yield from key_values()
    yield from permissions()
    yield from given_topics()
    yield from deleted_topics()
    yield from zones()
    yield from static_topics()
    yield from acting_masters()
    yield from bad_requests()
    yield from leaving()


def empty_server() -> Iterator[Step]:
    yield step("no cluster yet", Code.GET_BROKER_CLUSTER_INFO)
    yield step("no topic yet", Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    yield step("no system topic yet", Code.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    yield route("a topic that is not there", "TopicTest")


def registrations() -> Iterator[Step]:
    topics = [
        topic("TopicTest"),
        topic("broker-a", queues=1, perm=7),
        topic("TBW102", perm=7),
        topic("Ordered", queues=4),
        topic("Unit", flag=1),
        topic("UnitSub", flag=2),
        topic("UnitBoth", flag=3),
        topic("\u8bdd\u9898"),
    ]
    body = registration(topics)
    yield step(
        "a master as 4.9.7 registers",
        Code.REGISTER_BROKER,
        body,
        version=V4_9_7,
        **broker("broker-a", compressed="false", bodyCrc32=zlib.crc32(body.encode()) & 0x7FFFFFFF),
    )
    yield step(
        "its slave",
        Code.REGISTER_BROKER,
        registration(topics),
        version=V4_9_7,
        **broker("broker-a", 1, 10921),
    )
    yield step(
        "a broker without a body",
        Code.REGISTER_BROKER,
        **broker("broker-empty", port=10951),
    )


@since_5
def compressed_of_5() -> Iterator[Step]:
    packed = compressed(
        [topic("TopicTest", queues=4), topic("OnlyB", queues=2)], 3, mapping_count=True
    )
    yield step(
        "a 5.x master, compressed, in the binary form",
        Code.REGISTER_BROKER,
        packed,
        serialization=SerializeType.ROCKETMQ,
        **broker(
            "broker-b",
            port=10931,
            compressed="true",
            bodyCrc32=zlib.crc32(packed) & 0x7FFFFFFF,
            enableActingMaster="false",
            heartbeatTimeoutMillis=60000,
        ),
    )


def compressed_registrations() -> Iterator[Step]:
    yield from compressed_of_5()
    packed = compressed([topic("OnlyC"), topic("TopicTest")], 3, mapping_count=False)
    yield step(
        "a 4.9 master, compressed",
        Code.REGISTER_BROKER,
        packed,
        version=V4_9_7,
        **broker("broker-c", port=10941, compressed="true"),
    )


def versions() -> Iterator[Step]:
    yield step(
        "the same data version",
        Code.QUERY_DATA_VERSION,
        json.dumps(version(1)),
        **{k: v for k, v in broker("broker-a").items() if k != "haServerAddr"},
    )
    yield step(
        "another data version",
        Code.QUERY_DATA_VERSION,
        json.dumps(version(2)),
        **{k: v for k, v in broker("broker-a").items() if k != "haServerAddr"},
    )
    yield step(
        "the data version of a stranger",
        Code.QUERY_DATA_VERSION,
        json.dumps(version(2)),
        **{k: v for k, v in broker("broker-z", port=1).items() if k != "haServerAddr"},
    )
    yield step(
        "unchanged version: topics are not rewritten",
        Code.REGISTER_BROKER,
        registration([topic("TopicTest", queues=1), topic("Unit", queues=1)]),
        **broker("broker-a"),
    )
    yield route("the unchanged topic", "TopicTest")


@since_5
def members() -> Iterator[Step]:
    yield step(
        "unchanged version, but a topic that is new",
        Code.REGISTER_BROKER,
        registration([topic("TopicTest"), topic("Sneaked")]),
        **broker("broker-a"),
    )
    yield route("the topic that sneaked in", "Sneaked")
    yield step(
        "members of nobody",
        Code.GET_BROKER_MEMBER_GROUP,
        clusterName="DefaultCluster",
        brokerName="broker-z",
    )
    yield step(
        "a heartbeat",
        Code.BROKER_HEARTBEAT,
        clusterName="DefaultCluster",
        brokerAddr="127.0.0.1:10911",
        brokerName="broker-a",
    )
    yield step(
        "members",
        Code.GET_BROKER_MEMBER_GROUP,
        clusterName="DefaultCluster",
        brokerName="broker-a",
    )


def routes() -> Iterator[Step]:
    for asked in (0, 400, 401, V4_9_7):
        yield route(f"route for a client of version {asked}", "TopicTest", version=asked)
    yield route("standard JSON", "TopicTest", version=0, acceptStandardJsonOnly="true")
    yield route("no standard JSON", "TopicTest", version=0, acceptStandardJsonOnly="false")
    yield route("a topic beyond ASCII", "\u8bdd\u9898")
    yield route("a topic beyond ASCII for an old client", "\u8bdd\u9898", version=0)
    yield step("cluster", Code.GET_BROKER_CLUSTER_INFO)


def many_brokers() -> Iterator[Step]:
    """As many as make Java's tables grow twice: their order follows the hash codes."""
    for number in range(1, 27):
        yield step(
            f"broker {number} of many",
            Code.REGISTER_BROKER,
            registration([topic("Spread", queues=number), topic(f"Single-{number}")]),
            **broker(f"many-{number}", port=20000 + 10 * number, enableActingMaster="false"),
        )
        yield route(f"order among {number}", "Spread")
    yield route("order among 26 for an old client", "Spread", version=0)
    for number in range(1, 27):
        gone = broker(f"many-{number}", port=20000 + 10 * number)
        del gone["haServerAddr"]
        yield step(f"broker {number} leaves", Code.UNREGISTER_BROKER, **gone)
    yield route("all of them left", "Spread")


def lists() -> Iterator[Step]:
    yield step("all topics", Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    yield step("system topics", Code.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    yield step("topics of a cluster", Code.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster")
    yield step("topics of no cluster", Code.GET_TOPICS_BY_CLUSTER, cluster="Nowhere")
    yield step("unit topics", Code.GET_UNIT_TOPIC_LIST)
    yield step("unit subscriptions", Code.GET_HAS_UNIT_SUB_TOPIC_LIST)
    yield step("unit subscriptions without unit", Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)


def key_values() -> Iterator[Step]:
    space = "ORDER_TOPIC_CONFIG"
    yield step("no value", Code.GET_KV_CONFIG, namespace=space, key="Ordered")
    yield step("no namespace", Code.GET_KVLIST_BY_NAMESPACE, namespace=space)
    yield step(
        "put", Code.PUT_KV_CONFIG, namespace=space, key="Ordered", value="broker-a:4;broker-b:2"
    )
    yield step("get", Code.GET_KV_CONFIG, namespace=space, key="Ordered")
    yield step("list", Code.GET_KVLIST_BY_NAMESPACE, namespace=space)
    yield step(
        "a registration is told the ordered topics",
        Code.REGISTER_BROKER,
        registration([topic("TopicTest")]),
        **broker("broker-a"),
    )
    yield route("an ordered topic", "Ordered")
    yield step("delete", Code.DELETE_KV_CONFIG, namespace=space, key="Ordered")
    yield step("delete again", Code.DELETE_KV_CONFIG, namespace=space, key="Ordered")
    yield step("deleted", Code.GET_KV_CONFIG, namespace=space, key="Ordered")
    yield step("an emptied namespace", Code.GET_KVLIST_BY_NAMESPACE, namespace=space)


def permissions() -> Iterator[Step]:
    yield step("wipe write permission", Code.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    yield route("after the wipe", "TopicTest")
    yield step("give it back", Code.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    yield route("after giving it back", "TopicTest")
    yield step("wipe a stranger", Code.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-z")


@since_5
def given_topics() -> Iterator[Step]:
    queue = {"perm": 6, "readQueueNums": 2, "topicSysFlag": 0, "writeQueueNums": 2}
    yield step(
        "register a topic",
        Code.REGISTER_TOPIC_IN_NAMESRV,
        json.dumps({"brokerDatas": [], "queueDatas": [{"brokerName": "broker-b", **queue}]}),
        topic="Given",
    )
    yield route("the registered topic", "Given")
    yield step(
        "register a topic on a stranger",
        Code.REGISTER_TOPIC_IN_NAMESRV,
        json.dumps({"brokerDatas": [], "queueDatas": [{"brokerName": "broker-z", **queue}]}),
        topic="NotGiven",
    )
    yield route("the topic of a stranger", "NotGiven")
    yield step("delete a topic", Code.DELETE_TOPIC_IN_NAMESRV, topic="Given")
    yield route("the deleted topic", "Given")


@since_5
def deleted_topics() -> Iterator[Step]:
    yield step(
        "delete a topic of another cluster",
        Code.DELETE_TOPIC_IN_NAMESRV,
        topic="OnlyB",
        clusterName="Nowhere",
    )
    yield route("not deleted", "OnlyB")
    yield step(
        "delete a topic of a cluster",
        Code.DELETE_TOPIC_IN_NAMESRV,
        topic="OnlyB",
        clusterName="DefaultCluster",
    )
    yield route("deleted in its cluster", "OnlyB")


@since_5
def zones() -> Iterator[Step]:
    yield step(
        "a broker with filter servers and a zone",
        Code.REGISTER_BROKER,
        registration(
            [topic("Filtered"), topic("East")],
            filter_servers=("127.0.0.1:30001", "127.0.0.1:30002"),
        ),
        **broker("broker-f", port=10961, __ZONE_NAME="east"),
    )
    yield step(
        "a broker in another zone",
        Code.REGISTER_BROKER,
        registration([topic("Filtered"), topic("West")]),
        **broker("broker-g", port=10971, __ZONE_NAME="west"),
    )
    yield route("filter servers", "Filtered")
    yield route("filter servers for an old client", "Filtered", version=0)
    yield route("one zone", "Filtered", __ZONE_MODE="true", __ZONE_NAME="EAST")
    yield route("a zone without brokers", "Filtered", __ZONE_MODE="true", __ZONE_NAME="north")


@since_5
def static_topics() -> Iterator[Step]:
    mapping = {
        "bname": "broker-m",
        "currIdMap": {"0": 0, "1": 1},
        "dirty": False,
        "epoch": 1700000000000,
        "scope": "__global__",
        "topic": "Static",
        "totalQueues": 2,
    }
    yield step(
        "a static topic",
        Code.REGISTER_BROKER,
        registration([topic("Static", queues=2), topic("Plain")], mappings={"Static": mapping}),
        **broker("broker-m", port=10981),
    )
    yield route("the static topic", "Static")
    yield route("the static topic for an old client", "Static", version=0)


@since_5
def acting_masters() -> Iterator[Step]:
    yield step(
        "a slave alone, as 5.x with an acting master",
        Code.REGISTER_BROKER,
        registration([topic("Lonely"), topic("Lonely2")]),
        **broker("broker-s", 2, 10991, enableActingMaster="true"),
    )
    yield route("the route of a slave alone", "Lonely")
    yield step(
        "its master comes",
        Code.REGISTER_BROKER,
        registration([topic("Lonely"), topic("Lonely2")], 2),
        **broker("broker-s", 0, 11001, enableActingMaster="true"),
    )
    yield route("with its master", "Lonely")
    yield step(
        "the slave again",
        Code.REGISTER_BROKER,
        registration([topic("Lonely"), topic("Lonely2")]),
        **broker("broker-s", 2, 10991, enableActingMaster="true"),
    )
    yield step(
        "a slave becomes master at its address",
        Code.REGISTER_BROKER,
        registration([topic("Lonely"), topic("Lonely2")], 3),
        **broker("broker-s", 0, 10991, enableActingMaster="true"),
    )
    yield route("the slave as master", "Lonely")
    yield step(
        "one topic of a broker that never registered",
        Code.REGISTER_BROKER,
        registration([topic("Early")]),
        **broker("broker-s", 5, 11011, enableActingMaster="true"),
    )


@since_5
def bad_requests() -> Iterator[Step]:
    yield step(
        "a wrong checksum",
        Code.REGISTER_BROKER,
        registration([topic("TopicTest")]),
        **broker("broker-a", bodyCrc32=7),
    )
    yield step("a body that is no JSON", Code.REGISTER_BROKER, "{", **broker("broker-x"))
    yield step("a code that nobody knows", 999)
    yield step("a broker's code", Code.PULL_MESSAGE)
    yield step("a key on the black list", Code.UPDATE_NAMESRV_CONFIG, "kvConfigPath=/tmp/x\n")


def leaving() -> Iterator[Step]:
    fields = broker("broker-a", 1, 10921)
    del fields["haServerAddr"]
    yield step("a slave leaves", Code.UNREGISTER_BROKER, **fields)
    yield route("without the slave", "TopicTest")
    fields = broker("broker-a")
    del fields["haServerAddr"]
    yield step("its master leaves", Code.UNREGISTER_BROKER, **fields)
    yield route("without broker-a", "TopicTest")
    yield route("a topic that left with it", "UnitBoth")
    yield step("cluster without broker-a", Code.GET_BROKER_CLUSTER_INFO)
