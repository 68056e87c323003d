"""Plain sends go a way of their own: whatever comes, two brokers, one of which has that way and one
has not, answer the same, store the same and count the same."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.sending.part import Sending
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from rocketmq_tw.net.interfaces import AccessChecks, IFramePeer
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.services.access import request_checks
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import (
    RemotingCommand,
    SerializeType,
    decode_command,
    encode_command,
)
from rocketmq_tw.wire.frame import Frame, FrameDecoder, encode_frame
from tests.support.broker import BrokerInMemory, Threads
from tests.support.memory_server import RawClient
from tests.support.static_topics import static_topic
from tests.support.stores import stored_files

SEND = int(RequestCode.SEND_MESSAGE_V2)


class Side:
    """One of the two brokers, and a client of it whose connection is made again when it is lost."""

    def __init__(self, *, has_plain: bool, **settings: Any) -> None:
        random.seed(1)
        self.clock = MemoryReactorClock()
        net = NettyServerConfig(**settings.pop("net", {}))
        access = AccessChecks(requests=request_checks(net, self.clock.seconds))
        self.files = FaultyFiles(MemoryFiles())
        self.broker = BrokerInMemory(
            self.files,
            clock=self.clock,
            server=RemotingServer(self.clock, net, access=access),
            threads=Threads(eager=False),
            **settings,
        )
        self.taken = 0
        take = self.broker.broker[Sending].frame_handlers(Role.MASTER)[SEND]

        def counted(frame: Frame, peer: IFramePeer) -> bool:
            was_taken = take(frame, peer)
            self.taken += was_taken
            return was_taken

        frame_handlers = {SEND: counted} if has_plain else {}
        self.broker.listener.serve(dict(self.broker.handlers), frame_handlers)
        for name, fields in TOPICS.items():
            self.broker.add_topic(name, **fields)
        static_topic(self.broker, [0, 1])
        self.answered = b""
        self.connections = 0
        self.connect()
        # The topics are written and announced.
        for _ in range(20):
            self.turn([], leaves=False)

    def connect(self) -> None:
        connecting = self.broker.network.connect(
            "10.0.0.9", self.broker.address, Factory.forProtocol(RawClient)
        )
        self.client: Any = connecting.result
        self.client.dataReceived = self._heard
        self.connections += 1

    def _heard(self, data: bytes) -> None:
        self.answered += data

    def turn(self, pieces: list[bytes], *, leaves: bool) -> None:
        """Each piece is read by itself, and then what threads have to do is done. `leaves`: the
        client is gone by then."""
        if self.client.lost:
            self.connect()
        for piece in pieces:
            self.client.transport.write(piece)
            self.clock.advance(0)
        if leaves:
            self.client.transport.abortConnection()
            self.clock.advance(0)
        self.broker.threads.run()
        self.clock.advance(0.01)

    def figures(self) -> dict[str, Any]:
        """All that is counted, but what belongs to a broker's life."""
        traffic = self.broker.traffic
        return {
            "metrics": [
                (each.name, each.value, dict(each.labels)) for each in self.broker.broker.metrics()
            ],
            "traffic": {
                name: {key: (flow.messages, flow.size, flow.times) for key, flow in flows.items()}
                for name, flows in traffic._flows.items()
            },
            "incoming": list(self.broker.broker[Writing].incoming.totals()),
            "times": self.broker.commit.times.distribution(),
            "failed": self.broker.commit.times.failed,
            "in flight": self.broker.send_checks.in_flight,
            "held": self.broker.listener._resources.budget.used,
            "unanswered": [each.unanswered for each in self.broker.listener.connections._open],
            "connections": self.connections,
        }

    def stored(self) -> dict[str, bytes]:
        """All files of the broker, once it has stopped."""
        self.broker.threads.eager = True
        self.broker.threads.run()
        self.broker.stop()
        return dict(stored_files(self.files.inner))


# What is sent

