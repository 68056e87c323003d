"""Idle connections take every descriptor of a broker while its log rolls."""

import os
import resource
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.support.cluster import make_broker
from tests.support.load import Load, read_topic
from tests.support.processes import BrokerProcess
from tests.support.wait import wait_until

TOPIC = "load"
LOG_FILE = 64 << 10
#: Descriptors that the broker may have on top of those in use, and connections that want them.
LEFT, IDLE = 12, 40


def descriptors(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def log_files(broker: BrokerProcess) -> int:
    return len(list((broker.store / "commitlog").iterdir()))


def test_nothing_acknowledged_is_lost_without_descriptors(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": str(LOG_FILE), "maxMessageSize": "4096"}
    broker = make_broker("ours", "poor", tmp_path, [], settings=settings)
    host, _, port = broker.address.partition(":")
    with ExitStack() as stack:
        stack.callback(broker.close)
        broker.start()
        load = Load(broker.address, TOPIC, "poor")
        stack.callback(load.stop)
        wait_until(partial(load.has_acked, 500), "acks")
        most = descriptors(broker) + LEFT
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (most, most))
        idle = [socket.create_connection((host, int(port))) for _ in range(IDLE)]
        for each in idle:
            stack.callback(each.close)
        wait_until(lambda: descriptors(broker) >= most, "descriptors to run out")
        files = log_files(broker)
        wait_until(lambda: log_files(broker) >= files + 5, "the log to roll")
        # The log opens a file and closes one all the time; the idle ones still hold the rest.
        wait_until(lambda: descriptors(broker) >= most - 1, "descriptors still to be out")
        for each in idle:
            each.close()
        # What comes back may go to the log's own files at once, so it is not counted.
        wait_until(partial(load.has_acked, len(load.acked) + 1000), "acks")
        broker.kill()
        acked = load.stop()
        broker.start()
        served = {(one.queue, one.offset): one.body for one in read_topic(broker.address, TOPIC)}
        assert [one for one in acked if served.get((one.queue, one.offset)) != one.body] == []
