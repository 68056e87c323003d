"""Groups of DLedger nodes, stock's and ours, and stock's client."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rocketmq_tw.raft.bodies import DLedgerRequestCode, MetadataRequest, MetadataResponse
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.dledger_entries import read_entries
from tests.support.jars import PROJECT, compiled, java_command, stock_jars
from tests.support.ports import ReservedPort
from tests.support.processes import ServerFailed, ServerProcess
from tests.support.remoting import ask
from tests.support.servers import plugin_command, twistd_environment
from tests.support.wait import PeerFailed, wait_until

STOCK_VERSION = "5.3.3"
GROUP = "g"
_PROBE_TIMEOUT = 5.0
SOURCES = PROJECT / "tests" / "interop" / "java-dledger"
DATA_FILE_SIZE = 1024 * 1024
INDEX_FILE_SIZE = 32 * 16 * 1024


#: What a node needs of stock's jars; a JVM that reads all of them starts half as fast.
_NEEDED_JARS = (
    "commons-",
    "dledger-",
    "fastjson-",
    "guava-",
    "netty-",
    "opentelemetry-",
    "rocketmq-common-",
    "rocketmq-logback-",
    "rocketmq-remoting-",
    "rocketmq-slf4j-",
    "slf4j-",
)


class Timing(NamedTuple):
    """Milliseconds; the heartbeat leak is 3 everywhere."""

    heartbeat: int = 150
    min_vote: int = 50
    max_vote: int = 200


def dledger_classpath() -> str:
    """The class path of the two small programs in tests/interop/java-dledger."""
    jars = stock_jars(STOCK_VERSION)
    classes = compiled("dledger", SOURCES, jars)
    needed = [str(jar) for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(_NEEDED_JARS)]
    return ":".join([str(classes), *needed])


class Member(ServerProcess):
    """One node of a group."""

    def __init__(self, member_id: str, home: Path, timing: Timing) -> None:
        super().__init__(member_id, home)
        self.port = ReservedPort()
        self.timing = timing
        self.peers = ""

    @property
    def address(self) -> str:
        return self.port.address

    @property
    def store(self) -> Path:
        return self.home / "store"

    def metadata(self) -> MetadataResponse:
        """What the node says of its group."""
        body = msgspec.json.encode(MetadataRequest(group=GROUP, remote_id=self.name))
        command = RemotingCommand.request(DLedgerRequestCode.METADATA, body=body)
        answer = ask(self.address, command, _PROBE_TIMEOUT)
        if not answer.body:
            raise PeerFailed(f"{self.name} says nothing of its group: {answer.remark}")
        return msgspec.json.decode(answer.body, type=MetadataResponse)

    def ready(self) -> bool:
        return self.metadata().peers is not None

    def entries(self) -> list[Entry]:
        """All entries in the node's files."""
        return read_entries(self.store / f"dledger-{self.name}", DATA_FILE_SIZE, self.home)

    def term(self) -> int:
        """The term that the node has stored."""
        text = (self.store / f"dledger-{self.name}" / "currterm").read_text()
        found = re.search(r"currTerm=(\d+)", text)
        return int(found.group(1)) if found else 0

    def close(self) -> None:
        super().close()
        self.port.release()


class StockMember(Member):
    """Stock's DLedgerServer in a JVM of its own."""

    def command(self) -> list[str]:
        return [
            *java_command(96),
            "-cp",
            dledger_classpath(),
            "DLedgerNode",
            GROUP,
            self.name,
            self.peers,
            str(self.store),
            *map(str, self.timing),
            str(DATA_FILE_SIZE),
            str(INDEX_FILE_SIZE),
        ]


class OurMember(Member):
    """`twistd rmq-dledger`; `more` stands behind the other arguments."""

    more: Sequence[str] = ()

    def command(self) -> list[str]:
        heartbeat, low, high = map(str, self.timing)
        return plugin_command(
            "rmq-dledger",
            *("--group", GROUP, "--id", self.name),
            *("--peers", self.peers, "--store", str(self.store), "--heartbeat-ms", heartbeat),
            *("--min-vote-ms", low, "--max-vote-ms", high),
            *("--data-file-size", str(DATA_FILE_SIZE)),
            *("--index-file-size", str(INDEX_FILE_SIZE)),
            *self.more,
        )

    def environment(self) -> dict[str, str]:
        return twistd_environment()


class DLedgerGroup:
    """Three members or so; `kinds` has "stock" or "ours" for each."""

    def __init__(self, home: Path, kinds: Sequence[str], timing: Timing | None = None) -> None:
        classes = {"stock": StockMember, "ours": OurMember}
        self.members: dict[str, Member] = {}
        for number, kind in enumerate(kinds):
            name = f"n{number}"
            self.members[name] = classes[kind](name, home / name, timing or Timing())
        self.peers = ";".join(f"{name}-{one.address}" for name, one in self.members.items())
        for member in self.members.values():
            member.peers = self.peers

    def start(self) -> None:
        for member in self.members.values():
            member.launch()
        for member in self.members.values():
            member.wait_ready()

    def leader(self) -> Member | None:
        """The member that a majority follows, if it runs."""
        said: list[str] = []
        running = [member for member in self.members.values() if member.running]
        for member in running:
            try:
                leader = member.metadata().leader_id
            except (OSError, PeerFailed):
                continue
            if leader is not None:
                said.append(leader)
        for name in set(said):
            enough = said.count(name) > len(self.members) // 2
            if enough and self.members[name].running:
                return self.members[name]
        return None

    def wait_leader(self) -> Member:
        found = wait_until(self.leader, "a leader that a majority follows")
        assert found is not None
        return found

    def close(self) -> None:
        for member in self.members.values():
            member.close()


class Appended(msgspec.Struct, frozen=True):
    """Stock's answer to an append."""

    code: int
    index: int
    term: int
    pos: int
    leader: str


class StockDLedgerClient:
    """Stock's DLedgerClient in a JVM of its own."""

    def __init__(self, peers: str, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._log = home / "driver.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*java_command(128), "-cp", dledger_classpath(), "DLedgerDriver", GROUP, peers],
                cwd=home,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def call(self, line: str) -> str:
        """One line to the driver, one line back."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ServerFailed(f"the JVM ended; see {self._log}")
        return answer.rstrip("\n")

    def append(self, text: str) -> Appended:
        code, index, term, pos, leader = self.call(f"append {text}").split(" ")
        return Appended(int(code), int(index), int(term), int(pos), leader)

    def get(self, index: int) -> str:
        """The body of an entry; empty where there is none."""
        return self.call(f"get {index}").partition(" ")[2]

    def transfer(self, source: str, target: str, term: int) -> int:
        """The code of the answer."""
        return int(self.call(f"transfer {source} {target} {term}").split(" ")[0])

    def load(self, threads: int, seconds: float, size: int) -> int:
        """How many appends of `size` bytes were acknowledged."""
        return int(self.call(f"load {threads} {seconds} {size}").split(" ")[1])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def running_group(
    home: Path, kinds: Sequence[str], timing: Timing | None = None
) -> Iterator[tuple[DLedgerGroup, StockDLedgerClient]]:
    """A started group with a leader, and a client; closed at the end."""
    group = DLedgerGroup(home, kinds, timing)
    client = StockDLedgerClient(group.peers, home / "client")
    try:
        group.start()
        group.wait_leader()
        yield group, client
    finally:
        client.close()
        group.close()
