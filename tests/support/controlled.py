"""Groups of brokers that a controller leads, stock's and ours, as processes."""

from __future__ import annotations

from pathlib import Path

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.controller import ElectMasterRequestHeader
from tests.support.cluster import make_broker
from tests.support.controllers import ControllerGroup, Master, controlled_keys
from tests.support.hosts import HostNetwork
from tests.support.load import send_request
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import ask
from tests.support.replicas import log_digest, wait_equal
from tests.support.running import Closing
from tests.support.wait import PeerFailed, wait_until


def make_controlled(
    kind: str,
    name: str,
    home: Path,
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    settings: dict[str, str] | None,
) -> BrokerProcess:
    """A broker, not started, that follows the controllers; what it acknowledges is on all members
    of its SyncStateSet, and slaves serve reads."""
    keys = controlled_keys(home, controllers)
    keys |= {"allAckInSyncStateSet": "true", "slaveReadEnable": "true", **(settings or {})}
    return make_broker(kind, name, home, [name_server], settings=keys)


class ControlledGroup(Closing):
    """Brokers of one name; ids follow from the order in which they are started."""

    def __init__(
        self,
        name: str,
        home: Path,
        name_server: NameServerProcess,
        controllers: ControllerGroup,
        kinds: list[str],
        settings: dict[str, str] | None = None,
        *,
        network: HostNetwork | None = None,
    ) -> None:
        """With `network` each runs on a host of its own whose connections hold little."""
        self.name = name
        self.controllers = controllers
        self.brokers: list[BrokerProcess] = []
        for number, kind in enumerate(kinds, 1):
            where = home / f"broker{number}"
            broker = make_controlled(kind, name, where, name_server, controllers, settings)
            if network is not None:
                host = network.add_host()
                host.small_buffers()
                broker.place(host)
            self.brokers.append(broker)

    def __getitem__(self, broker_id: int) -> BrokerProcess:
        return self.brokers[broker_id - 1]

    @property
    def master(self) -> Master:
        """What the controller says of it now."""
        return self.controllers.master(self.name)

    def start(self) -> None:
        """Starts one after the other, so that the first is master and ids are known."""
        for broker_id, broker in enumerate(self.brokers, 1):
            broker.start()
            self.wait_in_sync(*range(1, broker_id + 1))

    def wait_in_sync(self, *ids: int) -> None:
        """Waits until the controller has exactly these in sync."""
        wait_until(lambda: self.master.sync_state_set == set(ids), f"{ids} to be in sync")

    def wait_master(self, broker_id: int) -> None:
        """Waits until the controller has elected a broker."""
        wait_until(lambda: self.master.broker_id == broker_id, f"{broker_id} to be master")

    def elect(self, broker_id: int) -> None:
        """Makes another broker the master by the controller's word."""
        header = ElectMasterRequestHeader(
            cluster_name=self[broker_id].cluster,
            broker_name=self.name,
            broker_id=broker_id,
            designate_elect=True,
        )

        def elected() -> bool:
            """Asked again where a busy machine's broker was silent for too long to be elected."""
            if self.master.broker_id == broker_id:
                return True
            request = RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
            answer = self.controllers.request(request)
            if answer.code != ResponseCode.SUCCESS:
                raise PeerFailed(f"{answer.code}: {answer.remark}")
            return self.master.broker_id == broker_id

        wait_until(elected, f"{broker_id} to be master", interval=0.5)

    def hand_over(self, broker_id: int) -> None:
        """Makes another broker the master and waits until all are in sync again."""
        self.elect(broker_id)
        self.wait_in_sync(*range(1, len(self.brokers) + 1))

    def wait_accepts(self, broker_id: int, topic: str) -> None:
        """Waits until the broker answers a send with success, and with it all that are in sync."""

        def accepts() -> bool:
            request = send_request(topic, 0, b"probe", queues=4)
            return ask(self[broker_id].address, request).code == ResponseCode.SUCCESS

        wait_until(accepts, f"{broker_id} to take messages")

    def check_equal(self, master: int) -> int:
        """All logs are the master's, byte for byte; returns where they end."""
        end = 0
        for broker in self.brokers:
            if broker is not self[master]:
                end = wait_equal(self[master], broker)
        assert len({log_digest(broker, 0, end) for broker in self.brokers}) == 1, "logs differ"
        return end

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()
