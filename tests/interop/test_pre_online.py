"""A master that comes back takes its slave's offsets over before it is registered: ours from a
stock slave, stock's from ours."""

from pathlib import Path

import pytest

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.offsets import UpdateConsumerOffsetRequestHeader
from tests.support.cluster import OURS, make_name_server
from tests.support.processes import BrokerProcess
from tests.support.remoting import ask
from tests.support.replicas import Replicas, offsets_of, send_volume
from tests.support.wait import wait_until

STOCK = "5.3.3"
#: Every broker has them, so that no slave has to copy them first.
TOPIC, GROUP = "SELF_TEST_TOPIC", "SELF_TEST_C_GROUP"
SETTINGS = {"enableSlaveActingMaster": "true", "totalReplicas": "2"}


@pytest.mark.parametrize(("master", "slave"), [(OURS, STOCK), (STOCK, OURS)])
def test_a_master_takes_over_what_was_consumed_without_it(
    master: str, slave: str, tmp_path: Path
) -> None:
    name_server = make_name_server(OURS, tmp_path / "namesrv")
    replicas = Replicas(
        "a", tmp_path, [name_server], master=master, slaves=[slave], settings=SETTINGS
    )
    with name_server, replicas:
        replicas.master.start()
        send_volume(replicas.master.address, "Sent", 1 << 20)
        commit(replicas.master, 10)
        wait_until(lambda: replicas.master.stored_offsets(TOPIC, GROUP) == {"0": 10}, "the file")
        replicas.slave.start()
        replicas.wait_equal(replicas.slave)
        replicas.master.kill()
        wait_until(lambda: 0 not in name_server.addresses_of("a"), "the master to be missed")
        if slave == OURS:
            wait_until(lambda: "it acts for the master" in replicas.slave.log_text(), "acting")
        commit(replicas.slave, 40)
        replicas.master.start()
        assert offsets_of(replicas.master, TOPIC, GROUP) == {0: 40}
        assert offsets_of(replicas.slave, TOPIC, GROUP) == {0: 40}
        replicas.wait_equal(replicas.slave)


def commit(broker: BrokerProcess, offset: int) -> None:
    """Commits for the group."""
    request = RemotingCommand.request(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset
        ),
    )
    response = ask(broker.address, request)
    assert response.code == ResponseCode.SUCCESS, response