TOPICS: dict[str, dict[str, Any]] = {
    "Topic": {},
    "Other": {"read_queue_nums": 2, "write_queue_nums": 2},
    "Ordered": {"order": True},
    "Tags": {"topic_filter_type": "MULTI_TAG"},
    "Fifo": {"attributes": {"+message.type": "FIFO"}},
    "Delayed": {"attributes": {"+message.type": "DELAY"}},
    "ReadOnly": {"perm": 4},
    "NoQueue": {"read_queue_nums": 0, "write_queue_nums": 0},
    "%RETRY%group": {},
    "%DLQ%group": {},
    "%LMQ%light": {},
}
NAMES = [
    *TOPICS,
    "topic",
    "new-1",
    "new-2",
    "StaticTopic",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "rmq_sys_wheel_timer",
    "TBW102",
    "%RETRY%unknown",
    "%LMQ%other",
    "a/b",
    "",
    "ü",
    "a" * 128,
    'a"b',
]
NUMBERS = ["0", "1", "3", "4", "-1", "99", "", "x", "1.0", " 1", "+1", "01", "null", "9" * 25]
NUMBERS += ["2147483647", "2147483648", "-2147483648", "9223372036854775807", "4294967296"]
#: Values that are no text in JSON.
BARE = [0, 1, -1, 1.0, 1.5, 1e3, True, False, None, [], {}]
FLAGS = ["0", "1", "2", "4", "8", "12", "16", "32", "48", "256", "768", "2147483647", "-1"]
PROPERTIES = [
    *(
        "KEYS=a",
        "KEYS=a b  c",
        "KEYS= ",
        "TAGS=t",
        "TAGS=ü",
        "WAIT=true",
        "WAIT=false",
        "WAIT=TRUE",
    ),
    *("WAIT=", "DELAY=1", "DELAY=x", "DELAY=0", "TIMER_DELAY_SEC=1", "TIMER_DELIVER_MS=5"),
    *("TRAN_MSG=true", "PGROUP=g", "POP_CK=x", "MSG_REGION=r", "TRACE_ON=no", "CLUSTER=c"),
    *("__SHARDINGKEY=s", "INNER_MULTI_DISPATCH=%LMQ%x", "INNER_MULTI_QUEUE_OFFSET=1"),
    *("REAL_TOPIC=t", "REAL_QID=1", "RETRY_TOPIC=r", "user=value", "user=", "=value", "odd"),
    *("UNIQ_KEY=V", "UNIQ_KEY=", 'UNIQ_KEY=a"b\\', "UNIQ_KEY=ü", "UNIQ_KEY=a-b_c", "UNIQ_KEY=\x00"),
    *("TIMER_OUT_MS=1", "TIMER_ROLL_TIMES=1", "__CRC32#=1", "RECONSUME_TIME=3", "INNER_NUM=2"),
]


def plain(dice: Random) -> dict[str, Any]:
    """The header of a plain send as stock's Java client writes it."""
    number = dice.randrange(1000)
    own = "".join(
        f"{name}\x01{name.lower()}-{number}\x02"
        for name in ("KEYS", "TAGS", "region", "amount")
        if dice.random() < 0.4
    )
    fields = {
        "a": "group",
        "b": dice.choice(("Topic", "Topic", "Other", "Tags")),
        "c": "TBW102",
        "d": "4",
        "e": str(number % 2),
        "f": "0",
        "g": str(1_700_000_000_000 + number),
        "h": "0",
        "i": f"{own}UNIQ_KEY\x017F0000010A2B0B1C2D3E{number:012X}\x02WAIT\x01true\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    return {
        "code": SEND,
        "extFields": fields,
        "flag": 0,
        "language": "JAVA",
        "opaque": dice.randrange(1 << 20),
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }


def other_text(dice: Random) -> str:
    """Properties as nobody, or somebody else, writes them."""
    entries = [dice.choice(PROPERTIES).replace("=", "\x01", 1) for _ in range(dice.randrange(6))]
    if dice.random() < 0.8:
        entries.append(f"UNIQ_KEY\x01U{dice.randrange(1 << 24):06X}")
    dice.shuffle(entries)
    text = "\x02".join(entries) + dice.choice(("\x02", "\x02", ""))
    if dice.random() < 0.1:
        text += "big\x01" + dice.choice("xü") * dice.choice((300, 20_000, 32_000, 40_000)) + "\x02"
    return text


