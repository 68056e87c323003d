"""What servers say to `/readyz` and `/metrics` before they serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from rocketmq_tw.config.load import load
from rocketmq_tw.config.properties import Setting
from rocketmq_tw.services import broker
from rocketmq_tw.services.controller import ControllerService
from rocketmq_tw.services.controller import Options as ControllerOptions
from rocketmq_tw.services.proxy import Options as ProxyOptions
from rocketmq_tw.services.proxy import ProxyService
from tests.support.broker import fired


class _Pool:
    """A pool of threads whose jobs run when the test says so."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, ...]] = []

    def callInThreadWithCallback(
        self, done: Callable[[bool, Any], None], job: Callable[..., Any], *arguments: Any
    ) -> None:
        self._waiting.append((done, job, arguments))

    def run(self) -> None:
        jobs, self._waiting = self._waiting, []
        for done, job, arguments in jobs:
            try:
                value = job(*arguments)
            except Exception:
                done(False, Failure())
            else:
                done(True, value)


class _Reactor(MemoryReactorClock):
    def __init__(self) -> None:
        super().__init__()
        self.pool = _Pool()

    def getThreadPool(self) -> _Pool:
        return self.pool

    def callFromThread(self, job: Callable[..., Any], *arguments: Any) -> None:
        job(*arguments)

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            self.pool.run()
            self.advance(0.05)
        raise AssertionError("not in time")


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
    reactor = _Reactor()
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
    reactor = _Reactor()
    controller = ControllerService(reactor, load(ControllerOptions.types, [], "/"))
    proxy = ProxyService(reactor, load(ProxyOptions.types, [], "/"))
    assert controller.not_ready() == "it has not started"
    assert proxy.not_ready() == "it does not listen yet"
    assert [*controller.metrics(), *proxy.metrics()] == []
