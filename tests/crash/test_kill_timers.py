"""kill -9 under a load of timed messages: what was acknowledged comes, never before its time."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.record import decode_record, parse_head
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.cluster import make_broker
from tests.support.load import read_topic, send_request
from tests.support.remoting import Connection
from tests.support.storecheck import check_store
from tests.support.wait import wait_until

KILLS = 4
THREADS = 3
TOPIC = "timed"
#: Milliseconds: shorter than a round, and longer.
LEAST_DELAY, MOST_DELAY = 50, 6_000
#: Milliseconds before a kill whose deliveries may come again: what is written every second, the
#: slot that was delivered, and a machine that does much else and is slow to do so.
UNTOLD = 30_000


class Senders:
    """Threads that send until the broker is gone; `sent` has what was acknowledged, with the time
    before which it may not come."""

    def __init__(self, address: str, prefix: str) -> None:
        self.sent: dict[bytes, int] = {}
        self._address = address
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(f"{prefix}-{n}",)) for n in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, prefix: str) -> None:
        dice = random.Random(prefix)
        try:
            with Connection(self._address) as connection:
                for number in itertools.count():
                    if self._stopped.is_set():
                        return
                    body = f"{prefix}-{number}".encode()
                    delay = dice.randrange(LEAST_DELAY, MOST_DELAY)
                    request = send_request(TOPIC, 0, body)
                    own = {"TIMER_DELAY_MS": str(delay), "UNIQ_KEY": body.decode()}
                    request.ext_fields["i"] = join_properties(own).decode()
                    due = int(time.time() * 1000) + delay
                    answer = connection.request(request)
                    assert answer.code == ResponseCode.SUCCESS, answer
                    self.sent[body] = due
        except OSError:
            # Killed, as the test means it to be.
            return


def _has_sent(load: Senders, enough: int) -> bool:
    return len(load.sent) >= enough


def stored(root: Path) -> Iterator[StoredMessage]:
    """All messages of the topic in a store's log, in their order."""
    for path in sorted((root / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while (head := parse_head(data, at, check_body=False)) is not None:
            if head.topic == TOPIC:
                yield decode_record(data, at)
            at += head.size


def test_no_timed_message_is_lost(servers: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    broker = make_broker(servers, "killed", tmp_path, [])
    sent: dict[bytes, int] = {}
    kills: list[int] = []
    try:
        broker.start()
        for kill in range(KILLS):
            load = Senders(broker.address, f"round{kill}")
            enough = dice.randrange(300, 2_000)
            wait_until(partial(_has_sent, load, enough), "sends")
            broker.kill()
            kills.append(int(time.time() * 1000))
            load.stop()
            sent |= load.sent
            broker.start()

        def all_came() -> bool:
            return sent.keys() <= {record.body for record in read_topic(broker.address, TOPIC)}

        wait_until(all_came, "all that was acknowledged", interval=1)
        broker.stop()
        check_store(broker.store)
        came: dict[bytes, list[int]] = defaultdict(list)
        for message in stored(broker.store):
            came[message.body].append(message.store_timestamp)
        early = [body for body, due in sent.items() if came[body][0] < due]
        assert not early, f"came before their time: {early[:5]}"
        for body, times in came.items():
            for before, again in itertools.pairwise(times):
                # A message that came again before one kill may do so before the next one too.
                excused = any(before <= kill <= min(again, before + UNTOLD) for kill in kills)
                assert excused, f"{body!r} came at {times}, kills were at {kills}"
    finally:
        broker.close()
