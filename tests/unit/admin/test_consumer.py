import pytest


def start(world):
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 2 -w 2")
    for queue in ("0", "1", "1"):
        world.rmqadmin(f"sendMessage -t T -p x -b broker-a -i {queue}")
    consumer = world.consume("billing", "T")
    offsets = world.brokers["broker-a"].offsets
    world.wait_for(lambda: [offsets.query("billing", "T", queue) for queue in (0, 1)] == [1, 2])
    return consumer


def progress(world, *arguments: str):
    return world.rmqadmin("consumerProgress", *arguments, "--output", "json").json


def test_one_group_queue_by_queue(world) -> None:
    consumer = start(world)
    world.rmqadmin("sendMessage -t T -p x -b broker-a -i 0")
    world.result(consumer.stop())
    for topic in ((), ("-t", "T")):
        found = progress(world, "-g", "billing", *topic)
        queues = {queue["queueId"]: queue for queue in found["queues"] if queue["topic"] == "T"}
        assert {number: queue["brokerOffset"] for number, queue in queues.items()} == {0: 2, 1: 2}
        assert queues[1]["diff"] == 0
        assert queues[0]["client"] is None
        assert found["diffTotal"] == sum(queue["diff"] for queue in found["queues"])
    assert ["Diff", "total:", str(found["diffTotal"])] in world.rmqadmin(
        "consumerProgress", "-g", "billing"
    ).lines


def test_the_client_of_each_queue(world) -> None:
    consumer = start(world)
    queues = progress(world, "-g", "billing", "-t", "T", "-s", "true")["queues"]
    assert [queue["client"] for queue in queues] == ["10.0.1.9", "10.0.1.9"]
    assert "Client" in world.rmqadmin("consumerProgress -g billing -s true").lines[0]
    assert "Client" not in world.rmqadmin("consumerProgress -g billing").lines[0]
    world.result(consumer.stop())


def test_all_groups_in_short(world) -> None:
    consumer = start(world)
    (group,) = progress(world)["groups"]
    assert group == {
        "group": "billing",
        "count": 1,
        "version": "V5_3_3",
        "type": "PUSH",
        "model": "CLUSTERING",
        "tps": group["tps"],
        "diffTotal": 0,
        "error": None,
    }
    world.result(consumer.stop())
    (group,) = progress(world)["groups"]
    assert (group["count"], group["version"]) == (0, None)
    assert world.rmqadmin("consumerProgress").lines[2][:3] == ["billing", "0", "OFFLINE"]


def test_a_group_that_left_nothing_but_its_retry_topic_is_listed(world) -> None:
    """As where its settings were deleted, or are at a broker that is gone."""
    world.rmqadmin("updateTopic -t %RETRY%gone -c DefaultCluster")
    (row,) = world.rmqadmin("consumerProgress --output json").json["groups"]
    assert (row["group"], row["count"]) == ("gone", 0)


def test_a_group_without_offsets_is_told_so(world) -> None:
    world.rmqadmin("updateSubGroup -g fresh -c DefaultCluster")
    outcome = world.rmqadmin("consumerProgress -g fresh")
    assert outcome.status == 1
    assert outcome.err.startswith(
        "rmqadmin: group fresh is there, and has no offsets yet: start a consumer of it"
    )


def test_an_unknown_group_is_a_failure(world) -> None:
    outcome = world.rmqadmin("consumerProgress", "-g", "nix")
    assert outcome.status == 1
    assert outcome.err.startswith("rmqadmin: no broker has a group nix, neither settings")


