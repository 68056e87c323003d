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


def test_a_group_without_offsets_is_told_so(world) -> None:
    world.rmqadmin("updateSubGroup -g fresh -c DefaultCluster")
    outcome = world.rmqadmin("consumerProgress -g fresh")
    assert outcome.status == 1
    assert outcome.err.startswith(
        "rmqadmin: group fresh is there, and no consumer of it has been yet, so there are no"
        " offsets: start one"
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
