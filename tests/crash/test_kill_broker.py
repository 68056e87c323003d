"""kill -9 under load, ten times: what was acknowledged is served, log and queues agree."""

import random
from functools import partial
from pathlib import Path

import pytest

from tests.support.cluster import make_broker
from tests.support.load import Acked, Load, read_topic
from tests.support.storecheck import check_store
from tests.support.wait import wait_until

KILLS = 10
TOPIC = "load"


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_nothing_acknowledged_is_lost_by_kill_9(flush: str, servers: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    settings = {"flushDiskType": flush, "mappedFileSizeCommitLog": str(1 << 20)}
    broker = make_broker(servers, "killed", tmp_path, [], settings=settings)
    acked: list[Acked] = []
    try:
        for kill in range(KILLS):
            broker.start()
            stored = check_store(broker.store)
            assert sum(len(stored.get((TOPIC, queue), ())) for queue in range(4)) >= len(acked)
            load = Load(broker.address, TOPIC, f"round{kill}")
            enough = dice.randrange(50, 2000)
            wait_until(partial(load.has_acked, enough), "acks")
            broker.kill()
            acked += load.stop()
        broker.start()
        served = {
            (record.queue, record.offset): record for record in read_topic(broker.address, TOPIC)
        }
        lost = [a for a in acked if (a.queue, a.offset) not in served]
        assert not lost, f"{len(lost)} of {len(acked)} acknowledged messages are lost: {lost[:5]}"
        changed = [a for a in acked if served[a.queue, a.offset].body != a.body]
        assert not changed, f"other messages than acknowledged: {changed[:5]}"
        assert len({(a.queue, a.offset) for a in acked}) == len(acked), "an offset was given twice"
        broker.stop()
        stored = check_store(broker.store)
        assert sum(len(stored[TOPIC, queue]) for queue in range(4)) == len(served)
    finally:
        broker.close()
