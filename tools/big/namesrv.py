"""A name server with many brokers, each of which has all topics."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.remoting import Connection
from tests.support.wait import wait_until
from tools.bench.subjects import make_name_server
from tools.big.steps import Steps, cpu_seconds
from tools.big.store import Scale, registration
from tools.big.watch import Watch

_CLUSTER = "BigCluster"


class BigNameServer:
    """One run of a name server of `kind` below `home`."""

    def __init__(self, kind: str, home: Path, scale: Scale) -> None:
        self.steps = Steps()
        self._scale = scale
        self._server = make_name_server(kind, home / "namesrv")

    def run(self, seconds: float) -> None:
        """Goes through all steps; `seconds`: of each in which nothing is asked."""
        steps, server, scale = self.steps, self._server, self._scale
        began = time.perf_counter()
        server.start()
        steps.pid = server.pid
        steps.note("start", time.perf_counter() - began, cpu_seconds(server.pid))
        steps.watch = Watch(server.address, server.pid, RequestCode.GET_NAMESRV_CONFIG, {})
        try:
            with ExitStack() as stack:
                brokers = [
                    stack.enter_context(Connection(server.address)) for _ in range(scale.brokers)
                ]
                body = registration(scale)
                with steps.step(f"{scale.brokers} brokers register {scale.topics} topics each"):
                    self._register(brokers, body)
                with steps.step("the same again"):
                    self._register(brokers, body)
                with steps.step("105, the routes of all topics"):
                    self._routes()
                for name, code, fields in (
                    ("206, all topics", RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
                    ("106, all brokers", RequestCode.GET_BROKER_CLUSTER_INFO, {}),
                    (
                        "224, a cluster's topics",
                        RequestCode.GET_TOPICS_BY_CLUSTER,
                        {"cluster": _CLUSTER},
                    ),
                    (
                        "205, a broker without writes",
                        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
                        {"brokerName": "big-0"},
                    ),
                ):
                    with steps.step(name):
                        brokers[0].request(_request(code, fields))
                with steps.step(f"{seconds:g} s of nothing, looks at silent brokers among them"):
                    time.sleep(seconds)
                with steps.step("a broker's connection ends"):
                    brokers[0].close()
                    self._until_brokers_are(scale.brokers - 1)
                began = time.perf_counter()
                with steps.step("the connections of all others end"):
                    for broker in brokers[1:]:
                        broker.close()
                    self._until_brokers_are(0)
        finally:
            steps.watch.close()
            server.close()

    def _register(self, brokers: list[Connection], body: bytes) -> None:
        """All brokers at once."""
        for number, broker in enumerate(brokers):
            request = _request(
                RequestCode.REGISTER_BROKER,
                {
                    "brokerName": f"big-{number}",
                    "brokerAddr": f"127.0.0.1:{20000 + number}",
                    "clusterName": _CLUSTER,
                    "haServerAddr": f"127.0.0.1:{30000 + number}",
                    "brokerId": "0",
                    "compressed": "false",
                    "bodyCrc32": "0",
                },
            )
            request.body = body
            broker.send(request)
        for broker in brokers:
            broker.receive()

    def _routes(self) -> None:
        with Connection(self._server.address) as connection:
            for topic in self._scale.topic_names():
                connection.request(_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))

    def _until_brokers_are(self, count: int) -> None:
        def names() -> bool:
            return self._server.cluster_body().count(b'"brokerName"') == count

        wait_until(names, f"{count} brokers")


def _request(code: int, fields: dict[str, str]) -> RemotingCommand:
    request = RemotingCommand.request(code)
    request.ext_fields = dict(fields)
    return request
