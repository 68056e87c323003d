import io

import pytest

from rocketmq_tw.client.admin import AdminClient


def test_topics_are_listed(world) -> None:
    world.rmqadmin("updateTopic", "-t", "Orders", "-c", "DefaultCluster")
    names = [line for (line,) in world.rmqadmin("topicList").lines]
    assert names == sorted(names)
    assert {"Orders", "TBW102", "DefaultCluster"} <= set(names)
    listed = world.rmqadmin("topicList", "--output", "json").json
    assert listed == {"topics": [{"topic": name} for name in names]}


def test_topics_are_listed_with_clusters_and_groups(world) -> None:
    world.rmqadmin("updateTopic", "-t", "Orders", "-c", "DefaultCluster")
    consumer = world.consume("billing", "Orders")
    topics = world.rmqadmin("topicList", "-c", "--output", "json").json["topics"]
    assert {"topic": "Orders", "clusters": ["DefaultCluster"], "consumerGroups": ["billing"]} in (
        topics
    )
    assert not [topic for topic in topics if topic["topic"].startswith("%RETRY%")]
    assert ["DefaultCluster", "Orders", "billing"] in world.rmqadmin("topicList", "-c").lines
    world.result(consumer.stop())


def test_a_route(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic", "-t", "T", "-b", "10.0.0.2:10911", "-r", "3", "-w", "2")
    world.rmqadmin("updateTopic", "-t", "T", "-b", "10.0.0.3:10911", "-r", "4", "-p", "4")
    for flag in ((), ("-l",)):
        lines = world.rmqadmin("topicRoute", "-t", "T", *flag).lines
        assert lines[2:4] == [
            ["DefaultCluster", "broker-a", "0:", "10.0.0.2:10911", "3", "2", "6", "(RW)"],
            ["DefaultCluster", "broker-b", "0:", "10.0.0.3:10911", "4", "8", "4", "(R)"],
        ]
        assert " ".join(lines[4]) == "2 brokers, 7 queues to read, 10 to write"
    route = world.rmqadmin("topicRoute", "-t", "T", "--output", "json").json
    assert {data["brokerName"]: data["readQueueNums"] for data in route["queueDatas"]} == {
        "broker-a": 3, "broker-b": 4
    }  # fmt: skip
    assert {data["brokerName"]: data["brokerAddrs"] for data in route["brokerDatas"]} == {
        "broker-a": {"0": "10.0.0.2:10911"}, "broker-b": {"0": "10.0.0.3:10911"}
    }  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        "topicRoute -t nix",
        "topicStatus -t nix",
        "deleteTopic -y -t nix -c DefaultCluster",
        "consumeMessage -t nix",
        "consumerProgress -g g -t nix",
    ],
)
def test_an_unknown_topic_is_a_failure(world, command: str) -> None:
    outcome = world.rmqadmin(command)
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("rmqadmin: no name server knows the topic nix")
    assert outcome.err.count("\n") == 1


def test_the_status_sums_the_brokers(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic", "-t", "T", "-c", "DefaultCluster", "-r", "2", "-w", "2")
    world.rmqadmin("sendMessage", "-t", "T", "-p", "x", "-b", "broker-b", "-i", "1")
    for cluster in ((), ("-c", "DefaultCluster")):
        status = world.rmqadmin("topicStatus", "-t", "T", *cluster, "--output", "json").json
        offsets = {
            (queue["brokerName"], queue["queueId"]): (queue["minOffset"], queue["maxOffset"])
            for queue in status["queues"]
        }
        assert offsets == {
            ("broker-a", 0): (0, 0),
            ("broker-a", 1): (0, 0),
            ("broker-b", 0): (0, 0),
            ("broker-b", 1): (0, 1),
        }
    assert world.rmqadmin("topicStatus", "-t", "T").lines[5][:4] == ["broker-b", "1", "0", "1"]


def test_a_topic_gets_all_its_settings(world) -> None:
    outcome = world.rmqadmin(
        "updateTopic -b 10.0.0.2:10911 -t T -r 3 -w 2 -p 4 -u true -s true",
        "-a", "+message.type=FIFO",
        "--output", "json",
    )  # fmt: skip
    assert outcome.json == {
        "topic": "T",
        "readQueues": 3,
        "writeQueues": 2,
        "perm": 4,
        "order": False,
        "sysFlag": 3,
        "attributes": "+message.type=FIFO",
        "brokers": ["10.0.0.2:10911"],
        "orderConf": None,
    }
    config = world.brokers["broker-a"].topics.get("T")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 2, 4)
    assert (config.topic_sys_flag, config.attributes) == (3, {"message.type": "FIFO"})


def test_ordered_topics_tell_their_queues(world) -> None:
    def conf() -> str:
        admin = AdminClient(world.reactor, world.names, remoting=world.network.client())
        return world.result(admin.kv_config("ORDER_TOPIC_CONFIG", "T"))

    world.add_broker("broker-b", "10.0.0.3")
    done = world.rmqadmin("updateTopic -c DefaultCluster -t T -w 4 -o true")
    assert "order configuration: broker-a:4;broker-b:4" in done.out
    assert conf() == "broker-a:4;broker-b:4"
    world.rmqadmin("updateTopic -b 10.0.0.3:10911 -t T -w 6 -o true")
    assert conf() == "broker-a:4;broker-b:6"
    away = world.rmqadmin("updateTopic -b 10.0.0.7:10911 -t T -o true")
    assert away.err.startswith("rmqadmin: no broker is registered at 10.0.0.7:10911")


