"""Programs that run stock's gRPC clients through one list of scenarios before a proxy, and the
topics and groups that these need.

Such a program takes lines "ENDPOINT PREFIX SCENARIO..." on stdin and answers each with lines of
words, separated by tabs: a scenario's name, what it saw; "done" ends a run. It has topics and
groups that begin with the prefix. The scenarios are in tests/interop/java-grpc/GrpcScenarios.java.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import GetRouteInfoRequestHeader
from rocketmq_tw.wire.headers.offsets import GetMaxOffsetRequestHeader
from tests.support.remoting import ask, topic_header
from tests.support.running import Closing
from tests.support.wait import PeerFailed, wait_until

#: What the scenarios saw: the words of their lines, by name.
Seen = Mapping[str, Sequence[Sequence[str]]]

#: Each scenario's topic: its message type and how many queues it has.
_TOPICS = {
    "tags": ("NORMAL", 1),
    "sql": ("NORMAL", 1),
    "large": ("NORMAL", 1),
    "invisible": ("NORMAL", 1),
    "push": ("NORMAL", 2),
    "fifo": ("FIFO", 2),
    "delay": ("DELAY", 1),
    "transaction": ("TRANSACTION", 1),
    "mixed": ("MIXED", 1),
    # These need others: classic clients, tools.
    "from-classic": ("NORMAL", 1),
    "to-classic": ("NORMAL", 1),
    "asked": ("NORMAL", 1),
}
#: What a client sees by itself.
ALONE = tuple(name for name in _TOPICS if name not in ("from-classic", "to-classic", "asked"))
#: Groups whose messages go to the dead-letter queue after two attempts, and whether in order.
_RETRYING = {"push": False, "fifo": True}
#: How long they wait before they try again. Stock's client for Node.js knows this one only, that
#: for Python the other; by one that it does not know, the former tries once, the latter 17 times.
EXPONENTIAL = GroupRetryPolicy(
    "EXPONENTIAL", ExponentialRetryPolicy(initial=1_000, max=2_000, multiplier=2)
)
CUSTOMIZED = GroupRetryPolicy(
    "CUSTOMIZED", customized_retry_policy=CustomizedRetryPolicy([1_000, 2_000])
)
#: What brokers need for the scenarios.
BROKER_SETTINGS = {
    "enableMixedMessageType": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "timerWheelEnable": "true",
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "3000",
    # Stock's asks again about what it has decided and not noted yet.
    "transactionOpBatchInterval": "1",
}
#: Seconds; longer than a program gives one of its scenarios.
_RUN_LIMIT = 300.0


class Site(NamedTuple):
    """A proxy that gRPC clients know by `endpoint`, and what is behind it."""

    name: str
    endpoint: str
    name_server: str
    broker: str

    def prepare(
        self,
        prefix: str,
        scenarios: Sequence[str] = ALONE,
        retry_policy: GroupRetryPolicy = EXPONENTIAL,
    ) -> None:
        """Creates the topics and groups of scenarios, which begin with the prefix; waits for the
        topics' routes."""
        for scenario in scenarios:
            message_type, queues = _TOPICS[scenario]
            header = topic_header(f"{prefix}-{scenario}", queues, message_type)
            self._tell(RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        for scenario in _RETRYING.keys() & set(scenarios):
            group = SubscriptionGroupConfig(
                group_name=f"{prefix}-{scenario}",
                consume_message_orderly=_RETRYING[scenario],
                retry_max_times=1,
                group_retry_policy=retry_policy,
            )
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            self._tell(RemotingCommand.request(code, body=encode_body(group)))
        for scenario in scenarios:
            self._wait_route(f"{prefix}-{scenario}")

    def wait_dead_letter(self, prefix: str, scenario: str) -> None:
        """Waits until the dead-letter queue of a scenario's group has a message."""
        header = GetMaxOffsetRequestHeader(topic=f"%DLQ%{prefix}-{scenario}", queue_id=0)
        command = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header)

        def has_one() -> bool:
            response = ask(self.broker, command)
            return response.code == ResponseCode.SUCCESS and response.ext_fields["offset"] != "0"

        wait_until(has_one, f"a dead letter of {prefix}-{scenario}", interval=0.2)

    def _tell(self, command: RemotingCommand) -> None:
        def accepted() -> bool:
            answer = ask(self.broker, command)
            if answer.code != ResponseCode.SUCCESS:
                raise PeerFailed(f"{answer.code}: {answer.remark}")
            return True

        wait_until(accepted, f"the broker to take a request of code {command.code}")

    def _wait_route(self, topic: str) -> None:
        header = GetRouteInfoRequestHeader(topic=topic)
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        wait_until(
            lambda: ask(self.name_server, command).code == ResponseCode.SUCCESS,
            f"the route of {topic}",
        )


class ScenarioProgram(Closing):
    """A process that runs the scenarios, again at each `run`."""

    def __init__(
        self, command: list[str], home: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = home / "client.log"
        self._lines: queue.Queue[str | None] = queue.Queue()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=home,
                env={**os.environ, **(environment or {}), "HOME": str(home)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def run(self, endpoint: str, prefix: str, scenarios: Sequence[str] = ALONE) -> Seen:
        """What the scenarios saw; the program's clients stay until it is closed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{endpoint} {prefix} {' '.join(scenarios)}\n")
        self._process.stdin.flush()
        seen: dict[str, list[list[str]]] = defaultdict(list)
        deadline = time.monotonic() + _RUN_LIMIT
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"no end in {_RUN_LIMIT:g} s; so far: {dict(seen)}") from None
            if line is None:
                raise PeerFailed(f"the client ended:\n{self.log_tail()}")
            name, *words = line.split("\t")
            if name == "done":
                return seen
            seen[name].append(words)

    def log_tail(self) -> str:
        return self._log.read_bytes()[-6000:].decode(errors="replace")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)
