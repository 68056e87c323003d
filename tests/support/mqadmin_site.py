"""A name server and a broker of one kind, with what the calls of `mqadmin_cases` ask about."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.cluster import Cluster, make_broker, make_name_server
from tests.support.java_client import JavaClients, JavaError
from tests.support.mqadmin_cases import AdminCall, Case, EndlessCall
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.stock import endless_mqadmin
from tests.support.wait import LIMIT, wait_until

CLUSTER, BROKER, TOPIC = "TestCluster", "broker-a", "topic-a"
GROUP, AWAY, PRODUCERS = "group-a", "away-group", "producers-a"
MESSAGES = 4

#: Both kinds of broker get these; traces are asked for, and timers are shown.
SETTINGS = {"traceTopicEnable": "true", "timerWheelEnable": "true"}

_POLICY = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 5000]}}
_TOPICS = [{"topicName": "listed", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}]
_GROUPS = [{"groupName": "listed", "retryMaxTimes": 3}]


class Site:
    """Servers of one kind, a group with a member and one without, a producer, and messages."""

    _cluster: Cluster

    def __init__(self, java: JavaClients, kind: str, home: Path) -> None:
        """`java` has the clients, `kind` is "ours" or a version of stock."""
        self._java = java
        #: Has the tools that `run` uses.
        self.tools = java
        self._kind = kind
        self._home = home / kind
        self._folder = self._home / "files"
        self._folder.mkdir(parents=True)
        self._values: dict[str, str] = {}

    @contextmanager
    def running(self) -> Iterator[Site]:
        """Starts it all and ends it again."""
        java = self._java
        with ExitStack() as ends:
            names = make_name_server(self._kind, self._home / "namesrv")
            broker = self._make_broker("broker", names)
            self._cluster = ends.enter_context(Cluster([names], [broker]))
            java.create_topic(names.address, broker.address, TOPIC, 2)
            wait_until(lambda: names.routes(TOPIC, [broker]), "the route")
            for group in (GROUP, AWAY):
                java.mqadmin(*f"updateSubGroup -b {broker.address} -g {group}".split())
            producer = ends.enter_context(java.producer(names.address, PRODUCERS, trace=True))
            sent = []
            for n in range(MESSAGES):
                text = {"body": f"body-{n}", "keys": f"key-{n}", "tags": "tag-a"}
                sent += producer.send({"topic": TOPIC, **text}, queue=n % 2)
                _wait_for_another_store_time()
            for group in (GROUP, AWAY):
                # A member commits when it stops, or after ten seconds.
                with java.consumer(names.address, group, {TOPIC: "*"}) as member:
                    member.received(MESSAGES)
                    member.stop()
            ends.enter_context(java.consumer(names.address, GROUP, {TOPIC: "*"}))
            self._values = {
                "namesrv": names.address,
                "address": broker.address,
                "cluster": CLUSTER,
                "broker": BROKER,
                "topic": TOPIC,
                "group": GROUP,
                "producers": PRODUCERS,
                "client": self._client_id(names.address),
                "offset_id": sent[0]["offsetMsgId"],
                "unique_id": sent[0]["msgId"],
                "folder": str(self._folder),
                "policy": json.dumps(_POLICY),
                "topics_file": self._file("topics", _TOPICS),
                "groups_file": self._file("groups", _GROUPS),
            }
            # A client sends its traces up to five seconds late.
            traces = Case("queryMsgTraceById -i $unique_id")
            wait_until(lambda: "success" in self.run(traces), "the traces of the messages")
            yield self

    def _make_broker(self, folder: str, names: NameServerProcess, **more: str) -> BrokerProcess:
        """A broker of the group, with `more` settings, in a folder of its own; not started."""
        home = self._home / folder
        return make_broker(self._kind, BROKER, home, [names], settings=SETTINGS | more)

    def run(self, case: Case) -> str:
        """What a call prints, and behind it the JSON files that it wrote."""
        arguments = case.arguments(self._values)
        if isinstance(case, AdminCall):
            return self._answer(*arguments)
        if isinstance(case, EndlessCall):
            return self._first_round(case, *arguments, "-n", self._values["namesrv"])
        printed = self.tools.mqadmin(*arguments, "-n", self._values["namesrv"])
        return printed + "".join(self._exported())

    def _answer(self, method: str, *arguments: str) -> str:
        """What a method of the admin client returns or raises."""
        try:
            answer = self.tools.admin(self._values["namesrv"], method, *arguments)
        except JavaError as error:
            return str(error)
        return json.dumps(answer, indent=1, sort_keys=True)

    def _first_round(self, case: EndlessCall, *arguments: str) -> str:
        """What a call prints or logs in its first round; it is killed then."""
        version = self.tools.version
        home = self._home / f"{case.command}-{version}"
        home.mkdir()
        with endless_mqadmin(version, home, *arguments) as told:
            found = wait_until(
                lambda: re.search(case.first_round, told(), re.MULTILINE),
                f"the first round of {case.command}",
                # A round of startMonitoring in which one question times out has no end that it
                # logs; the next one begins a minute later.
                limit=2 * LIMIT,
                interval=0.2,
            )
        assert found is not None
        return found[0]

    def _exported(self) -> Iterator[str]:
        for path in sorted((self._folder / "exported").glob("*.json")):
            yield json.dumps(json.loads(path.read_text()), indent=1, sort_keys=True)
            path.unlink()

    def _file(self, name: str, content: object) -> str:
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps(content))
        return str(path)

    def _client_id(self, namesrv: str) -> str:
        def connected() -> list[dict[str, str]]:
            info = self._java.admin(namesrv, "examineConsumerConnectionInfo", GROUP)
            found: list[dict[str, str]] = info["connectionSet"]
            return found

        (member,) = wait_until(connected, "the member")
        return member["clientId"]


def _wait_for_another_store_time() -> None:
    """Tools sort messages by the millisecond in which they were stored: what is sent next has a
    later one than what was sent before."""
    stored = _milliseconds()
    wait_until(lambda: _milliseconds() > stored, "the next millisecond", interval=0.0005)


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000