@pytest.mark.parametrize(("dead", "other"), [("10.0.0.2", "10.0.0.3"), ("10.0.0.3", "10.0.0.2")])
def test_a_cluster_that_is_done_by_half_says_so(world, dead: str, other: str) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.network.stop(f"{dead}:10911")
    outcome = world.rmqadmin("updateTopic -c DefaultCluster -t T")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith(f"rmqadmin: {dead}:10911: ")
    assert outcome.err.endswith(f"; done on {other}:10911\n")
    assert world.hosts[f"{other}:10911"].topics.get("T") is not None


def test_a_topic_is_deleted_from_name_servers_behind_one_that_is_down(world) -> None:
    world.rmqadmin("updateTopic -c DefaultCluster -t T")
    outcome = world.rmqadmin(
        "deleteTopic -y -c DefaultCluster -t T", name_servers=f"10.0.0.8:9876;{world.names}"
    )
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("rmqadmin: 10.0.0.8:9876: ")
    assert outcome.err.endswith(f"; done on {world.names}; done before that: 10.0.0.2:10911\n")
    assert "T" not in world.name_server_topics()


@pytest.mark.parametrize(
    "command",
    [
        "updateTopic -t T",
        "updateTopicPerm -t T -p 4",
        "updateSubGroup -g G",
        "deleteSubGroup -g G -y",
        "updateTopicList -f topics.json",
        "updateSubGroupList -f groups.json",
        "setConsumeMode -t T -g G -m POP",
    ],
)
def test_a_slave_is_not_said_to_have_changed_what_it_leaves_to_its_master(
    world, tmp_path, monkeypatch, command: str
) -> None:
    """It answers with success, as tools of stock need it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topics.json").write_text('[{"topicName": "T"}]')
    (tmp_path / "groups.json").write_text('[{"groupName": "G"}]')
    slave = world.add_broker("broker-a", "10.0.0.3", broker_id=1, store={"broker_role": "SLAVE"})
    outcome = world.rmqadmin(f"{command} -b {slave}")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == (
        f"rmqadmin: {slave} is a slave, its topics and groups are its master's: change them there"
        " (clusterList shows masters)\n"
    )


def test_a_topic_is_deleted_everywhere(world) -> None:
    world.rmqadmin("updateTopic -c DefaultCluster -t T")
    world.rmqadmin("sendMessage -t T -p x")
    outcome = world.rmqadmin("deleteTopic -y -c DefaultCluster -t T")
    assert outcome.out.splitlines() == [
        "topic T is deleted from 10.0.0.2:10911",
        "topic T is deleted from the name servers",
    ]
    assert world.brokers["broker-a"].topics.get("T") is None
    assert world.rmqadmin("topicRoute", "-t", "T").status == 1


def test_the_status_of_a_topic_in_one_cluster(world) -> None:
    world.add_broker("broker-b", "10.0.0.3")
    world.add_broker("broker-z", "10.0.0.9", broker_cluster_name="Other")
    world.rmqadmin("updateTopic -b 10.0.0.2:10911 -t T -r 1 -w 1")
    world.rmqadmin("updateTopic -c Other -t T -r 1 -w 1")
    for cluster, broker in {"DefaultCluster": "broker-a", "Other": "broker-z"}.items():
        (queue,) = world.rmqadmin(f"topicStatus -t T -c {cluster} --output json").json["queues"]
        assert queue["brokerName"] == broker
    outcome = world.rmqadmin("topicStatus -t T -c Nix")
    assert outcome.err == "rmqadmin: there is no cluster Nix; there are: DefaultCluster, Other\n"


def test_a_topic_is_not_deleted_in_the_wrong_cluster(world) -> None:
    world.add_broker("broker-b", "10.0.0.3", broker_cluster_name="Other")
    world.rmqadmin("updateTopic -c Other -t T")
    outcome = world.rmqadmin("deleteTopic -y -c DefaultCluster -t T")
    assert outcome.err == "rmqadmin: topic T is not in cluster DefaultCluster but in Other\n"
    assert world.brokers["broker-b"].topics.get("T") is not None


@pytest.mark.parametrize(
    ("answer", "options", "deleted"),
    [("n\n", (), False), ("\n", (), False), ("y\n", (), True), ("", ("--yes",), True)],
)
def test_at_a_terminal_it_asks_before_it_deletes(
    world, at_terminal, answer: str, options: tuple[str, ...], deleted: bool
) -> None:
    world.rmqadmin("updateTopic -c DefaultCluster -t T")
    at_terminal(answer)
    outcome = world.rmqadmin("deleteTopic -c DefaultCluster -t T", *options)
    assert outcome.status == (0 if deleted else 1)
    assert (world.brokers["broker-a"].topics.get("T") is None) == deleted
    if not deleted:
        assert outcome.err.endswith("rmqadmin: stopped, nothing is changed\n")


@pytest.mark.parametrize(
    "command",
    [
        "deleteTopic -c DefaultCluster -t T",
        "deleteSubGroup -c DefaultCluster -g G",
        "deleteSubGroup -b 10.0.0.2:10911 -g G",
    ],
)
@pytest.mark.parametrize("piped", ["", "n\n", "y\n", None])
def test_without_a_terminal_nothing_is_destroyed_unless_yes_is_given(
    world, monkeypatch, command: str, piped: str | None
) -> None:
    world.rmqadmin("updateTopic -c DefaultCluster -t T")
    world.rmqadmin("updateSubGroup -c DefaultCluster -g G")
    # None: stdin is closed.
    monkeypatch.setattr("sys.stdin", None if piped is None else io.StringIO(piped))
    outcome = world.rmqadmin(command)
    assert outcome.status == 2
    assert outcome.err.startswith("rmqadmin: Delete ")
    assert "Nobody can be asked here: give --yes" in outcome.err
    broker = world.brokers["broker-a"]
    assert broker.topics.get("T") is not None
    assert broker.groups.get("G") is not None
    assert world.rmqadmin(f"{command} --yes").status == 0
