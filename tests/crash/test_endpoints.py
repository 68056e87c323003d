"""Each server of ours, as a process, tells Prometheus its figures, and health checks whether it is
ready."""

from __future__ import annotations

from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.controllers import OurController
from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.proxies import OurProxy
from tests.support.servers import OurBroker, OurNameServer
from tests.support.wait import wait_until


class Endpoint:
    """The port for monitoring of one server, and its keys."""

    def __init__(self) -> None:
        self._port = ReservedPort()
        self.keys = {
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": str(self._port.number),
            "metricsPromExporterHost": LOOPBACK,
        }

    def ask(self, path: str) -> tuple[int, str]:
        """The status and the text of an answer."""
        connection = HTTPConnection(LOOPBACK, self._port.number, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def is_ready(self) -> bool:
        return self.ask("/readyz")[0] == 200

    def figures(self) -> dict[str, dict[str, str]]:
        """The labels of a figure of each name."""
        status, text = self.ask("/metrics")
        assert status == 200
        return {
            sample.name: sample.labels
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def release(self) -> None:
        self._port.release()


def test_each_server_answers_prometheus_and_health_checks(tmp_path: Path) -> None:
    with ExitStack() as ends:
        ports: dict[str, Endpoint] = {}

        def keys(kind: str) -> dict[str, str]:
            ports[kind] = Endpoint()
            ends.callback(ports[kind].release)
            return ports[kind].keys

        names = OurNameServer(tmp_path / "namesrv", keys("namesrv"))
        controller = OurController("n0", tmp_path / "controller", keys("controller"))
        controller.peers = f"n0-{controller.address}"
        proxy = OurProxy(tmp_path / "proxy", names.address, **keys("proxy"))
        for server in (names, controller, proxy):
            ends.enter_context(server)
        assert ports["proxy"].ask("/healthz")[0] == 200
        assert ports["proxy"].ask("/readyz") == (503, "no name server has told it of a broker\n")
        broker = OurBroker("broker-a", tmp_path / "broker", [names], settings=keys("broker"))
        ends.enter_context(broker)
        for kind, endpoint in ports.items():
            wait_until(endpoint.is_ready, f"the {kind}", interval=0.1)
            assert endpoint.ask("/healthz")[0] == 200
        figures = {kind: endpoint.figures() for kind, endpoint in ports.items()}
        for of_server in figures.values():
            assert "rocketmq_reactor_longest_delay_milliseconds" in of_server
        assert figures["namesrv"]["rocketmq_topic_number"]["node_type"] == "namesrv"
        assert figures["broker"]["rocketmq_topic_number"]["node_id"] == "broker-a"
        assert figures["controller"]["role"]["peer_id"] == "n0"
        assert figures["proxy"]["rocketmq_proxy_in_flight_bytes"]["node_type"] == "proxy"
