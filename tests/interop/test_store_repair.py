"""`rmqadmin store` on a store that stock's broker wrote: each damage is found and repaired, and
stock's broker starts from what is left of several, and serves it."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketmq_tw.admin.main import main
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.message import Message, ReceivedMessage
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.fastjson import dumps, loads
from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.damaged_stores import change
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.rmqadmin import answer
from tests.support.storecheck import Record, read_log
from tests.support.wait import wait_until

LOG_SIZE, QUEUE_SIZE, SLOTS, ENTRIES = 1 << 16, 1000, 100, 1000
SETTINGS = {
    "mappedFileSizeCommitLog": str(LOG_SIZE),
    "mappedFileSizeConsumeQueue": str(QUEUE_SIZE),
    "maxHashSlotNum": str(SLOTS),
    "maxIndexNum": str(ENTRIES),
}
TOPICS = "orders", "payments"
QUEUES = 2
MESSAGES = 300
GROUP = "readers"
OFFSETS = "config/consumerOffset.json"
FIRST = f"{0:020}"
#: Where the first entry of an index file is.
FIRST_ENTRY = 40 + 4 * SLOTS + 20


class Site(NamedTuple):
    """A stock broker that was stopped; `records` are all of its log, `config` is its file."""

    broker: BrokerProcess
    records: list[Record]

    @property
    def store(self) -> Path:
        return self.broker.store

    @property
    def config(self) -> Path:
        return self.broker.home / "broker.properties"

    @property
    def middle(self) -> Record:
        """A record in the middle of the log, which a queue has."""
        return next(each for each in self.records[len(self.records) // 2 :] if each.queued)

    @property
    def end(self) -> int:
        last = self.records[-1]
        return last.position + last.size


Found = tuple[str, str, int | None]


class Damage(NamedTuple):
    """What `do` makes of a store, and the finding that tells it: kind, file and byte there.
    `loses`: a repair ends the log there, and is to be told so."""

    name: str
    do: Callable[[Site, Path], Found]
    loses: bool = False


def _file(position: int) -> str:
    return f"commitlog/{position - position % LOG_SIZE:020}"


def _cut_queue(site: Site, root: Path) -> Found:
    file = f"consumequeue/{TOPICS[0]}/0/{FIRST}"
    with (root / file).open("r+b") as queue:
        queue.truncate(150)
    return "file-size", file, 150


def _spoil_unit(site: Site, root: Path) -> Found:
    file = f"consumequeue/{TOPICS[0]}/1/{FIRST}"
    change(root / file, 60, struct.pack(">q", 5))
    return "unit-wrong", file, 60


def _lose_queue(site: Site, root: Path) -> Found:
    shutil.rmtree(root / f"consumequeue/{TOPICS[1]}/0")
    return "unit-missing", f"consumequeue/{TOPICS[1]}/0/{FIRST}", 0


def _spoil_index(site: Site, root: Path) -> Found:
    file = min((root / "index").iterdir())
    change(file, FIRST_ENTRY + 4, struct.pack(">q", 1))
    return "index-astray", f"index/{file.name}", FIRST_ENTRY


def _spoil_checkpoint(site: Site, root: Path) -> Found:
    change(root / "checkpoint", 0, b"\x7f" * 24)
    return "checkpoint", "checkpoint", None


def _spoil_body(site: Site, root: Path) -> Found:
    record = site.middle
    file, at = root / _file(record.position), record.position % LOG_SIZE
    change(file, at + file.read_bytes()[at:].index(record.body), b"?")
    return "log-damage", _file(record.position), at


def _tear_end(site: Site, root: Path) -> Found:
    file, at = _file(site.end), site.end % LOG_SIZE
    change(root / file, at, b"\0\0\1\0\xda\xa3\x20\xa7 half of a record")
    return "log-torn", file, at


def _put_group_ahead(site: Site, root: Path) -> Found:
    path = root / OFFSETS
    table = loads(path.read_bytes())
    queues = table["offsetTable"][f"{TOPICS[0]}@{GROUP}"]
    queues[next(iter(queues))] = 10 * MESSAGES
    path.write_bytes(dumps(table))
    return "offset-ahead", OFFSETS, None


DAMAGES = [
    Damage("a queue file that was cut", _cut_queue),
    Damage("a unit that leads elsewhere", _spoil_unit),
    Damage("a queue that is missing", _lose_queue),
    Damage("an entry of the index that leads elsewhere", _spoil_index),
    Damage("a checkpoint that cannot be", _spoil_checkpoint),
    Damage("a log whose end is torn", _tear_end),
    Damage("a group ahead of its queue", _put_group_ahead),
    Damage("a body that changed in the middle of the log", _spoil_body, loses=True),
]


class Told(NamedTuple):
    status: int
    data: dict[str, object]

    @property
    def places(self) -> set[Found]:
        findings: list[dict[str, object]] = self.data["findings"]  # type: ignore[assignment]
        return {(each["kind"], each["file"], each["offset"]) for each in findings}  # type: ignore[misc]


Run = Callable[..., Told]


@pytest.fixture(scope="module", params=["5.3.3", pytest.param("4.9.7", marks=pytest.mark.more)])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("repaired")
    name_server = make_name_server(OURS, home / "namesrv")
    broker = make_broker(
        request.param, "repaired", home / "broker", [name_server], settings=SETTINGS
    )
    try:
        name_server.start()
        broker.start()
        _write(name_server, broker)
        broker.stop()
        yield Site(broker, list(read_log(broker.store)))
    finally:
        broker.close()
        name_server.close()


def _write(name_server: NameServerProcess, broker: BrokerProcess) -> None:
    """Messages of two topics with keys and tags, of which a group has read half."""
    for topic in TOPICS:
        command = f"updateTopic -b {broker.address} -t {topic} -r {QUEUES} -w {QUEUES}"
        answer(name_server.address, command)
        wait_until(partial(name_server.routes, topic, [broker]), "the route")
    with BlockingClient([name_server.address], group=GROUP, timeout=60) as client:
        for number in range(MESSAGES):
            topic = TOPICS[number % 2]
            queue = MessageQueue(
                topic=topic, broker_name=broker.name, queue_id=number // 2 % QUEUES
            )
            body = f"{topic} {number:5} ".encode() * 30
            client.send(Message(topic, body, tags="a", keys=f"key-{number}"), queue=queue)
        for queue in client.queues(TOPICS[0]):
            assert client.pull(queue, 0).messages
            client.commit_offset(queue, MESSAGES // 4)


@pytest.fixture
def run(site: Site, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> Told:
        given = ["store", *map(str, words), "-c", str(site.config), "--output", "json"]
        with pytest.raises(SystemExit) as ended:
            main(given, Tool())
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Told(ended.value.code, json.loads(printed.out) if printed.out else {})

    return run


def test_a_sound_store_of_stocks_has_no_findings(site: Site, run: Run) -> None:
    told = run("check", site.store)
    assert (told.status, told.places) == (0, set())
    assert told.data["records"] == len(site.records)
    assert told.data["logEnd"] == site.end


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_a_damage_is_found_and_repaired(
    damage: Damage, site: Site, run: Run, tmp_path: Path
) -> None:
    root, copy = Path(shutil.copytree(site.store, tmp_path / "store")), tmp_path / "copy"
    expected = damage.do(site, root)
    told = run("check", root)
    assert told.status == 1
    assert expected in told.places
    cut = ["--cut"] if damage.loses else []
    if damage.loses:
        assert run("repair", root, "--yes") == Told(1, {}), "what would lose records is refused"
    for words in (("--to", copy), ("--yes",)):
        assert run("repair", root, *words, *cut).status == 0
    for repaired in (copy, root):
        told = run("check", repaired)
        assert (told.status, told.places) == (0, set())
        left = list(read_log(repaired))
        assert left == [
            each
            for each in site.records
            if not damage.loses or each.position < site.middle.position
        ]


def test_stocks_broker_serves_what_a_repair_leaves(site: Site, run: Run) -> None:
    """Of a store with all damages at once. It is the last test: the store is changed."""
    broker = site.broker
    (name_server,) = broker.name_servers
    expected = {damage.do(site, site.store) for damage in DAMAGES}
    found = run("check", site.store).places
    # Whatever stands behind the damage in the middle is read all the same.
    assert expected <= found
    assert run("repair", site.store, "--yes", "--cut").status == 0
    assert run("check", site.store).places == set()

    left = [each for each in site.records if each.position < site.middle.position]
    broker.start()
    with BlockingClient([name_server.address], group=GROUP, timeout=60) as client:
        for topic in TOPICS:
            wait_until(partial(name_server.routes, topic, [broker]), "the route")
            for queue in client.queues(topic):
                records = [r for r in left if (r.topic, r.queue) == (topic, queue.queue_id)]
                read = list(_read(client, queue))
                assert [(m.queue_offset, m.physical_offset, m.body) for m in read] == [
                    (r.offset, r.position, r.body) for r in records
                ]
                if topic == TOPICS[0]:
                    at = client.committed_offset(queue)
                    assert at == min(MESSAGES // 4, len(records)) or at == len(records)
                # Offsets go on, and none is given twice.
                sent = client.send(Message(topic, b"new"), queue=queue)
                assert sent.queue_offset == len(records)
    for number in (0, 1, MESSAGES // 4):
        topic = TOPICS[number % 2]
        found_by_key = answer(name_server.address, f"queryMsgByKey -t {topic} -k key-{number}")
        assert len(found_by_key) == 1
    broker.stop()
    assert run("check", site.store).places == set()


def _read(client: BlockingClient, queue: MessageQueue) -> Iterator[ReceivedMessage]:
    at, end = client.min_offset(queue), client.max_offset(queue)
    while at < end:
        pulled = client.pull(queue, at)
        yield from pulled.messages
        at = pulled.next_offset
