"""A name server and brokers, real ones on files and a network in memory, and rmqadmin on them."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.admin.main import main
from rocketmq_tw.admin.settings import Access
from rocketmq_tw.admin.tool import Servers, Tool, Work
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.client.session import Session
from rocketmq_tw.client.settings import ConsumerSettings, StartFrom
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.interfaces import Handler
from tests.support.broker import BrokerInMemory
from tests.support.damaged_stores import make_store
from tests.support.network import MemoryNetwork
from tests.support.stores import START_MS
from tests.support.wait import result_of

NAMES = "10.0.0.1:9876"
#: Of stores that `store` commands look at.
STORE_CONFIG = """\
mappedFileSizeCommitLog=4096
mappedFileSizeConsumeQueue=200
maxHashSlotNum=16
maxIndexNum=40
"""


class Outcome(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)

    @property
    def partial(self) -> Any:
        """What is there where a server's part is missing."""
        assert self.status == 1 and self.out, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line that has any."""
        assert self.status == 0, self.err
        return [line.split() for line in self.out.splitlines() if line.strip()]


Run = Callable[..., Outcome]


class World:
    """`rmqadmin("topicList -c")` runs a command against name server and brokers."""

    names = NAMES

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.reactor = MemoryReactorClock()
        self.network = MemoryNetwork(self.reactor)
        config = NamesrvConfig(kv_config_path="/kv.json", config_store_path="/ns.properties")
        self.name_server = NameServer(self.reactor, MemoryFiles(), config)
        self.network.serve(NAMES, self.name_server.handlers)
        #: By name (the last one that was added) and by address.
        self.brokers: dict[str, BrokerInMemory] = {}
        self.hosts: dict[str, BrokerInMemory] = {}

    def now_ms(self) -> int:
        return START_MS + round(self.reactor.seconds() * 1000)

    def add_broker(
        self, name: str, host: str, *, store: dict[str, Any] | None = None, **config: Any
    ) -> str:
        """Starts a broker; returns its address. `store` has fields of its store's configuration."""
        address = f"{host}:10911"
        broker = BrokerInMemory(
            clock=self.reactor,
            network=self.network,
            address=address,
            broker={"broker_name": name, "namesrv_addr": NAMES, **config},
            **store or {},
        )
        self.brokers[name] = self.hosts[address] = broker
        self.result(broker.broker[Cluster].membership.when_registered(NAMES))
        return address

    def lose_master(self, name: str, slave_host: str) -> str:
        """Gives a broker name a slave and stops its master: name servers know the slave alone.
        Returns the slave's address."""
        master = self.brokers[name]
        slave = self.add_broker(
            name,
            slave_host,
            broker_id=1,
            broker_cluster_name=master.broker.config.broker_cluster_name,
            store={"broker_role": "SLAVE"},
        )
        master.stop()
        self.wait_for(lambda: master.address not in self.rmqadmin("clusterList").out)
        assert slave in self.rmqadmin("clusterList").out
        return slave

    def name_server_topics(self) -> list[str]:
        """The topics that the name server tells clients of."""
        topics: list[str] = [
            one["topic"] for one in self.rmqadmin("topicList --output json").json["topics"]
        ]
        return topics

    def let_answer(self, address: str, code: int, handler: Handler) -> None:
        """The broker at an address answers one request in another way."""
        self.network.serve(address, {**self.hosts[address].handlers, code: handler})

    def result(self, deferred: Deferred[Any]) -> Any:
        """What it fires with, within a few seconds of the clock; a failure is raised."""
        return result_of(self.reactor, deferred)

    def run(self, name_servers: str, work: Work[Any], access: Access) -> Any:
        #: How the last command spoke to servers.
        self.access = access
        servers = Servers(self.reactor, name_servers, self.network.client("10.0.1.1"))
        return self.result(Deferred.fromCoroutine(work(servers)))

    def rmqadmin(self, command: str, *arguments: str, name_servers: str = NAMES) -> Outcome:
        """The words of `command`, then `arguments` as they are."""
        return self.bare(["-n", name_servers, *command.split(), *arguments], Tool(self.run))

    def bare(self, arguments: list[str], tool: Tool) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(arguments, tool)
        return Outcome(ended.value.code, *self._capsys.readouterr())

    def consume(
        self, group: str, topic: str, listener: Callable[[Any], None] = lambda message: None
    ) -> PushConsumer:
        """A push consumer that takes all messages."""
        session = Session(
            self.reactor,
            NAMES,
            remoting=self.network.client("10.0.1.9"),
            client_id="10.0.1.9@1",
            now_ms=self.now_ms,
        )
        consumer = PushConsumer(
            self.reactor,
            NAMES,
            group,
            listener,
            session=session,
            settings=ConsumerSettings(start_from=StartFrom.FIRST),
        )
        consumer.subscribe(topic)
        self.result(consumer.start())
        return consumer

    def wait_for(self, condition: Callable[[], bool]) -> None:
        for _ in range(600):
            if condition():
                return
            self.reactor.advance(0.1)
        raise AssertionError("it did not come to be within a minute")


@pytest.fixture
def world(capsys: pytest.CaptureFixture[str]) -> World:
    """One broker, `broker-a` of DefaultCluster."""
    made = World(capsys)
    made.add_broker("broker-a", "10.0.0.2")
    return made


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Someone sits there and types the text."""
    return lambda answer: monkeypatch.setattr("sys.stdin", _Terminal(answer))


@pytest.fixture
def stderr_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], io.StringIO]:
    """Makes stderr a terminal, and returns what is written to it. To be called in the test:
    pytest has stderr as its own when one begins."""

    def make() -> io.StringIO:
        stream = _Terminal()
        monkeypatch.setattr("sys.stderr", stream)
        return stream

    return make


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that `root` is a copy of."""
    root = tmp_path_factory.mktemp("sound") / "store"
    make_store(root)
    return root


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    """A store without damage, in a directory of the test."""
    return Path(shutil.copytree(sound, tmp_path / "store"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs `rmqadmin store` with the words that follow it."""
    config = tmp_path / "broker.conf"
    config.write_text(STORE_CONFIG)

    def run(*words: object) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(["store", *map(str, words), "-c", str(config)], Tool())
        return Outcome(ended.value.code, *capsys.readouterr())

    return run