def another_field(dice: Random, header: dict[str, Any]) -> None:
    fields = header["extFields"]
    name = dice.choice("abcdefghijklmn")
    kind = dice.randrange(10)
    if kind == 0:
        fields.pop(name, None)
    elif kind == 1:
        fields[name] = dice.choice(BARE)
    elif kind == 2:
        fields[dice.choice(("lo", "ns", "nsd", "bname", "oway", "z"))] = dice.choice(
            ("true", "false", "x", "")
        )
    elif kind == 3 or name == "b":
        fields["b"] = dice.choice(NAMES)
    elif kind == 4 or name == "f":
        fields["f"] = dice.choice(FLAGS)
    elif kind == 5 or name == "i":
        fields["i"] = other_text(dice)
    elif name in "degjhl":
        fields[name] = dice.choice(NUMBERS)
    elif name in "km":
        fields[name] = dice.choice(("true", "TRUE", "false", "no", "1", "0", ""))
    else:
        fields[name] = dice.choice(("", "ü", "x" * 300, "TBW102", "Nowhere"))


def another_head(dice: Random, header: dict[str, Any]) -> None:
    name = dice.choice(("flag", "flag", "opaque", "language", "version", "remark", "code"))
    values: Mapping[str, list[Any]] = {
        "flag": [2, 2, 2, 1, 3, -1, "0", "2", 1 << 31, None],
        "opaque": [0, -1, 7, 7, 7, "7", 1 << 31, 1.0, None],
        "language": ["PYTHON", "GO", "x", 0, None],
        "version": [0, 315, "479", -1, None, "x"],
        "remark": ["", "a remark", None, 1],
        "code": [10, 320, 310, "310", 35, 9_999],
    }
    header[name] = dice.choice(values[name])


def frame(dice: Random) -> bytes:
    """A request, mostly a plain send."""
    header = plain(dice)
    body = dice.randbytes(dice.choice((1, 10, 100, 128)))
    special = dice.random() < 0.5
    if special:
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            dice.choice((another_field, another_field, another_head))(dice, header)
        if dice.random() < 0.1:
            body = dice.choice((b"", bytes(2048), bytes(2049), bytes(5000)))
        if header["code"] == 320 or header["extFields"].get("m") == "true":
            body = encode_batch(
                BatchedMessage(0, b"x" * n, b"UNIQ_KEY\x01B%d\x02" % n) for n in range(1, 4)
            )
    if special and dice.random() < 0.1:
        return as_binary(header, body)
    if special and dice.random() < 0.1:
        items = list(header.items())
        dice.shuffle(items)
        header = dict(items)
    dense = not (special and dice.random() < 0.1)
    data = json.dumps(
        header, separators=(",", ":") if dense else None, ensure_ascii=dice.random() < 0.2
    ).encode()
    if special and dice.random() < 0.03:
        data = dice.choice(
            (
                data.replace(b'"e":', b'"e":"1","e":', 1),
                data.replace(b'"flag":', b'"extFields":{},"flag":', 1),
                data.replace(b'"flag":', b'"code":10,"flag":', 1),
                data.replace(b'"group"', b'"\xff"', 1),
                data.replace(b'"group"', b'"\\ud800"', 1),
                data.replace(b'"extFields":{', b'"extFields":{"z":"\xff",', 1),
                data.replace(b'"flag":', b'"z":"\xed\xa0\x80","flag":', 1),
                data[:-1],
                data + b" ",
                data + b"}",
            )
        )
    return encode_frame(SerializeType.JSON, data, body)


def as_binary(header: dict[str, Any], body: bytes) -> bytes:
    texts = {name: value for name, value in header["extFields"].items() if isinstance(value, str)}
    return encode_command(
        RemotingCommand(SEND, texts, body, opaque=7, flag=0, serialization=SerializeType.ROCKETMQ)
    )


