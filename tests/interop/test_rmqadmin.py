"""rmqadmin on stock's servers, stock's mqadmin on ours: each sees what is there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.guarded import KEYS, guarded_cluster
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients
from tests.support.rmqadmin import answer, rmqadmin
from tests.support.wait import wait_until

# rmqadmin on stock's servers


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server of 5.3.3, a broker of each version."""
    home = tmp_path_factory.mktemp("rmqadmin")
    # Without its timer wheel 5.3.3 cannot delete a topic.
    settings = {"timerWheelEnable": "true"}
    with Cluster.of(
        home, name_servers=["5.3.3"], brokers=list(STOCK_VERSIONS), settings=settings
    ) as started:
        # A broker of stock fails at telling its state until its first sample, a second after start.
        wait_until(
            lambda: not rmqadmin(started.namesrv, "clusterList").stderr, "both brokers' state"
        )
        yield started


def test_brokers_of_stock_are_listed(stock: Cluster) -> None:
    rows = answer(stock.namesrv, "clusterList")["brokers"]
    assert [(row["address"], row["version"], row["active"]) for row in rows] == [
        (broker.address, version, True)
        for broker, version in zip(stock.brokers, ("V4_9_7", "V5_3_3"), strict=True)
    ]
    assert all(row["in"]["tps"] >= 0 and 0 < row["diskRatio"] < 1 for row in rows)


def test_a_topic_on_stock_from_its_making_to_its_end(stock: Cluster, names) -> None:
    topic = names.topic
    addresses = [broker.address for broker in stock.brokers]
    made = answer(stock.namesrv, f"updateTopic -t {topic} -c TestCluster -r 2 -w 2")
    assert sorted(made["brokers"]) == sorted(addresses)
    wait_until(lambda: stock.name_servers[0].routes(topic, stock.brokers), "the route of the topic")
    route = answer(stock.namesrv, f"topicRoute -t {topic}")
    assert sorted(data["brokerAddrs"]["0"] for data in route["brokerDatas"]) == sorted(addresses)

    sent = [
        answer(stock.namesrv, f"sendMessage -t {topic} -p b{number} -b {broker.name} -i 1 -k key")
        for number, broker in enumerate(stock.brokers)
    ]

    def max_offsets() -> list[int]:
        status = answer(stock.namesrv, f"topicStatus -t {topic}")["queues"]
        return [queue["maxOffset"] for queue in status]

    # Stock puts what it has stored into its queues a little later.
    wait_until(lambda: max_offsets() == [0, 1, 0, 1], "both messages in their queues")

    read = answer(stock.namesrv, f"consumeMessage -t {topic}")["messages"]
    assert [(message["body"], message["keys"]) for message in read] == [
        ("b0", ["key"]), ("b1", ["key"])
    ]  # fmt: skip
    assert [message["messageId"] for message in read] == [row["messageId"] for row in sent]
    answer(stock.namesrv, f"deleteTopic -y -t {topic} -c TestCluster")
    gone = rmqadmin(stock.namesrv, f"topicRoute -t {topic}")
    assert gone.returncode == 1
    assert gone.stderr.startswith(f"rmqadmin: no name server knows the topic {topic}")


def test_messages_and_state_of_stock_brokers(stock: Cluster, names) -> None:
    topic = names.topic
    answer(stock.namesrv, f"updateTopic -t {topic} -c TestCluster -r 1 -w 1")
    wait_until(lambda: stock.name_servers[0].routes(topic, stock.brokers), "the route of the topic")
    (broker, _) = stock.brokers
    sent = answer(stock.namesrv, f"sendMessage -t {topic} -p body -b {broker.name} -k key -c tag")

    def found(command: str) -> list[tuple[str, str]]:
        done = rmqadmin(stock.namesrv, f"{command} --output json")
        messages = json.loads(done.stdout)["messages"] if done.returncode == 0 else []
        return [(message["messageId"], message["body"]) for message in messages]

    wanted = [(sent["messageId"], "body")]
    # Stock fills its index a little later.
    wait_until(lambda: found(f"queryMsgByKey -t {topic} -k key") == wanted, "the message by key")
    assert found(f"queryMsgById -t {topic} -i {sent['messageId']}") == wanted
    assert found(f"queryMsgByOffset -t {topic} -b {broker.name} -i 0 -o 0") == wanted
    units = answer(stock.namesrv, f"queryCq -t {topic} -q 0 -i 0 -b {broker.address}")["units"]
    assert [(unit["index"], unit["size"] > 0) for unit in units] == [(0, True)]
    status = answer(stock.namesrv, "brokerStatus -c TestCluster")["brokers"]
    assert [one["address"] for one in status] == [each.address for each in stock.brokers]
    changed = answer(stock.namesrv, f"updateTopicPerm -t {topic} -c TestCluster -p 4")["brokers"]
    assert [row["permBefore"] for row in changed] == [6, 6]


