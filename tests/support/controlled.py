"""Groups of brokers that a controller leads, stock's and ours, as processes."""

from __future__ import annotations

from collections.abc import Sequence
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
from tests.support.replicas import log_digest, log_end, wait_equal
from tests.support.running import Closing
from tests.support.wait import PeerFailed, wait_until


class FollowingBrokers(Closing):
    """Brokers of one name that follow controllers; what they acknowledge is on all members of their
    SyncStateSet, and slaves serve reads."""

    #: Whether connections of hosts of their own hold little.
    small_buffers = False

    def __init__(
        self,
        name: str,
        home: Path,
        name_server: NameServerProcess,
        controllers: ControllerGroup,
        kinds: Sequence[str],
        settings: dict[str, str] | None = None,
        *,
        network: HostNetwork | None = None,
    ) -> None:
        """They are not started. With `network` each runs on a host of its own."""
        self.name = name
        self.name_server = name_server
        self.controllers = controllers
        self.brokers: list[BrokerProcess] = []
        for number, kind in enumerate(kinds, 1):
            where = home / f"broker{number}-{kind}"
            keys = controlled_keys(where, controllers)
            keys |= {"allAckInSyncStateSet": "true", "slaveReadEnable": "true", **(settings or {})}
            broker = make_broker(kind, name, where, [name_server], settings=keys)
            if network is not None:
                host = network.add_host()
                if self.small_buffers:
                    host.small_buffers()
                broker.place(host)
            self.brokers.append(broker)

    @property
    def master(self) -> Master:
        """What the controllers say of the group now."""
        return self.controllers.master(self.name)

    def check_equal_to(self, master: BrokerProcess) -> int:
        """Waits until all logs end where the master's does; they must be equal byte for byte.
        Returns where they end."""
        for broker in self.brokers:
            if broker is not master:
                wait_equal(master, broker)
        end = log_end(master)
        assert len({log_digest(broker, 0, end) for broker in self.brokers}) == 1, "logs differ"
        return end

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()


class ControlledGroup(FollowingBrokers):
    """A group whose ids follow from the order in which its brokers are started, and whose master a
    test chooses."""

    small_buffers = True

    def __getitem__(self, broker_id: int) -> BrokerProcess:
        return self.brokers[broker_id - 1]

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
        """See `check_equal_to`."""
        return self.check_equal_to(self[master])
