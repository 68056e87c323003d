"""What stock's controller tells Prometheus comes from ours too, of the same type, under the same
names and labels, and with the same words for requests, outcomes and elections."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.support.cluster import OURS, make_name_server
from tests.support.controllers import running_controllers
from tests.support.elected_brokers import ElectedBrokers
from tests.support.figures import Figure, all_figures, exporter_keys, figures
from tests.support.ports import ReservedPort
from tests.support.rmqadmin import rmqadmin

#: Labels whose values are words of stock's.
WORDS = (
    "request_type",
    "request_handle_status",
    "dledger_operation",
    "dLedger_operation_status",
    "election_result",
)
#: What is told of last.
LAST = {"active_broker_num", "dledger_disk_usage_bytes", "election_total", "role"}


def told_by(kind: str, home: Path, wanted: Collection[Figure] = ()) -> set[Figure]:
    """The figures of a controller of this kind with a master and a slave of ours that were elected,
    one that is cleaned, and the questions of an administrator: when what is `wanted` is there and
    no new ones come."""
    with ExitStack() as ends:
        port = ReservedPort()
        ends.callback(port.release)
        controllers = ends.enter_context(running_controllers(home, [kind], exporter_keys(port)))
        names = ends.enter_context(make_name_server(OURS, home / "names"))
        group = ElectedBrokers("set", home, names, controllers, [OURS, OURS])
        ends.enter_context(group)
        look = partial(figures, port.number, WORDS)
        seen = look()
        master = group.wait_in_sync()
        slave = next(each for each in group.brokers if each is not master)
        ids = {
            each.broker_address: each.broker_id
            for each in controllers.replicas("set").in_sync_replicas
        }

        def type_it(command: str, *, status: int = 0) -> None:
            done = rmqadmin(names.address, f"{command} -a {controllers.addresses}")
            assert done.returncode == status, done.stderr

        type_it("getControllerMetaData")
        type_it("getControllerConfig")
        type_it("updateControllerConfig -k electMasterMaxRetryCount -v 7")
        type_it("getSyncStateSet -b set")
        elect = f"electMaster -c {master.cluster} -bn set -b"
        type_it(f"{elect} {ids[slave.address]}")
        assert group.wait_in_sync() is slave
        # It is the master already, and nobody has that id.
        type_it(f"{elect} {ids[slave.address]}", status=1)
        type_it(f"{elect} 99", status=1)
        seen |= look()
        master.kill()
        group.wait_in_sync(1)
        type_it(f"cleanBrokerMetadata -bn set -c {master.cluster} -b {ids[master.address]} --yes")
        return seen | all_figures(look, LAST, set(wanted) - seen)


def test_a_controller_tells_prometheus_what_stocks_does(tmp_path: Path) -> None:
    stock = told_by("stock", tmp_path / "stock")
    assert len({each.name for each in stock}) > 10
    assert told_by("ours", tmp_path / "ours", stock) >= stock
