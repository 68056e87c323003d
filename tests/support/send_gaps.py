"""How long a stock producer cannot send when the master of an elected group is killed."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from tests.support.cluster import OURS, make_name_server
from tests.support.controllers import ControllerGroup, running_controllers
from tests.support.elected_brokers import STOCK_IS_STUCK, ElectedBrokers
from tests.support.java_client import JavaClients, JavaError, Producer
from tests.support.outages import Outage
from tests.support.running import Closing, Running
from tests.support.wait import wait_until

#: Stock's defaults, in place of the short periods of the tests.
_DEFAULTS = {
    "syncBrokerMetadataPeriod": "5000",
    "checkSyncStateSetPeriod": "5000",
    "syncControllerMetadataPeriod": "10000",
    "brokerHeartbeatInterval": "1000",
}
#: The producer looks for routes so often that its own period does not show.
_PRODUCER = {"retries": 0, "timeoutMs": 3000, "pollMs": 20}
_TOPIC = "gaps"
_REFUSED_SECONDS = 0.002
_SENDS = 200


class Sender(Closing):
    """One thread that sends one message after the other and notes when each was acknowledged."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: list[float] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_more(self, messages: int) -> None:
        """Waits until so many more are acknowledged."""
        wanted = len(self.acknowledged) + messages
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{messages} more sends")

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopped.is_set():
                return
            try:
                (result,) = self._producer.send({"topic": _TOPIC, "body": str(number)}, check=False)
            except JavaError:
                result = {}
            if result.get("status") == "SEND_OK":
                self.acknowledged.append(time.monotonic())
            else:
                self._stopped.wait(_REFUSED_SECONDS)


class GapGroup(Running):
    """Three controllers, three brokers and a name server of one kind ("ours", or stock's version),
    and a stock producer."""

    def __init__(self, kind: str, home: Path, java: JavaClients) -> None:
        self.kind = kind
        self._home = home
        self._java = java
        self._open = ExitStack()
        self._brokers: ElectedBrokers
        self._sender: Producer

    def start(self) -> None:
        home, kind = self._home, self.kind
        names = self._open.enter_context(make_name_server(kind, home / "names"))
        members = ["ours" if kind == OURS else "stock"] * 3
        controllers: ControllerGroup = self._open.enter_context(running_controllers(home, members))
        group = ElectedBrokers(
            f"gap-{kind}",
            home,
            names,
            controllers,
            [kind] * 3,
            _DEFAULTS,
            restart_after=None if kind == OURS else STOCK_IS_STUCK,
        )
        self._brokers = self._open.enter_context(group)
        self._java.create_topic(names.address, group.wait_in_sync().address, _TOPIC, 4)
        producer = self._java.producer(names.address, self._java.handle("gap"), **_PRODUCER)
        self._sender = self._open.enter_context(producer)

    def gap(self) -> float:
        """Kills the master under sends; seconds between the last send that the former one
        acknowledged and the first one after it. The former one is back then, and all in sync."""
        self._brokers.wait_in_sync()
        with Sender(self._sender) as sender:
            sender.wait_more(_SENDS)
            killed_at = time.monotonic()
            killed = self._brokers.fail_master(Outage.KILL)
            sender.wait_more(_SENDS)
            times = sender.acknowledged
        killed.start()
        self._brokers.wait_in_sync()
        gaps = [after - before for before, after in itertools.pairwise(times) if after > killed_at]
        return max(gaps)

    def close(self) -> None:
        self._open.close()
