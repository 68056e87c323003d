"""kill -9 of a SYNC_MASTER under load, ten times: what was acknowledged is on the slave."""

import random
from functools import partial
from pathlib import Path

from tests.support.cluster import make_name_server
from tests.support.load import Acked, Load, read_topic, send_until_accepted
from tests.support.replicas import Replicas, log_digest, wait_topic
from tests.support.storecheck import check_store
from tests.support.wait import PeerFailed, wait_until

KILLS = 10
TOPIC = "load"


def test_what_a_sync_master_acknowledged_is_on_its_slave(servers: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    name_server = make_name_server(servers, tmp_path / "namesrv")
    settings = {"mappedFileSizeCommitLog": str(1 << 20), "slaveTimeout": "10000"}
    with (
        name_server,
        Replicas(
            "pair",
            tmp_path,
            [name_server],
            master=servers,
            slaves=[servers],
            role="SYNC_MASTER",
            settings=settings,
        ) as pair,
    ):
        master, slave = pair.master, pair.slave
        acked: list[Acked] = []
        master.start()
        slave.start()
        send_until_accepted(master.address, TOPIC, b"first")
        wait_topic(slave, TOPIC)
        for kill in range(KILLS):
            pair.wait_equal(slave)
            load = Load(master.address, TOPIC, f"round{kill}")
            enough = dice.randrange(50, 1000)
            wait_until(partial(load.has_acked, enough), "acks")
            master.kill()
            acked += load.stop()
            # In its log before the master answered; in its queues a moment later.
            has_acked = partial(has_all, slave.address, acked)
            wait_until(has_acked, "the slave to serve what was acked", interval=0.2)
            master.start()
        end = pair.wait_equal(slave)
        assert log_digest(slave, 0, end) == log_digest(master, 0, end)
        slave.stop()
        check_store(slave.store)


def has_all(address: str, acked: list[Acked]) -> bool:
    """Whether the slave serves all acknowledged messages; else raises `PeerFailed`."""
    served = {(r.queue, r.offset): r.body for r in read_topic(address, TOPIC)}
    missing = [a for a in acked if served.get((a.queue, a.offset)) != a.body]
    if missing:
        raise PeerFailed(f"{len(missing)} of {len(acked)} are not there: {missing[:5]}")
    return True
