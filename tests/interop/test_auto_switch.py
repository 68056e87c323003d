"""Auto-switch HA with stock 5.3.3 on the other end: a stock controller leads brokers of both."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rocketmq_tw.wire.codes import ResponseCode
from tests.support.cluster import OURS, make_name_server
from tests.support.controlled import ControlledGroup
from tests.support.controllers import STOCK_VERSION, ControllerGroup, running_controllers
from tests.support.load import encode_batch, send_request
from tests.support.processes import NameServerProcess
from tests.support.remoting import Connection, ask
from tests.support.replicas import log_digest, log_end, send_volume, wait_equal, wait_topic
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServerProcess]:
    server = make_name_server(OURS, tmp_path_factory.mktemp("names"))
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerGroup]:
    with running_controllers(tmp_path_factory.mktemp("controllers"), ["stock"]) as group:
        yield group


def epochs(group: ControlledGroup) -> list[str]:
    """The lines of each broker's epoch file, without counts and checksums."""
    return [
        "\n".join((broker.store / "epochFileCheckpoint").read_text().splitlines()[2:])
        for broker in group.brokers
    ]


def check_equal(group: ControlledGroup, master: int) -> int:
    """All logs are the master's, byte for byte; returns where they end."""
    end = 0
    for broker in group.brokers:
        if broker is not group[master]:
            end = wait_equal(group[master], broker)
    assert len({log_digest(broker, 0, end) for broker in group.brokers}) == 1
    return end


@pytest.mark.parametrize("kinds", [[STOCK_VERSION, OURS], [OURS, STOCK_VERSION], [OURS, OURS]])
def test_hand_overs_between_stock_and_ours(
    kinds: list[str],
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    tmp_path: Path,
    names,
) -> None:
    settings = {"mappedFileSizeCommitLog": str(1 << 20)}
    with ControlledGroup(
        names.new("b"), tmp_path, name_server, controllers, kinds, settings
    ) as group:
        group.start()
        topic = names.topic
        for master in (1, 2, 1, 2):
            if group.master.broker_id != master:
                group.hand_over(master)
            wait_until(partial(accepts, group, master, topic), f"{master} to take messages")
            send_volume(group[master].address, topic, 3 << 19)
            check_equal(group, master)
        assert log_end(group[1]) > 3 << 20
        wait_until(lambda: len(set(epochs(group))) == 1, "the epoch files to be one")
        assert len(epochs(group)[0].splitlines()) == 4
        wait_topic(group[1], topic)


def accepts(group: ControlledGroup, master: int, topic: str) -> bool:
    """Whether a message is acknowledged by the master, and with it by all that are in sync."""
    request = send_request(topic, 0, b"probe", queues=4)
    return ask(group[master].address, request).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("kinds", [[STOCK_VERSION, OURS], [OURS, STOCK_VERSION]])
def test_a_killed_master_comes_back_with_a_tail_that_nobody_has(
    kinds: list[str],
    name_server: NameServerProcess,
    controllers: ControllerGroup,
    tmp_path: Path,
    names,
) -> None:
    with ControlledGroup(
        names.new("b"), tmp_path, name_server, controllers, kinds, {"slaveTimeout": "500"}
    ) as group:
        group.start()
        topic = names.topic
        wait_until(lambda: accepts(group, 1, topic), "the first to take messages")
        check_equal(group, 1)
        os.kill(group[2].pid, signal.SIGSTOP)
        # More than the sockets in between hold.
        batch = encode_batch([b"tail" * 4096] * 16)
        with Connection(group[1].address, timeout=60) as connection:
            for _ in range(96):
                connection.send(send_request(topic, 0, batch, batch=True, queues=4))
            codes = {connection.receive().code for _ in range(96)}
        assert codes == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
        end = log_end(group[1])
        group[1].kill()
        os.kill(group[2].pid, signal.SIGCONT)
        group.wait_master(2)
        wait_until(lambda: accepts(group, 2, topic), "the second to take messages")
        assert log_end(group[2]) < end, "it never had all of the tail"
        send_volume(group[2].address, topic, 1 << 18)
        group[1].start()
        group.wait_in_sync(1, 2)
        check_equal(group, 2)
