"""Brokers of one name that follow controllers, stock's and ours, as processes, and a load."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.controlled import FollowingBrokers
from tests.support.controllers import ControllerGroup
from tests.support.hosts import HostNetwork
from tests.support.java_client import JavaError, Producer
from tests.support.outages import Outage
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.running import Closing, Running
from tests.support.storecheck import read_log
from tests.support.wait import wait_until

#: Between a refused send and the next one.
_REFUSED_SECONDS = 0.01
#: Seconds out of sync after which stock's brokers are to be started again: after some outages they
#: never come back by themselves.
STOCK_IS_STUCK = 40.0


class ElectedBrokers(FollowingBrokers, Running):
    """A group whose master the controllers choose."""

    def __init__(
        self,
        name: str,
        home: Path,
        name_server: NameServerProcess,
        controllers: ControllerGroup,
        kinds: Sequence[str],
        settings: dict[str, str] | None = None,
        *,
        network: HostNetwork | None = None,
        restart_after: float | None = None,
    ) -> None:
        """With `network` each runs on a host of its own. `restart_after`: seconds out of sync after
        which brokers are killed and started again, as an operator would do; None: never."""
        super().__init__(name, home, name_server, controllers, kinds, settings, network=network)
        #: Brokers that were started again since they did not come into sync.
        self.restarted = 0
        self._restart_after = restart_after

    def start(self) -> None:
        """Starts all at once; back when all are in sync."""
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_ready()
        self.wait_in_sync()

    def wait_in_sync(self, count: int | None = None) -> BrokerProcess:
        """Waits until all brokers, or at least `count`, are in the SyncStateSet; the master."""
        return self._wait_led(count)[0]

    def _wait_led(self, count: int | None) -> tuple[BrokerProcess, int]:
        """As `wait_in_sync`; the master and its epoch."""
        needed = len(self.brokers) if count is None else count

        def master() -> tuple[BrokerProcess, int] | None:
            told = self.master
            if len(told.sync_state_set) < needed:
                return None
            found = (one for one in self.brokers if one.address == told.address)
            return next(((one, told.epoch) for one in found), None)

        what = f"{needed} of {self.name} to be in sync"
        if self._restart_after is not None:
            # First the slaves; where that does not help, the master.
            for of_master in (False, True):
                with suppress(TimeoutError):
                    found = wait_until(master, what, limit=self._restart_after, interval=0.1)
                    assert found is not None
                    return found
                self._restart(of_master=of_master)
        found = wait_until(master, what, interval=0.1)
        assert found is not None
        return found

    def _restart(self, *, of_master: bool) -> None:
        leading = self.master.address
        for broker in self.brokers:
            if (broker.address == leading) == of_master:
                broker.kill()
                broker.start()
                self.restarted += 1

    def fail_master(self, outage: Outage, in_sync: int | None = None) -> BrokerProcess:
        """The master goes, once so many are in sync; back when another one has taken over."""
        master, epoch = self._wait_led(in_sync)
        outage.begin(master)
        wait_until(
            lambda: self.master.epoch > epoch and self.master.address not in (None, master.address),
            "another broker to be the master",
            interval=0.05,
        )
        return master

    def check_equal(self) -> int:
        """See `check_equal_to`; the master is the one that there is once all are in sync."""
        return self.check_equal_to(self.wait_in_sync())

    def bodies(self, topic: str) -> list[Counter[bytes]]:
        """How often each body of the topic is in each broker's log."""
        return [
            Counter(record.body for record in read_log(broker.store) if record.topic == topic)
            for broker in self.brokers
        ]


class SteadyLoad(Closing):
    """Threads that send through one stock producer, each body once, until `stop`: what failed is
    not sent again, so nothing may be in a log twice."""

    def __init__(self, producer: Producer, topic: str, *, threads: int = 3) -> None:
        self.acknowledged: set[bytes] = set()
        #: Where brokers said that they have the acknowledged messages.
        self.message_ids: dict[bytes, str] = {}
        self.refused = 0
        self._producer = producer
        self._topic = topic
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def wait_more(self, messages: int) -> None:
        """Waits until so many more are acknowledged."""
        wanted = len(self.acknowledged) + messages
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{messages} more acknowledged sends")

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
            except JavaError:
                result = {}
            if result.get("status") == "SEND_OK":
                self.message_ids[body.encode()] = result["offsetMsgId"]
                self.acknowledged.add(body.encode())
            else:
                self.refused += 1
                # What is refused at once must not keep the machine from electing another master.
                self._stopped.wait(_REFUSED_SECONDS)
