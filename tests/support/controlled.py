"""Groups with a stock controller, of stock brokers and of ours, as processes."""

from __future__ import annotations

import sys
from pathlib import Path

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.controller import SyncStateSet
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.controller import (
    ElectMasterRequestHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)
from tests.support.cluster import OURS
from tests.support.ports import ReservedPort
from tests.support.processes import BrokerProcess, NameServerProcess, ServerProcess
from tests.support.remoting import ask
from tests.support.running import Closing
from tests.support.servers import OurBroker
from tests.support.stock import StockBroker, stock_java
from tests.support.wait import wait_until

VERSION = "5.3.3"
_HEAP_MB = 256


class StockController(ServerProcess):
    """ControllerStartup, a Raft group by itself."""

    def __init__(self, home: Path) -> None:
        super().__init__("controller", home)
        self._port = ReservedPort()

    @property
    def address(self) -> str:
        return self._port.address

    def command(self) -> list[str]:
        path = self.home / "controller.properties"
        settings = {
            "controllerDLegerGroup": "g",
            "controllerDLegerPeers": f"n0-{self.address}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(self.home / "store"),
            "mappedFileSize": str(1 << 20),
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.rocketmq.controller.ControllerStartup"
        return [*stock_java(VERSION, self.home, _HEAP_MB, main), "-c", str(path)]

    def ready(self) -> bool:
        return self._replica_info("nobody").code != ResponseCode.CONTROLLER_NOT_LEADER

    def _replica_info(self, name: str) -> RemotingCommand:
        header = GetReplicaInfoRequestHeader(broker_name=name)
        request = RemotingCommand.request(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        return ask(self.address, request)

    def master_of(self, name: str) -> int:
        """The id of a group's master; 0 where it has none."""
        answer = self._replica_info(name)
        if answer.code != ResponseCode.SUCCESS:
            return 0
        return answer.header(GetReplicaInfoResponseHeader).master_broker_id or 0

    def in_sync(self, name: str) -> set[int]:
        """The SyncStateSet of a group."""
        answer = self._replica_info(name)
        if answer.code != ResponseCode.SUCCESS:
            return set()
        return set(decode_body(SyncStateSet, answer.body).sync_state_set)

    def elect(self, cluster: str, name: str, broker_id: int) -> None:
        """Makes a broker of a group the master, as an administrator does."""
        header = ElectMasterRequestHeader(
            cluster_name=cluster, broker_name=name, broker_id=broker_id, designate_elect=True
        )
        answer = ask(
            self.address, RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def close(self) -> None:
        super().close()
        self._port.release()


class LedBroker(OurBroker):
    """Our broker, led by `tests/support/led_broker.py`."""

    controller: StockController

    def command(self) -> list[str]:
        path = str(self.write_properties())
        return [sys.executable, "-m", "tests.support.led_broker", path, self.controller.address]


class ControlledGroup(Closing):
    """Brokers of one name; ids follow from the order in which they are started."""

    def __init__(
        self,
        name: str,
        home: Path,
        name_server: NameServerProcess,
        controller: StockController,
        kinds: list[str],
        settings: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.controller = controller
        self.brokers: list[BrokerProcess] = []
        for number, kind in enumerate(kinds, 1):
            where = home / f"broker{number}"
            own = {"allAckInSyncStateSet": "true", "slaveReadEnable": "true", **(settings or {})}
            if kind == OURS:
                led = LedBroker(name, where, [name_server], settings=own)
                led.controller = controller
                self.brokers.append(led)
            else:
                own |= {"enableControllerMode": "true", "controllerAddr": controller.address}
                self.brokers.append(StockBroker(VERSION, name, where, [name_server], settings=own))

    def __getitem__(self, broker_id: int) -> BrokerProcess:
        return self.brokers[broker_id - 1]

    def start(self) -> None:
        """Starts one after the other, so that the first is master and ids are known."""
        for broker_id, broker in enumerate(self.brokers, 1):
            broker.start()
            self.wait_in_sync(set(range(1, broker_id + 1)))

    def wait_in_sync(self, ids: set[int]) -> None:
        """Waits until the controller has exactly these in sync."""
        wait_until(lambda: self.controller.in_sync(self.name) == ids, f"{ids} to be in sync")

    def hand_over(self, broker_id: int) -> None:
        """Makes another broker the master and waits until all are in sync again."""
        self.controller.elect(self[broker_id].cluster, self.name, broker_id)
        wait_until(
            lambda: self.controller.master_of(self.name) == broker_id, f"{broker_id} to be master"
        )
        self.wait_in_sync(set(range(1, len(self.brokers) + 1)))

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()
