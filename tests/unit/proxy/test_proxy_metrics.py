"""The figures of a proxy, under stock's name where stock has it."""

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proxy import Proxy
from rocketmq_tw.wire.codes import RequestCode
from tests.support.classic import classic_request
from tests.support.network import FakePeer
from tests.support.proxy import FakeCall, PlayedBrokers


def test_clients_are_counted_by_protocol() -> None:
    brokers = PlayedBrokers()
    brokers.add_topic("T", {"broker-a": 1})
    proxy = Proxy(Clock(), ProxyConfig(), brokers, lambda work: Deferred())
    for client_id in ("a", "b"):
        settings = pb.Settings(client_type=pb.PRODUCER)
        proxy.clients.settle(client_id, FakeCall(client_id), settings, "", ["T"])
    route = RequestCode.GET_ROUTEINFO_BY_TOPIC
    asked = proxy.handlers[route](classic_request(route, topic="T"), FakePeer())
    Deferred.fromCoroutine(asked)  # type: ignore[arg-type]
    assert {str(metric) for metric in proxy.metrics()} == {
        "rocketmq_proxy_up{} 1",
        "rocketmq_proxy_renewed_messages{} 0",
        "rocketmq_proxy_clients{protocol_type=grpc} 2",
        "rocketmq_proxy_clients{protocol_type=remoting} 1",
        "rocketmq_proxy_consumers_elsewhere{} 0",
    }