@pytest.fixture(scope="module", params=STOCK_VERSIONS)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with guarded_cluster(tmp_path_factory.mktemp("guarded"), request.param) as started:
        yield started


def test_keys_open_a_guarded_broker_of_stock(guarded: Cluster, tmp_path: Path, names) -> None:
    topic = names.topic
    making = f"updateTopic -t {topic} -c TestCluster -r 1 -w 1"
    refused = rmqadmin(guarded.namesrv, making)
    assert refused.returncode == 1
    assert re.search("accessKey|username", refused.stderr) and refused.stderr.count("\n") == 1
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: {access_key}\nsecretKey: {secret_key}\n".format(**KEYS))
    keys = f" --credentials {file}"
    answer(guarded.namesrv, making + keys)
    names_of = guarded.name_servers[0]
    wait_until(lambda: names_of.routes(topic, guarded.brokers), "the route of the topic")
    sent = answer(guarded.namesrv, f"sendMessage -t {topic} -p ü -k key -c tag{keys}")
    queries = [
        f"queryMsgByKey -t {topic} -k key",
        f"queryMsgByUniqueKey -t {topic} -i {sent['messageId']}",
        f"consumeMessage -t {topic}",
    ]
    for query in queries:

        def is_shown(call: str = f"{query}{keys} --output json") -> bool:
            return '"body":"ü"' in rmqadmin(guarded.namesrv, call).stdout

        # Stock fills its queues and its index a little later.
        wait_until(is_shown, query)
        assert rmqadmin(guarded.namesrv, query).returncode == 1
    answer(guarded.namesrv, f"deleteTopic -y -t {topic} -c TestCluster{keys}")


def test_a_group_on_stock(stock: Cluster, jvms: dict[str, JavaClients], names) -> None:
    topic, group = names.topic, names.group
    java = jvms["5.3.3"]
    stock.create_topic(java, topic, queues=1)
    with (
        java.producer(stock.namesrv) as producer,
        java.consumer(stock.namesrv, group, {topic: "*"}) as consumer,
    ):
        producer.send(*({"topic": topic, "body": str(number)} for number in range(6)))
        consumer.received(6)
        queues = answer(stock.namesrv, f"consumerProgress -g {group} -t {topic} -s true")["queues"]
        assert [queue["brokerOffset"] for queue in queues] == [3, 3]
        assert all(queue["client"] for queue in queues)
        rows = {row["group"]: row for row in answer(stock.namesrv, "consumerProgress")["groups"]}
        assert (rows[group]["count"], rows[group]["version"]) == (1, "V5_3_3")
        assert (rows[group]["type"], rows[group]["model"]) == ("PUSH", "CLUSTERING")
        listed = answer(stock.namesrv, "topicList -c")["topics"]
    (found,) = [row for row in listed if row["topic"] == topic]
    assert found["clusters"] == ["TestCluster"]
    assert group in found["consumerGroups"]


def test_a_group_of_stock_is_made_and_deleted(
    stock: Cluster, jvms: dict[str, JavaClients], names
) -> None:
    group = names.group
    addresses = sorted(broker.address for broker in stock.brokers)
    made = answer(stock.namesrv, f"updateSubGroup -g {group} -c TestCluster -r 3 -q 2 -d true")
    assert sorted(made["brokers"]) == addresses

    listed = jvms["5.3.3"].mqadmin("getConsumerConfig", "-g", group, "-n", stock.namesrv)
    for key, value in (("groupName", group), ("retryMaxTimes", 3), ("retryQueueNums", 2)):
        assert len(re.findall(rf"{key} *= *{value}\n", listed)) == 2, listed
    deleted = answer(stock.namesrv, f"deleteSubGroup -y -g {group} -c TestCluster -r true")
    assert sorted(deleted["brokers"]) == addresses


