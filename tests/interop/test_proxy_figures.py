"""What stock's proxy tells Prometheus comes from ours too, of the same type, under the same names
and labels."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import grpc

from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import GetRouteInfoRequestHeader
from tests.support.bare_grpc import BareClient
from tests.support.cluster import OURS, Cluster
from tests.support.figures import Figure, all_figures, exporter_keys, figures
from tests.support.ports import ReservedPort
from tests.support.proxies import OurProxy, StockProxy
from tests.support.remoting import ask
from tests.support.rmqadmin import rmqadmin
from tests.support.wait import PeerFailed, wait_until

#: Words that stock's proxy has for how it runs.
WORDS = ("node_type", "proxy_mode")
STOCK = "5.3.3"
TOPIC = "Orders"


def sends(producer: BareClient) -> bool:
    """Whether the proxy takes a message. A cold one of stock's answers no connection in time."""
    settings = pb.Settings(client_type=pb.PRODUCER)
    settings.publishing.topics.add().name = TOPIC
    try:
        producer.settle(settings)
        return producer.send(TOPIC, "order 1").code == pb.OK
    except grpc.RpcError as error:
        raise PeerFailed(str(error)) from error


def told_by(
    make: Callable[..., OurProxy], home: Path, cluster: Cluster, wanted: Collection[Figure] = ()
) -> set[Figure]:
    """The figures of a proxy that a producer of 5.x and a classic client have asked: when what is
    `wanted` is there and no new ones come."""
    port = ReservedPort()
    try:
        with (
            make(home, cluster.namesrv, **exporter_keys(port)) as proxy,
            BareClient(proxy.ports.grpc, "shop@1") as producer,
        ):
            wait_until(lambda: sends(producer), "a message to be sent")
            route = GetRouteInfoRequestHeader(topic=TOPIC)
            asked = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)
            assert ask(proxy.ports.classic, asked).code == 0
            return all_figures(partial(figures, port.number, WORDS), {"rocketmq_proxy_up"}, wanted)
    finally:
        port.release()


def test_a_proxy_tells_prometheus_what_stocks_does(tmp_path: Path) -> None:
    settings = {"brokerClusterName": "DefaultCluster"}
    with Cluster.of(
        tmp_path / "cluster", name_servers=[OURS], brokers=[OURS], settings=settings
    ) as cluster:
        made = f"updateTopic -t {TOPIC} -b {cluster.broker.address}"
        assert rmqadmin(cluster.namesrv, made).returncode == 0
        stock = told_by(partial(StockProxy, STOCK), tmp_path / "stock", cluster)
        assert stock
        assert told_by(OurProxy, tmp_path / "ours", cluster, stock) >= stock
