"""Brokers in controller mode as processes: ours and stock's follow our controllers and stock's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import OURS, make_name_server
from tests.support.controllers import STOCK_VERSION, running_controllers
from tests.support.elected_brokers import ElectedBrokers, SteadyLoad
from tests.support.java_client import JavaClients
from tests.support.rmqadmin import answer as rmqadmin_answer

#: Stock's refuses what it cannot reach only after this.
PRODUCER = {"retries": 0, "timeoutMs": 3000}


@pytest.mark.parametrize(
    ("controllers", "brokers"),
    [
        (["ours"] * 3, [OURS] * 3),
        (["ours"] * 3, [STOCK_VERSION, OURS]),
        (["stock"], [OURS] * 3),
    ],
    ids=["ours-ours", "ours-mixed", "stock-ours"],
)
def test_nothing_acknowledged_is_lost_when_masters_are_killed(
    controllers: list[str],
    brokers: list[str],
    jvms: dict[str, JavaClients],
    tmp_path: Path,
    names,
) -> None:
    name, topic = names.new("set"), names.topic
    with (
        running_controllers(tmp_path, controllers) as elected_by,
        make_name_server(OURS, tmp_path / "names") as name_server,
        ElectedBrokers(name, tmp_path, name_server, elected_by, brokers) as group,
    ):
        java = jvms[STOCK_VERSION]
        java.create_topic(name_server.address, group.wait_in_sync().address, topic, 4)
        with (
            java.producer(name_server.address, names.group, **PRODUCER) as producer,
            SteadyLoad(producer, topic) as load,
        ):
            for _ in range(2):
                load.wait_more(50)
                killed = group.kill_master()
                load.wait_more(50)
                killed.start()
                group.wait_in_sync()
            acknowledged = load.stop()
        group.check_equal()
        epochs = rmqadmin_answer(name_server.address, f"getBrokerEpoch -b {name}")["brokers"]
        assert len(epochs) == len(brokers)
        assert all([one["epoch"] for one in each["epochs"]] == [1, 2, 3] for each in epochs)
        for broker in group.brokers:
            broker.stop()
        for seen in group.bodies(topic):
            assert not [body for body in acknowledged if not seen[body]], "lost"
            assert not [body for body, times in seen.items() if times > 1], "doubled"