def test_the_configuration_of_stock_brokers(stock: Cluster) -> None:
    key = "consumerFallbehindThreshold"
    changed = answer(stock.namesrv, f"updateBrokerConfig -c TestCluster -k {key} -v 123456")
    assert sorted(changed["brokers"]) == sorted(broker.address for broker in stock.brokers)
    found = answer(stock.namesrv, "getBrokerConfig -c TestCluster")["brokers"]
    assert {one["config"]["brokerName"]: one["config"][key] for one in found} == {
        broker.name: "123456" for broker in stock.brokers
    }


def test_a_name_server_that_is_down_ends_it_with_one_line() -> None:
    done = rmqadmin("127.0.0.1:1", "clusterList")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"rmqadmin: no name server answers: 127\.0\.0\.1:1: .*\n", done.stderr)


def test_tables_are_for_people(cluster: Cluster) -> None:
    done = rmqadmin(cluster.namesrv, "clusterList")
    assert done.returncode == 0, done.stderr
    title, _, line = done.stdout.splitlines()
    assert title.split()[:4] == ["Cluster", "Broker", "ID", "Address"]
    assert line.split()[:4] == ["TestCluster", cluster.broker.name, "0", cluster.broker.address]


# mqadmin on our servers


class Mqadmin:
    """mqadmin of one version on our cluster; words of what it printed."""

    def __init__(self, java: JavaClients, cluster: Cluster) -> None:
        self._java = java
        self._cluster = cluster

    def text(self, command: str) -> str:
        return self._java.mqadmin(*command.split(), "-n", self._cluster.namesrv)

    def __call__(self, command: str) -> list[list[str]]:
        """The words of each line."""
        shown = self.text(command)
        assert "Exception" not in shown, f"mqadmin {command}:\n{shown}"
        return [line.split() for line in shown.splitlines() if line.strip()]


@pytest.fixture
def mqadmin(java: JavaClients, cluster: Cluster) -> Mqadmin:
    return Mqadmin(java, cluster)


def test_mqadmin_exports_the_configuration(
    mqadmin: Mqadmin, cluster: Cluster, tmp_path: Path
) -> None:
    assert mqadmin(f"exportConfigs -c TestCluster -f {tmp_path}")[-1][-1] == "success"
    exported = json.loads((tmp_path / "configs.json").read_text())["brokerConfigs"]
    assert exported[cluster.broker.name]["brokerClusterName"] == "TestCluster"


def test_mqadmin_shows_the_broker(mqadmin: Mqadmin, cluster: Cluster) -> None:
    address, name = cluster.broker.address, cluster.broker.name
    (line,) = [line for line in mqadmin("clusterList") if name in line]
    assert line[:5] == ["TestCluster", name, "0", address, "V5_3_3"]
    (line,) = [line for line in mqadmin("clusterList -m") if name in line]
    assert all(int(count) >= 0 for count in line[2:])
    status = words_of_status(mqadmin.text(f"brokerStatus -b {address}"))
    assert status["brokerVersionDesc"] == ["V5_3_3"]
    assert int(status["bootTimestamp"][0]) > 0
    config = {line[0]: line[-1] for line in mqadmin(f"getBrokerConfig -b {address}")}
    assert (config["brokerName"], config["brokerClusterName"]) == (name, "TestCluster")


def words_of_status(shown: str) -> dict[str, list[str]]:
    """What brokerStatus printed: key to the words of its value."""
    pairs = re.findall(r"^(\S+?) *: (.*)$", shown, re.MULTILINE)
    return {key: value.split() for key, value in pairs}


@pytest.mark.parametrize("number", range(len(STOCK_VERSIONS)), ids=STOCK_VERSIONS)
def test_the_broker_status_has_all_keys_of_stock_s(
    jvms: dict[str, JavaClients], cluster: Cluster, stock: Cluster, number: int
) -> None:
    def status(broker: str, name_server: str) -> dict[str, list[str]]:
        java = jvms[STOCK_VERSIONS[number]]
        return words_of_status(java.mqadmin("brokerStatus", "-b", broker, "-n", name_server))

    theirs = status(stock.brokers[number].address, stock.namesrv)
    ours = status(cluster.broker.address, cluster.namesrv)
    # Each has its own directory of the log, and the delay levels that were used.
    own = re.compile("commitLogDiskRatio_|scheduleMessageOffset_")
    assert len(theirs) > 40
    assert {key for key in theirs if not own.match(key)} <= ours.keys()
    assert [key.split("_")[0] for key in ours if own.match(key)].count("commitLogDiskRatio") == 1
    assert len(ours["putMessageDistributeTime"]) == 13
    for key in ("putMessageAverageSize", "putLatency99", "putLatency999"):
        assert float(ours[key][0]) >= 0


