"""Random bytes on every port: no unhandled error, bounded memory, and the servers still serve."""

import contextlib
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from rocketmq_tw.wire.frame import encode_frame
from tests.support.controllers import ControllerInNameServer, controlled_keys, running_controllers
from tests.support.load import Load, read_topic
from tests.support.processes import ServerProcess
from tests.support.random_requests import random_bytes, random_request
from tests.support.remoting import Connection
from tests.support.servers import OurBroker, OurNameServer
from tests.support.wait import wait_until

GROWTH_LIMIT = 64 * 1024 * 1024
#: What a log line of an error that nobody handled, or an exception that nobody expected, holds.
UNHANDLED = ("Traceback", "Unhandled")


def _random_frame(dice: random.Random) -> bytes:
    """A frame whose lengths are right and whose header is anything."""
    return encode_frame(dice.randrange(256), random_bytes(dice), random_bytes(dice))


def _wrong_lengths(dice: random.Random) -> bytes:
    length = dice.choice([0, 3, 4, 8, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
    return length.to_bytes(4, "big") + dice.randrange(1 << 32).to_bytes(4, "big") + b"{}"


GARBAGE = (random_bytes, _random_frame, _wrong_lengths, random_request)
#: One garbled message ends its connection, so well-formed ones need connections of their own.
REQUESTS = (random_request,)


def _attack(address: str, dice: random.Random) -> None:
    """A few messages on one connection, which the server may close at any of them."""
    makers = dice.choice([GARBAGE, REQUESTS])
    with contextlib.suppress(OSError), Connection(address, timeout=0.5) as connection:
        for _ in range(dice.randrange(1, 20)):
            connection.send_bytes(dice.choice(makers)(dice))
        # Without reading to the end, the reset of the connection would overtake what was sent.
        connection.drain()


class Cluster(NamedTuple):
    """A name server, the process that it is in, and a broker."""

    name_server: OurNameServer
    process: ServerProcess
    broker: OurBroker


@pytest.fixture(params=["alone", "controlled"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """The second one has a controller in its name server, which the broker follows."""
    with ExitStack() as stack:
        if request.param == "controlled":
            controllers = stack.enter_context(running_controllers(tmp_path, ["in-namesrv"]))
            (member,) = controllers.members.values()
            assert isinstance(member, ControllerInNameServer)
            process: ServerProcess = member
            name_server = member.name_server
            settings = controlled_keys(tmp_path / "broker", controllers)
        else:
            name_server = process = OurNameServer(tmp_path / "namesrv")
            stack.enter_context(closing(name_server)).start()
            settings = {}
        broker = OurBroker("fuzzed", tmp_path / "broker", [name_server], settings=settings)
        stack.enter_context(closing(broker)).start()
        yield Cluster(name_server, process, broker)


def _listening(servers: list[ServerProcess]) -> list[str]:
    """Every address that the servers' processes listen on."""
    return [
        f"127.0.0.1:{connection.laddr.port}"
        for server in servers
        for connection in psutil.Process(server.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


def test_random_bytes_on_every_port_disturb_nothing(
    cluster: Cluster, pytestconfig: pytest.Config
) -> None:
    dice = random.Random(pytestconfig.getoption("--fuzz-seed"))
    name_server, process, broker = cluster
    servers: list[ServerProcess] = [process, broker]
    own = [name_server.address, process.address, broker.address]
    listening = _listening(servers)
    assert {*own} <= {*listening}
    # In one order, whatever their numbers are: each gets the same in every run.
    ports = list(dict.fromkeys([*own, *sorted(listening)]))
    before = [server.resident_bytes() for server in servers]

    attacks = 0
    deadline = time.monotonic() + float(pytestconfig.getoption("--fuzz-seconds"))
    while time.monotonic() < deadline:
        _attack(dice.choice(ports), dice)
        attacks += 1
    print(f"{attacks} connections on ports {ports}")

    load = Load(broker.address, "after-all", "m", threads=1)
    wait_until(lambda: len(load.acked) >= 100, "sends after the attack")
    acked = load.stop()
    served = {record.body for record in read_topic(broker.address, "after-all")}
    assert {message.body for message in acked} <= served
    wait_until(lambda: name_server.routes("after-all", [broker]), "the route of the new topic")
    for server, then in zip(servers, before, strict=True):
        grown = server.resident_bytes() - then
        print(f"{server.name} grew by {grown >> 20} MiB")
        assert grown < GROWTH_LIMIT, f"{server.name} grew by {grown >> 20} MiB"
        lines = [
            line for line in server.log_text().splitlines() if any(w in line for w in UNHANDLED)
        ]
        assert not lines, f"{lines[:5]}\n{server.log_tails()}"
