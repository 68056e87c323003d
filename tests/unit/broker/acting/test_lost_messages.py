"""A master whose power loss took messages that its slave has: they are not lost."""

from __future__ import annotations

from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.role.state import Role
from tests.support.sim.acting import ActingCluster


def group_that_lost_some() -> tuple[ActingCluster, set[bytes]]:
    """A master has less of the log than its slave, which acts; and what was acknowledged."""
    cluster = ActingCluster(total_replicas=2, flush_disk_type="ASYNC_FLUSH")
    master = cluster.start_group("a")
    master.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    cluster.run(8)
    acknowledged = set[bytes]()
    process = cluster.processes["a", 0]
    # Some of it is flushed before the power goes.
    for number in range(300):
        process.send(b"%d" % number, lambda body, _: acknowledged.add(body))
        cluster.run(0.002)
    cluster.run_until(lambda: cluster.follows("a", 1))
    for number in range(300, 400):
        process.send(b"%d" % number, lambda body, _: acknowledged.add(body))
    cluster.run_until(lambda: cluster.follows("a", 1), limit=0.3)
    process.end(power=True, seed=1)
    cluster.run_until(lambda: cluster.acts("a", 1))
    assert len(acknowledged) == 400
    return cluster, acknowledged


def bodies(cluster: ActingCluster, number: int) -> set[bytes]:
    return {message.body for message in cluster.broker("a", number).consume("Topic")}


def test_the_master_waits_while_its_slave_acts_and_says_what_to_do() -> None:
    cluster, acknowledged = group_that_lost_some()
    with capturedLogs() as events:
        master = cluster.start("a", 0)
        assert master.store.end_offset < cluster.broker("a", 1).store.end_offset
        for _ in range(60):
            cluster.run(1)
            assert cluster.acts("a", 1)
    assert cluster.role("a", 0) is Role.ISOLATED
    lines = [formatEvent(event) for event in events if "log_format" in event]
    said = [line for line in lines if "goes on to" in line]
    assert said and all("skipPreOnline=true would lose them" in line for line in said)
    assert bodies(cluster, 1) == acknowledged


def test_the_advice_keeps_them() -> None:
    cluster, acknowledged = group_that_lost_some()
    cluster.broker("a", 1).stop()
    cluster.run(3)
    cluster.kill("a", 1)
    store = cluster.processes.pop(("a", 1)).files
    del cluster.processes["a", 0]
    cluster.start("a", 0, files=store)
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER and cluster.follows("a", 1))
    assert bodies(cluster, 0) == acknowledged
