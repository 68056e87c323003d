"""Stock's mqadmin and rmqadmin on our container."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.cluster import OURS, make_name_server
from tests.support.container_servers import OurContainer
from tests.support.java_client import JavaClients
from tests.support.remoting import ask
from tests.support.rmqadmin import answer, rmqadmin
from tests.support.wait import wait_until

STOCK_VERSION = "5.3.3"


def test_both_tools_on_our_container(tmp_path: Path, jvms: dict[str, JavaClients]) -> None:
    mqadmin = jvms[STOCK_VERSION].mqadmin
    with (
        make_name_server(OURS, tmp_path / "names") as name_server,
        OurContainer(tmp_path / "container", name_server.address) as container,
    ):
        where = ("-c", container.address)
        first, second = container.broker_file("a"), container.broker_file("b")

        def brokers() -> set[str]:
            shown = answer(name_server.address, "clusterList")["brokers"]
            return {each["brokerName"] for each in shown}

        added = "DefaultCluster_a_0 has already been added to current broker container"
        # What a busy machine did not answer in stock's five seconds was asked again.
        said = mqadmin("addBroker", *where, "-b", first)
        assert "success" in said or added in said
        assert rmqadmin("", f"addBroker -c {container.address} -b {second}").returncode == 0
        wait_until(lambda: brokers() == {"a", "b"}, "both to be registered")
        # What is refused is told in the same words as by stock's containers.
        refused = mqadmin("addBroker", *where, "-b", first)
        assert added in refused
        slave = container.broker_file("s", "brokerRole=SLAVE\n")
        assert "slave broker id must be > 0" in mqadmin("addBroker", *where, "-b", slave)
        nothing = mqadmin("removeBroker", *where, "-b", "DefaultCluster:c:0")
        assert "Broker not exist" in nothing

        said = mqadmin("removeBroker", *where, "-b", "DefaultCluster:a:0")
        assert "success" in said or "Broker not exist" in said
        wait_until(lambda: brokers() == {"b"}, "a to be gone")

        shown = mqadmin("getBrokerConfig", "-b", container.address)
        assert "brokerProcesses" in shown and "maxBrokerRestartPauseMillis" in shown
        change = ("-k", "maxBrokerRestartPauseMillis", "-v", "7000")
        assert "success" in mqadmin("updateBrokerConfig", "-b", container.address, *change)
        shown_by_ours = answer(name_server.address, f"getBrokerConfig -b {container.address}")
        assert shown_by_ours["brokers"][0]["config"]["maxBrokerRestartPauseMillis"] == "7000"
        text = (container.home / "broker-container.conf").read_text()
        assert "maxBrokerRestartPauseMillis=7000" in text
        container.stop()


def test_stock_producers_spread_over_brokers_with_processes_of_their_own(
    tmp_path: Path, java: JavaClients
) -> None:
    with (
        make_name_server(OURS, tmp_path / "names") as name_server,
        OurContainer(tmp_path / "container", name_server.address, "separate") as container,
    ):
        names = ["a", "b"]
        for name in names:
            command = f"addBroker -c {container.address} -b {container.broker_file(name)}"
            assert rmqadmin("", command).returncode == 0
        topic = "Spread"
        for address in container.broker_addresses():
            java.create_topic(name_server.address, address, topic, 2)

        def has_route() -> bool:
            request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
            request.ext_fields["topic"] = topic
            body = ask(name_server.address, request).body
            return all(address.encode() in body for address in container.broker_addresses())

        wait_until(has_route, "a route to both brokers")
        producer = java.producer(name_server.address, "spreading")
        sent = producer.send(*({"topic": topic, "body": f"{n}"} for n in range(16)))
        assert all(result["status"] == "SEND_OK" for result in sent)
        # In turn over the four queues, of which each broker has two.
        assert Counter(result["broker"] for result in sent) == dict.fromkeys(names, 8)
        container.stop()