def pieces(dice: Random) -> list[bytes]:
    """What comes in a turn: some requests, cut anywhere."""
    data = b"".join(frame(dice) for _ in range(dice.choice((1, 2, 3, 16, 30))))
    cuts = sorted(dice.sample(range(len(data)), dice.choice((0, 0, 1, 3))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def _json(header: dict[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode()


# The worlds in which it comes

WORLDS: dict[str, dict[str, Any]] = {
    "as it is configured": {},
    "figures are wanted": {"is_monitored": True},
    "types are checked": {"broker": {"enable_topic_message_type_check": True}},
    "every message is synced": {"flush_disk_type": "SYNC_FLUSH"},
    "replicas that are missing": {"broker_role": "SYNC_MASTER"},
    "light queues": {"enable_multi_dispatch": True, "enable_lmq": True},
    "sums over records": {"enabled_append_prop_crc": True},
    "another region": {"broker": {"region_id": 'r"ü', "trace_on": False}},
    "ordered topics are not written to": {"broker": {"broker_permission": 4}},
    "no transactions": {"broker": {"reject_transaction_message": True}},
    "little in flight": {"in_flight_limit": 700},
}


FAULTS: dict[str, dict[str, Any]] = {
    "full": {"operation": "pwrite", "path": "commitlog", "error": errno.ENOSPC, "times": 5},
    "broken": {"operation": "pwrite", "path": "commitlog", "times": 1},
    "not synced": {"operation": "fsync", "path": "commitlog", "times": 1},
    "without queues": {"operation": "pwrite", "path": "consumequeue"},
}


def both_ways(**settings: Any) -> tuple[Side, Side]:
    """The broker that has not the way of its own, and the one that has."""
    return (Side(has_plain=False, **settings), Side(has_plain=True, **settings))


def live(dice: Random, sides: tuple[Side, Side]) -> None:
    """Lets both have the same, some 600 requests, and compares after each turn."""
    for turn in range(60):
        came, leaves = pieces(dice), dice.random() < 0.1
        for side in sides:
            random.seed(turn)
            side.turn(came, leaves=leaves)
        general, own = sides
        assert own.answered == general.answered, f"in turn {turn}"
        assert own.figures() == general.figures(), f"in turn {turn}"


@pytest.fixture
def dice() -> Random:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return Random(seed)


@pytest.mark.parametrize("world", WORLDS)
def test_both_ways_are_alike(world: str, dice: Random) -> None:
    general, own = sides = both_ways(**WORLDS[world])
    live(dice, sides)
    assert general.taken == 0 and own.taken > 50
    assert own.stored() == general.stored()


@pytest.mark.parametrize("fault", FAULTS)
def test_both_ways_are_alike_where_the_disk_is_not(fault: str, dice: Random) -> None:
    sides = both_ways(flush_disk_type="SYNC_FLUSH")
    skip = dice.randrange(30)
    for side in sides:
        side.files.faults.append(Fault(**FAULTS[fault], skip=skip))
    live(dice, sides)
    assert sides[1].files.struck.keys() == sides[0].files.struck.keys() != set()


def test_both_ways_are_alike_while_others_hold_all_memory(dice: Random) -> None:
    sides = both_ways(net={"max_bytes_in_flight": 20_000}, flush_disk_type="SYNC_FLUSH")
    live(dice, sides)
    assert b"bytes are in flight" in sides[1].answered


def test_a_plain_send_goes_its_own_way() -> None:
    own = Side(has_plain=True)
    header = plain(Random(1))
    own.turn([encode_frame(SerializeType.JSON, _json(header), b"hello")], leaves=False)
    assert own.taken == 1
    (answer,) = map(decode_command, FrameDecoder().feed(own.answered))
    assert (answer.code, answer.opaque) == (ResponseCode.SUCCESS, header["opaque"])


def test_it_ends_with_the_role_of_a_master() -> None:
    broker = BrokerInMemory()
    client = broker.network.connect("10.0.0.9", broker.address, Factory.forProtocol(RawClient))
    broker.add_topic("Topic")

    def send() -> int:
        data = encode_frame(SerializeType.JSON, _json(plain(Random(1))), b"hello")
        client.result.transport.write(data)
        broker.clock.advance(0)
        return client.result.responses.pop().code

    assert send() == ResponseCode.SUCCESS
    broker.become(RoleState(Role.SLAVE, 1))
    assert send() == ResponseCode.SYSTEM_BUSY
    broker.become(RoleState(Role.MASTER, 0))
    assert send() == ResponseCode.SUCCESS
