"""What servers say to `/readyz` and `/metrics` before they serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_tw.config.load import load
from rocketmq_tw.config.properties import Setting
from rocketmq_tw.services import broker
from rocketmq_tw.services.controller import ControllerService
from rocketmq_tw.services.controller import Options as ControllerOptions
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


def test_other_servers_are_not_ready_before_they_start() -> None:
    reactor = PoolReactor()
    controller = ControllerService(reactor, load(ControllerOptions.types, [], "/"))
    proxy = ProxyService(reactor, load(ProxyOptions.types, [], "/"))
    assert controller.not_ready() == "it has not started"
    assert proxy.not_ready() == "it does not listen yet"
    assert [*controller.metrics(), *proxy.metrics()] == []
