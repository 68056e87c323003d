"""What servers say to `/readyz` and `/metrics` before they serve."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.python.failure import Failure

from rocketmq_tw.config.load import load
from rocketmq_tw.config.properties import Setting
from rocketmq_tw.services import broker, controller, namesrv
from rocketmq_tw.services.proxy import Options as ProxyOptions
from rocketmq_tw.services.proxy import ProxyService
from tests.support.broker import fired
from tests.support.pool_reactor import PoolReactor


def test_a_broker_is_not_ready_while_its_store_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What this process has by now is to be freed as ever.
    monkeypatch.setattr(broker, "freeze_startup_objects", lambda: None)
    keys = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": "10911",
        "storePathRootDir": str(tmp_path / "store"),
        "mappedFileSizeCommitLog": "65536",
    }
    settings = [Setting(key, value, "test") for key, value in keys.items()]
    reactor = PoolReactor()
    service = broker.BrokerService(reactor, load(broker.Options.types, settings, str(tmp_path)))
    assert service.not_ready() == "the store is being loaded"
    service.startService()
    assert not service.started.called
    assert service.not_ready() == "the store is being loaded"
    assert list(service.metrics()) == []
    reactor.run_until(lambda: service.started.called)
    assert service.not_ready() == ""
    assert list(service.metrics()) != []
    stopped = service.stopService()
    reactor.run_until(lambda: stopped.called)
    fired(stopped)


def test_a_name_server_tells_of_the_controller_in_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (controller, namesrv):
        monkeypatch.setattr(module, "freeze_startup_objects", lambda: None)
    keys = {
        "bindAddress": "127.0.0.1",
        "listenPort": "9876",
        "kvConfigPath": str(tmp_path / "kv.json"),
        "enableControllerInNamesrv": "true",
        "controllerStorePath": str(tmp_path / "controller"),
        "controllerDLegerGroup": "g",
        "controllerDLegerPeers": "n0-127.0.0.1:9877;n1-127.0.0.1:9878",
        "controllerDLegerSelfId": "n0",
    }
    settings = [Setting(key, value, "test") for key, value in keys.items()]
    reactor = PoolReactor()
    loaded = load(namesrv.Options.types, settings, str(tmp_path))
    service = namesrv.NamesrvService(reactor, loaded)
    service.startService()
    figures = {metric.name: metric.labels for metric in service.metrics()}
    assert {"rocketmq_topic_number", "role"} <= figures.keys()
    # One of two has no leader, and routes are told.
    assert service.not_ready() == ""
    node = service._controller._controller.node
    node.when_failed.errback(Failure(OSError("the disk failed")))
    assert service.not_ready() == "its controller cannot go on and has stopped: the disk failed"
    assert {metric.name for metric in service.metrics()} & {"role", "rocketmq_topic_number"} == {
        "rocketmq_topic_number"
    }
    stopped = service.stopService()
    reactor.run_until(lambda: stopped.called)
    fired(stopped)


def test_other_servers_are_not_ready_before_they_start() -> None:
    reactor = PoolReactor()
    loaded = load(controller.Options.types, [], "/")
    alone = controller.ControllerService(reactor, loaded)
    proxy = ProxyService(reactor, load(ProxyOptions.types, [], "/"))
    assert alone.not_ready() == "it has not started"
    assert proxy.not_ready() == "it does not listen yet"
    assert [*alone.metrics(), *proxy.metrics()] == []