def test_mqadmin_leads_a_topic_from_its_making_to_its_end(
    mqadmin: Mqadmin, cluster: Cluster, names
) -> None:
    topic, broker = names.topic, cluster.broker
    made = mqadmin(f"updateTopic -b {broker.address} -t {topic} -r 2 -w 2")
    assert ["create", "topic", "to", broker.address, "success."] in made
    assert [topic] in mqadmin("topicList")
    assert f'{{0:"{broker.address}"' in "".join(
        "".join(line) for line in mqadmin(f"topicRoute -t {topic}")
    )
    # A process may call sendMessage and consumeMessage once each.
    sent = mqadmin(f"sendMessage -t {topic} -p hello -k key -c tag")[-1]
    assert (sent[0], sent[2]) == (broker.name, "SEND_OK")
    units = mqadmin(f"queryCq -t {topic} -q {sent[1]} -i 0 -b {broker.address}")
    assert ["max:", "1,", "min:", "0"] in units, units
    queues = [line for line in mqadmin(f"topicStatus -t {topic}") if line[0] == broker.name]
    assert sorted(line[3] for line in queues) == ["0", "1"]
    read = [line for line in mqadmin(f"consumeMessage -t {topic}") if line[0] == "MSGID:"]
    assert [(line[1], line[-1]) for line in read] == [(sent[3], "hello")]
    assert [topic] in [line[1:2] for line in mqadmin("topicList -c")]
    deleted = mqadmin(f"deleteTopic -t {topic} -c TestCluster")
    assert [line[-1] for line in deleted] == ["success.", "success."]
    assert [topic] not in mqadmin("topicList")


def test_mqadmin_shows_clients_and_their_progress(
    mqadmin: Mqadmin, java: JavaClients, cluster: Cluster, names
) -> None:
    topic, group = cluster.create_topic(java, names.topic, queues=1), names.group
    producers = names.new("p")
    with (
        java.producer(cluster.namesrv, producers) as producer,
        java.consumer(cluster.namesrv, group, {topic: "*"}) as consumer,
    ):
        producer.send({"topic": topic, "body": "one"}, {"topic": topic, "body": "two"})
        consumer.received(2)
        connected = mqadmin(f"consumerConnection -g {group}")
        assert [topic, "*"] in connected
        assert ["MessageModel:", "CLUSTERING"] in connected
        # A producer of 4.9 says that it is there a second after its start.
        wait_until(
            lambda: " JAVA " in mqadmin.text(f"producerConnection -g {producers} -t {topic}"),
            "the producer's heartbeat",
        )
        (line,) = [line for line in mqadmin(f"statsAll -t {topic}") if line[0] == topic[:64]]
        # Behind those: what is accumulated, a second's in and out, the day's in and out.
        assert (line[1], line[5]) == (group, "2")
        assert int(line[6]) >= 2
        for command in ("cleanUnusedTopic", "cleanExpiredCQ", "deleteExpiredCommitLog"):
            assert mqadmin(f"{command} -b {cluster.broker.address}")[-1] == ["success"]

        def is_consumed() -> bool:
            # Stock's clients commit after 5 s; until then 4.9.7 ends with 206, 5.3.3 lists nothing.
            progress = mqadmin.text(f"consumerProgress -g {group}").splitlines()
            lines = [line.split() for line in progress if line.startswith(topic[:20])]
            if not lines:
                return False
            (line,) = lines
            assert line[1:4] == [cluster.broker.name, "0", "2"]
            return line[4:6] == ["2", "0"]

        # While it runs: what it tells at its end, one-way, may be lost with its connections.
        wait_until(is_consumed, "the group's offset", interval=0.5)
        consumer.stop()

    (line,) = [line for line in mqadmin("consumerProgress") if line[0] == group]
    assert line[1:3] == ["0", "OFFLINE"]
