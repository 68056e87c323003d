from twisted.internet.defer import Deferred

from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.runtime.clock import wall_clock_ms


def test_brokers_are_listed(world) -> None:
    world.add_broker("broker-b", "10.0.0.3", broker_cluster_name="Other")
    outcome = world.rmqadmin("clusterList")
    assert outcome.lines[0][:4] == ["Cluster", "Broker", "ID", "Address"]
    assert [line[:5] for line in outcome.lines[2:]] == [
        ["DefaultCluster", "broker-a", "0", "10.0.0.2:10911", "V5_3_3"],
        ["Other", "broker-b", "0", "10.0.0.3:10911", "V5_3_3"],
    ]
    (row,) = world.rmqadmin("clusterList", "-c", "Other", "--output", "json").json["brokers"]
    assert (row["brokerName"], row["active"], row["error"]) == ("broker-b", True, None)
    assert row["in"] == {"tps": 0.0, "queue": 0, "waitMs": 0}


def test_messages_have_no_age_by_a_broker_whose_clock_is_ahead(world) -> None:
    broker = world.brokers["broker-a"]
    broker.shift_ms = wall_clock_ms() - broker.now_ms() + 3_600_000
    world.rmqadmin("sendMessage", "-t", "T", "-p", "one")
    (row,) = world.rmqadmin("clusterList", "--output", "json").json["brokers"]
    assert row["hours"] == 0


def test_more_statistics_count_messages(world) -> None:
    for body in ("one", "two"):
        world.rmqadmin("sendMessage", "-t", "T", "-p", body)
    world.rmqadmin("consumeMessage", "-t", "T")
    (row,) = world.rmqadmin("clusterList", "-m", "--output", "json").json["brokers"]
    assert (row["inToday"], row["outToday"], row["inYesterday"]) == (2, 2, 0)


def test_a_broker_that_is_down_keeps_its_line(world) -> None:
    world.network.stop("10.0.0.2:10911")
    outcome = world.rmqadmin("clusterList", "--output", "json")
    (row,) = outcome.partial["brokers"]
    assert (row["brokerName"], row["active"], row["version"]) == ("broker-a", False, None)
    assert row["error"].startswith("10.0.0.2:10911: ")
    assert outcome.err == f"rmqadmin: {row['error']}\n"
    assert world.rmqadmin("clusterList").out.splitlines()[2].split() == [
        "DefaultCluster", "broker-a", "0", "10.0.0.2:10911", "false"
    ]  # fmt: skip


def test_an_unknown_cluster_is_a_failure(world) -> None:
    outcome = world.rmqadmin("clusterList", "-c", "nix")
    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == "rmqadmin: there is no cluster nix; there are: DefaultCluster\n"


def test_a_name_server_that_is_down_is_named(world) -> None:
    outcome = world.rmqadmin("clusterList", name_servers="10.9.9.9:9876")
    assert outcome.status == 1
    assert outcome.err.startswith("rmqadmin: no name server answers: 10.9.9.9:9876: ")
    assert outcome.err.endswith(" (name servers: 10.9.9.9:9876; -n names others)\n")
    both = world.rmqadmin("clusterList", name_servers=f"10.9.9.9:9876;{world.names}")
    assert both.status == 0


def test_it_is_shown_again_at_the_interval(world) -> None:
    def a_while(name_servers, work, access):
        servers = Servers(world.reactor, name_servers, world.network.client())
        watching = Deferred.fromCoroutine(work(servers))
        for _ in range(50):
            world.reactor.advance(0.1)
        watching.addErrback(lambda failure: failure.trap(Exception) and None)
        watching.cancel()

    outcome = world.bare(
        ["-n", world.names, "clusterList", "-i", "2", "--output", "json"], Tool(a_while)
    )
    assert len(outcome.out.splitlines()) == 3
