"""Brokers of one name that follow controllers, stock's and ours, as processes, and a load."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.cluster import make_broker
from tests.support.controllers import ControllerGroup, Master, controlled_keys
from tests.support.java_client import JavaError, Producer
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.replicas import log_digest, log_end, wait_equal
from tests.support.running import Closing, Running
from tests.support.storecheck import read_log
from tests.support.wait import wait_until


class ElectedBrokers(Running):
    """A group in which an acknowledged message is on all that are in sync."""

    def __init__(
        self,
        name: str,
        home: Path,
        name_server: NameServerProcess,
        controllers: ControllerGroup,
        kinds: Sequence[str],
        settings: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.name_server = name_server
        self.controllers = controllers
        self.brokers: list[BrokerProcess] = []
        for number, kind in enumerate(kinds, 1):
            where = home / f"broker{number}-{kind}"
            keys = controlled_keys(where, controllers)
            keys |= {"allAckInSyncStateSet": "true", "slaveReadEnable": "true", **(settings or {})}
            self.brokers.append(make_broker(kind, name, where, [name_server], settings=keys))

    def start(self) -> None:
        """Starts all at once; back when all are in sync."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()
        self.wait_in_sync()

    @property
    def told(self) -> Master:
        """What the controllers say of the group now."""
        return self.controllers.master(self.name)

    def wait_in_sync(self) -> BrokerProcess:
        """Waits until all brokers are in the SyncStateSet; the master."""

        def master() -> BrokerProcess | None:
            told = self.told
            if len(told.sync_state_set) != len(self.brokers):
                return None
            return next(one for one in self.brokers if one.address == told.address)

        what = f"{len(self.brokers)} of {self.name} to be in sync"
        found = wait_until(master, what, interval=0.1)
        assert found is not None
        return found

    def kill_master(self) -> BrokerProcess:
        """kill -9 of the master, once all are in sync; back when another one has taken over."""
        master = self.wait_in_sync()
        epoch = self.told.epoch
        master.kill()
        wait_until(
            lambda: self.told.epoch > epoch and self.told.address != master.address,
            "another broker to be the master",
            interval=0.05,
        )
        return master

    def check_equal(self) -> int:
        """Waits until all logs end where the master's does; they must be equal byte for byte.
        Returns where they end."""
        master = self.wait_in_sync()
        for broker in self.brokers:
            if broker is not master:
                wait_equal(master, broker)
        end = log_end(master)
        assert len({log_digest(broker, 0, end) for broker in self.brokers}) == 1
        return end

    def bodies(self, topic: str) -> list[Counter[bytes]]:
        """How often each body of the topic is in each broker's log."""
        return [
            Counter(record.body for record in read_log(broker.store) if record.topic == topic)
            for broker in self.brokers
        ]

    def log_tails(self) -> str:
        """What every broker said last."""
        return "\n".join(broker.log_tails() for broker in self.brokers)

    def close(self) -> None:
        for broker in self.brokers:
            broker.close()


class Gap(NamedTuple):
    """A time without an acknowledgement, in seconds of the monotonic clock."""

    start: float
    end: float


class SteadyLoad(Closing):
    """Threads that send through one stock producer, each body once, until `stop`: what failed is
    not sent again, so nothing may be in a log twice."""

    def __init__(self, producer: Producer, topic: str, *, threads: int = 3) -> None:
        self.acknowledged: set[bytes] = set()
        #: What the last failed send was answered.
        self.last_failure = ""
        self._producer = producer
        self._topic = topic
        self._stopped = threading.Event()
        self._times: list[float] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def wait_more(self, messages: int) -> None:
        """Waits until so many more are acknowledged."""
        wanted = len(self.acknowledged) + messages
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{messages} more acknowledged sends")

    def longest_gap(self, since: float) -> Gap:
        """The longest time without an acknowledgement that began after `since`, or just before."""
        times = sorted(self._times)
        gaps = (Gap(*pair) for pair in itertools.pairwise(times) if pair[1] > since)
        return max(gaps, key=lambda gap: gap.end - gap.start)

    def stop(self) -> set[bytes]:
        """What was acknowledged, once all threads are done."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        return self.acknowledged

    def close(self) -> None:
        self.stop()

    def _run(self, thread: int) -> None:
        for number in itertools.count():
            if self._stopped.is_set():
                return
            body = f"{thread}-{number}"
            try:
                (result,) = self._producer.send({"topic": self._topic, "body": body}, check=False)
            except JavaError as error:
                self.last_failure = str(error)
                continue
            if result.get("status") == "SEND_OK":
                self._times.append(time.monotonic())
                self.acknowledged.add(body.encode())
            else:
                self.last_failure = str(result)
