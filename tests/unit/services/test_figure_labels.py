"""Labels of `metricsLabel`: only those that figures of the process have already are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from socket import gethostname

import pytest
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.pop.revive_part import Reviving
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.config.load import load
from rocketmq_tw.config.monitoring import OWN_LABELS
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.properties import Setting
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.proxy.grpc.interfaces import GrpcStatus
from rocketmq_tw.proxy.grpc.latency import CallResult
from rocketmq_tw.runtime.threads import at_once
from rocketmq_tw.services import broker, controller, namesrv, proxy, standalone
from rocketmq_tw.services.options import ServerOptions
from rocketmq_tw.wire.bodies.pop import PopCheckPoint
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.topics import CreateTopicRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer, MemoryNetwork
from tests.support.sim.controllers import AskingBroker, Controllers

_RESULT = (RequestCode.GET_BROKER_RUNTIME_INFO, ResponseCode.SUCCESS, False, "success")


def of_name_server() -> Iterable[Metric]:
    clock = Clock()
    client = MemoryNetwork(MemoryReactorClock()).client("127.0.0.1")
    server = NameServer(clock, MemoryFiles(), NamesrvConfig(), client=client, in_thread=at_once)
    server._request_latency.record(_RESULT, 1.0)
    return server.metrics()


def of_broker() -> Iterable[Metric]:
    server = BrokerInMemory(is_monitored=True, timer_wheel_enable=True)
    server.heartbeat("client", FakePeer(), group="G", topics=("Topic",), producer="P")
    ok(server.send())
    ok(server.send(properties={"TIMER_DELAY_SEC": "30"}))
    server.offsets.commit("G", "Topic", 0, 0)
    header = CreateTopicRequestHeader(
        topic="New",
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    server.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    point = PopCheckPoint(topic="Topic", group="G")
    server.broker[Reviving].log.put_check_point(point, 0)
    server.broker[Reviving].log.counts.read(point, 0)
    server.broker[Stats]._request_latency.record(_RESULT, 1.0)
    for _ in range(20):
        server.clock.advance(0.05)
    return server.broker.metrics()


def of_controller() -> Iterable[Metric]:
    group = Controllers()
    asking = AskingBroker(group, 1)
    asking.come_up()
    group.result(asking.client.elect_master("C", "g", 1))
    return group.leader().metrics()


def of_proxy(**more: str) -> Iterable[Metric]:
    keys = {"namesrvAddr": "127.0.0.1:9876", "bindAddress": "127.0.0.1", **more}
    settings = [Setting(key, value, "test") for key, value in keys.items()]
    server = proxy.ProxyServer(MemoryReactorClock(), load(proxy.Options.types, settings, "/"))
    server.start()
    server._requests.record(_RESULT, 1.0)
    server._calls.record(CallResult("/a.b/SendMessage", GrpcStatus.OK), 1.0)
    return server.metrics()


@pytest.mark.parametrize(
    ("kind", "figures"),
    [
        ("name server", of_name_server),
        ("broker", of_broker),
        ("controller", of_controller),
        ("proxy", of_proxy),
    ],
)
def test_the_labels_of_each_kind_are_those_that_its_figures_have(
    kind: str, figures: Callable[[], Iterable[Metric]]
) -> None:
    assert {label for figure in figures() for label in figure.labels} == OWN_LABELS[kind]


def test_figures_of_a_proxy_have_its_name_and_cluster() -> None:
    named = of_proxy(proxyName="proxy-1", proxyClusterName="east")
    of_host, of_named = (
        {
            (each.labels["node_id"], each.labels["cluster"], each.labels["proxy_mode"])
            for each in all
        }
        for all in (of_proxy(), named)
    )
    assert of_named == {("proxy-1", "east", "cluster")}
    assert of_host == {(gethostname(), "DefaultCluster", "cluster")}


def test_the_page_names_the_labels_of_all_kinds() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "monitoring.md").read_text()
    figures = page.partition("## Figures")[2]
    rows = re.findall(r"^\| `[^|]+ \| ([^|]*) \|", figures.partition("\n## ")[0], re.M)
    (common,) = re.findall(r"labels besides `(\w+)`, `(\w+)`, `(\w+)`", figures)
    assert {*common, *re.findall(r"`(\w+)`", " ".join(rows))} == set().union(*OWN_LABELS.values())


def parsed(kind: type[ServerOptions], *arguments: str) -> ServerOptions:
    options = kind({"HOME": "/home/me"})
    given = ["-o", "metricsExporterType=PROM", *arguments]
    if kind is proxy.Options:
        given += ["-n", "127.0.0.1:9876"]
    options.parseOptions(given)
    return options


SERVERS: list[tuple[type[ServerOptions], tuple[str, ...], tuple[str, ...]]] = [
    (namesrv.Options, (), ("name server",)),
    (namesrv.Options, ("-o", "enableControllerInNamesrv=true"), ("name server", "controller")),
    (broker.Options, (), ("broker",)),
    (broker.Options, ("--enable-proxy",), ("broker", "proxy")),
    (controller.Options, (), ("controller",)),
    (proxy.Options, (), ("proxy",)),
    (standalone.Options, (), ("name server", "broker")),
    (standalone.Options, ("--enable-proxy",), ("name server", "broker", "proxy")),
]


@pytest.mark.parametrize(("server", "arguments", "kinds"), SERVERS)
def test_only_labels_of_the_servers_in_the_process_are_refused(
    server: type[ServerOptions], arguments: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    taken = set().union(*(OWN_LABELS[kind] for kind in kinds))
    free = sorted(set().union(*OWN_LABELS.values()) - taken)
    labels = ",".join(f"{label}:x" for label in free)
    parsed(server, *arguments, "-o", f"metricsLabel={labels}")
    for label in taken:
        wanted = f"-o: metricsLabel=zone:a,{label}:5: figures of a .* have a label {label} already"
        with pytest.raises(SystemExit, match=wanted):
            parsed(server, *arguments, "-o", f"metricsLabel=zone:a,{label}:5")


def test_labels_of_figures_that_nobody_asks_for_are_taken() -> None:
    parsed(broker.Options, "-o", "metricsLabel=topic:x", "-o", "metricsExporterType=DISABLE")
