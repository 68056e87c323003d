"""What each server shows of its configuration is what it works with, and what it refuses to change
is what it does not follow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from rocketmq_tw.config.load import Loaded, load
from rocketmq_tw.config.properties import Setting, read_properties
from rocketmq_tw.services import broker, container, controller, namesrv
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.frame import FrameDecoder
from tests.support.pool_reactor import PoolReactor

#: Of all servers, for none of which they are stock's defaults.
KEYS = {
    "bindAddress": "127.0.0.1",
    "logLevel": "warn",
    "logFileSize": "1234567",
    "tls.server.mode": "disabled",
}
MONITORED = {"metricsExporterType": "PROM", "metricsPromExporterPort": "5999"}

Make = Callable[[PoolReactor, Loaded], Any]


class Server:
    """A service with its port in memory."""

    def __init__(self, make: Make, types: Any, home: Path, keys: dict[str, str]) -> None:
        settings = [Setting(key, value, "test") for key, value in keys.items()]
        self.reactor = PoolReactor()
        self.service = make(self.reactor, load(types, settings, str(home)))

    def ask(self, code: int, body: bytes = b"") -> RemotingCommand:
        peer = IPv4Address("TCP", "127.0.0.1", 50000)
        protocol = self.reactor.tcpServers[0][1].buildProtocol(peer)
        transport = StringTransport(hostAddress=peer, peerAddress=peer)
        protocol.makeConnection(transport)
        protocol.dataReceived(encode_command(RemotingCommand(code, body=body, opaque=1)))
        self.reactor.run_until(transport.value)
        (frame,) = FrameDecoder().feed(transport.value())
        protocol.connectionLost(Failure(ConnectionDone()))
        return decode_command(frame)


SERVERS: dict[str, tuple[Make, Any, dict[str, str], int, int]] = {
    "broker": (
        broker.BrokerService,
        broker.Options.types,
        {"storePathRootDir": "store", "mappedFileSizeCommitLog": "65536", "brokerIP1": "127.0.0.1"},
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.UPDATE_BROKER_CONFIG,
    ),
    "container": (
        container.ContainerService,
        container.Options.types,
        {},
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.UPDATE_BROKER_CONFIG,
    ),
    "name server": (
        namesrv.NamesrvService,
        namesrv.Options.types,
        {},
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    ),
    "controller": (
        controller.ControllerService,
        controller.Options.types,
        {
            "controllerDLegerGroup": "g",
            "controllerDLegerPeers": "n0-127.0.0.1:9877",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": "controller",
        },
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
    ),
}


@pytest.mark.parametrize("kind", SERVERS)
def test_keys_of_monitoring_log_and_tls(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (broker, container, controller, namesrv):
        # What this process has by now is to be freed as ever.
        monkeypatch.setattr(module, "freeze_startup_objects", lambda: None)
    monkeypatch.chdir(tmp_path)
    make, types, own, get, update = SERVERS[kind]
    given = KEYS if kind == "container" else KEYS | MONITORED
    server = Server(make, types, tmp_path, own | given)
    server.service.startService()
    server.reactor.run_until(lambda: server.reactor.tcpServers)
    text = server.ask(get).body.decode()
    shown = {each.key: each.value for each in read_properties(text, "the answer")}
    assert {key: shown.get(key) for key in given} == given
    for key in given:
        answer = server.ask(update, f"{key}=other".encode())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "cannot be changed while the server runs" in str(answer.remark), answer.remark
    stopped = server.service.stopService()
    server.reactor.run_until(lambda: stopped is None or stopped.called)
