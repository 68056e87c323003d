"""A broker's lasting id: stock's files under ours and ours under stock's, whenever it was killed,
and wherever the broker is next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.controller import (
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
)
from tests.support.cluster import OURS, make_broker
from tests.support.controlled import ControlledGroup
from tests.support.controller_proxy import KillingProxy, Moment
from tests.support.controllers import (
    STOCK_VERSION,
    ControllerGroup,
    controlled_keys,
    running_controllers,
)
from tests.support.load import send_request
from tests.support.ports import BrokerPorts
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import ask
from tests.support.replicas import log_digest, wait_equal
from tests.support.servers import OurNameServer
from tests.support.wait import LIMIT, wait_until

#: The requests of a broker that is new, in order.
STEPS = {
    "next id": RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    "apply": RequestCode.CONTROLLER_APPLY_BROKER_ID,
    "register": RequestCode.CONTROLLER_REGISTER_BROKER,
}
ORDERS = [(STOCK_VERSION, OURS), (OURS, STOCK_VERSION)]
ORDER_IDS = ["stock-ours", "ours-stock"]


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServerProcess]:
    with closing(OurNameServer(tmp_path_factory.mktemp("names"))) as server:
        server.start()
        yield server


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerGroup]:
    with running_controllers(tmp_path_factory.mktemp("controllers"), ["ours"]) as group:
        yield group


class OneStore:
    """A store that two brokers have in turn, at one address."""

    def __init__(
        self,
        name: str,
        home: Path,
        name_server: NameServerProcess,
        controllers: ControllerGroup,
        kinds: tuple[str, str],
    ) -> None:
        self.name = name
        self.store = home / "store"
        ports = BrokerPorts()
        self.first, self.second = (
            make_broker(
                kind,
                name,
                home / str(number),
                [name_server],
                store=self.store,
                ports=ports,
                settings=controlled_keys(home, controllers),
            )
            for number, kind in enumerate(kinds)
        )

    @property
    def files(self) -> dict[str, str]:
        """The identity, and the claim beside it, where they are."""
        return {
            path.name.removeprefix("brokerIdentity"): path.read_text()
            for path in self.store.glob("brokerIdentity*")
        }

    def close(self) -> None:
        self.first.close()
        self.second.close()


@pytest.fixture(params=ORDERS, ids=ORDER_IDS)
def store(
    request: pytest.FixtureRequest,
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    tmp_path: Path,
    names,
) -> Iterator[OneStore]:
    one = OneStore(names.new("b"), tmp_path, name_server, controllers, request.param)
    with closing(one):
        yield one


def next_id(controllers: ControllerGroup, broker: BrokerProcess) -> int:
    """The id that the controllers would give to the next new broker of a group."""
    header = GetNextBrokerIdRequestHeader(cluster_name=broker.cluster, broker_name=broker.name)
    request = RemotingCommand.request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
    answer = controllers.request(request)
    assert answer.code == ResponseCode.SUCCESS
    return answer.header(GetNextBrokerIdResponseHeader).next_broker_id or 0


def wait_master(controllers: ControllerGroup, broker: BrokerProcess, broker_id: int) -> None:
    wait_until(broker.ready, "the broker to be registered")
    master = controllers.master(broker.name)
    assert (master.broker_id, master.address) == (broker_id, broker.address)


@pytest.mark.parametrize(
    ("step", "moment"),
    [
        ("next id", Moment.DECIDED),
        ("apply", Moment.ASKED),
        ("apply", Moment.DECIDED),
        ("register", Moment.ASKED),
        ("register", Moment.DECIDED),
    ],
    ids=lambda part: part if isinstance(part, str) else part.value,
)
def test_the_other_kind_goes_on_where_a_new_broker_was_killed(
    step: str, moment: Moment, store: OneStore, controllers: ControllerGroup
) -> None:
    address = controllers.wait_leader().address
    with closing(KillingProxy(address, STEPS[step], moment, store.first.kill)) as proxy:
        store.first.settings["controllerAddr"] = proxy.address
        store.first.launch()
        assert proxy.killed.wait(LIMIT), store.first.log_tails()
        identity = f"{store.first.cluster}#{store.name}#1"
        kept = store.files
        if step == "register":
            assert kept == {"": identity}
        elif step == "apply":
            # The identity of stock's is made empty before it has one.
            assert kept.pop("", "") == "" and kept["-temp"].startswith(f"{identity}#127.0.0.1:")
        else:
            assert not any(kept.values())

        store.second.start()
        wait_master(controllers, store.second, 1)
        assert store.files == {"": identity}
        assert [one.broker_id for one in controllers.replicas(store.name).in_sync_replicas] == [1]
        assert next_id(controllers, store.second) == 2


def test_a_claim_beside_the_identity_counts_for_nothing(
    store: OneStore, controllers: ControllerGroup
) -> None:
    """What a crash leaves that comes between the two: the identity is there, the claim as well."""
    store.first.start()
    wait_master(controllers, store.first, 1)
    store.first.stop()
    identity = store.files[""]
    (store.store / "brokerIdentity-temp").write_text(f"{identity}#127.0.0.1:1;1")
    store.second.start()
    wait_master(controllers, store.second, 1)
    assert store.files[""] == identity
    assert next_id(controllers, store.second) == 2


@pytest.mark.parametrize("kinds", ORDERS, ids=ORDER_IDS)
def test_a_broker_that_moves_keeps_its_id(
    kinds: tuple[str, str],
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    tmp_path: Path,
    names,
) -> None:
    with ControlledGroup(names.new("b"), tmp_path, name_server, controllers, list(kinds)) as group:
        group.start()
        for moving, staying, host in ((2, 1, "127.0.0.2"), (1, 2, "127.0.0.3")):
            store_one(group)
            group[moving].stop()
            group.wait_in_sync(staying)
            group[moving].move(host)
            group[moving].start()
            group.wait_in_sync(1, 2)
            told = controllers.replicas(group.name).in_sync_replicas
            places = {one.broker_id: one.broker_address for one in told}
            assert places == {number: group[number].address for number in (1, 2)}
        store_one(group)
        end = wait_equal(group[2], group[1])
        assert len({log_digest(broker, 0, end) for broker in group.brokers}) == 1
        assert next_id(controllers, group[1]) == 3


def store_one(group: ControlledGroup) -> None:
    """Waits until the master has acknowledged a message."""

    def is_stored() -> bool:
        address = group.master.address
        assert address is not None
        return ask(address, send_request("Moving", 0, b"m")).code == ResponseCode.SUCCESS

    wait_until(is_stored, "a message to be stored", interval=0.2)
