"""A group of two brokers that a controller leads: a send is answered once both have it."""

from __future__ import annotations

from pathlib import Path

from tests.support.controllers import ControllerGroup, controlled_keys
from tests.support.processes import BrokerProcess
from tools.bench.subjects import (
    NAME,
    SETTINGS,
    START_LIMIT,
    Subject,
    make_broker,
    make_name_server,
    until,
)

#: Stock's defaults, in place of the short periods of the tests.
_PERIODS = {
    "syncBrokerMetadataPeriod": "5000",
    "checkSyncStateSetPeriod": "5000",
    "syncControllerMetadataPeriod": "10000",
    "brokerHeartbeatInterval": "1000",
}


class ReplicatedSubject(Subject):
    """As `Subject` with a controller and a slave of its kind, all in the SyncStateSet."""

    def __init__(self, kind: str, home: Path, settings: dict[str, str] | None = None) -> None:
        self.kind = kind
        self.start_seconds = 0.0
        self.name_server = make_name_server(kind, home / "namesrv")
        self._controllers = ControllerGroup(home / "controllers", [kind])
        self._settings = SETTINGS | _PERIODS | (settings or {})
        self.broker = self._make(home / "master")
        self._slave = self._make(home / "slave")

    def _make(self, home: Path) -> BrokerProcess:
        settings = controlled_keys(home, self._controllers) | self._settings
        return make_broker(self.kind, home, self.name_server, settings)

    def start(self) -> None:
        self._controllers.start()
        self._controllers.wait_leader()
        super().start()
        self._slave.start(START_LIMIT)
        until(self._in_sync, "both brokers to be in sync", START_LIMIT)

    def _in_sync(self) -> bool:
        master = self._controllers.master(NAME)
        return master.address == self.broker.address and len(master.sync_state_set) == 2

    def close(self) -> None:
        self._slave.close()
        self._controllers.close()
        super().close()