def test_a_group_without_members_or_retry_topic_is_found_by_a_topic(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 1 -w 1")
    world.rmqadmin("sendMessage -t T -p x")
    found = progress(world, "-g", "reader", "-t", "T")
    assert [(queue["queueId"], queue["diff"]) for queue in found["queues"]] == [(0, 1)]


@pytest.fixture
def pullers(world):
    """A group that pulls and commits, and joins nowhere: it has no retry topic. It has read one of
    two messages on broker-a, and none of one on broker-b."""
    world.add_broker("broker-b", "10.0.0.3")
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 1 -w 1")
    world.rmqadmin("updateSubGroup -g pullers -c DefaultCluster")
    for name in ("broker-a", "broker-a", "broker-b"):
        world.rmqadmin(f"sendMessage -t T -p x -b {name} -i 0")
    for name, offset in (("broker-a", 1), ("broker-b", 0)):
        world.brokers[name].offsets.commit("pullers", "T", 0, offset)
    assert "%RETRY%pullers" not in world.name_server_topics()
    return world


def test_a_group_without_a_retry_topic_is_behind(pullers) -> None:
    (row,) = progress(pullers)["groups"]
    assert (row["group"], row["diffTotal"]) == ("pullers", 2)
    (row,) = pullers.rmqadmin("startMonitoring --rounds 1 --output json").json["groups"]
    assert (row["group"], row["diffTotal"]) == ("pullers", 2)
    for arguments in ((), ("-c", "DefaultCluster")):
        found = progress(pullers, "-g", "pullers", *arguments)
        assert [(one["brokerName"], one["diff"]) for one in found["queues"]] == [
            ("broker-a", 1),
            ("broker-b", 1),
        ]


def test_a_group_that_pulls_is_looked_at_in_one_cluster(pullers) -> None:
    pullers.add_broker("broker-z", "10.0.0.9", broker_cluster_name="Other")
    outcome = pullers.rmqadmin("consumerProgress -g pullers -c Other")
    assert outcome.err == "rmqadmin: group pullers is not in cluster Other but in DefaultCluster\n"
    outcome = pullers.rmqadmin("consumerProgress -g pullers -c Nix")
    assert outcome.err == "rmqadmin: there is no cluster Nix; there are: DefaultCluster, Other\n"
    pullers.network.stop("10.0.0.9:10911")
    assert progress(pullers, "-g", "pullers", "-c", "DefaultCluster")["diffTotal"] == 2


def test_what_a_group_pulls_elsewhere_than_its_retry_topic_is_counts(pullers) -> None:
    pullers.rmqadmin("updateTopic -t %RETRY%pullers -b 10.0.0.2:10911 -r 1 -w 1")
    (row,) = progress(pullers)["groups"]
    assert row["diffTotal"] == progress(pullers, "-g", "pullers")["diffTotal"] == 2


def test_a_broker_that_may_know_of_pulls_is_missing(pullers) -> None:
    pullers.network.stop("10.0.0.3:10911")
    for arguments in ((), ("-g", "pullers")):
        outcome = pullers.rmqadmin("consumerProgress", *arguments, "--output", "json")
        assert outcome.err.startswith("rmqadmin: 10.0.0.3:10911: ")
        (found,) = outcome.partial.get("groups", [outcome.partial])
        assert found["diffTotal"] == 1


def test_a_cluster_is_looked_at_alone(world) -> None:
    world.result(start(world).stop())
    world.add_broker("broker-z", "10.0.0.9", broker_cluster_name="Other")
    world.rmqadmin("updateTopic -t T -c Other -r 1 -w 1")
    for cluster, brokers in {"Other": {"broker-z"}, "DefaultCluster": {"broker-a"}}.items():
        found = progress(world, "-g", "billing", "-t", "T", "-c", cluster)
        assert {queue["brokerName"] for queue in found["queues"]} == brokers
    outcome = world.rmqadmin("consumerProgress -g billing -c Other")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == "rmqadmin: group billing is not in cluster Other but in DefaultCluster\n"
    outcome = world.rmqadmin("consumerProgress -g billing -c Nix")
    assert outcome.err == "rmqadmin: there is no cluster Nix; there are: DefaultCluster, Other\n"
    outcome = world.rmqadmin("consumerProgress -g nix -c DefaultCluster")
    assert outcome.status == 1
    assert outcome.err.startswith("rmqadmin: no broker has a group nix, neither settings")
    outcome = world.rmqadmin("consumerProgress -c DefaultCluster")
    assert outcome.status == 2
    assert "-t, -s and -c are about one group: name that with -g" in outcome.err
