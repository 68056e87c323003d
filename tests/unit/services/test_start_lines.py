"""The log of a start says what a user wants to know, each thing once: five lines for one server."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_tw.interpreter import python_version
from tests.support.jars import PROJECT
from tests.support.ports import ReservedPort
from tests.support.servers import SAID_UNDER_LOAD

Start = Callable[..., Any]
MOST = 5
ETC = PROJECT / "etc"


def keys(**settings: object) -> list[str]:
    given = {"bindAddress": "127.0.0.1", "listenPort": 0, **settings}
    return [part for key, value in given.items() for part in ("-o", f"{key}={value}")]


def said(server: Any) -> list[str]:
    """The lines of its log until now."""
    lines = [line.rstrip().partition("#") for line in server.seen]
    assert not any("twisted." in name or "Factory" in text for name, _, text in lines)
    texts = [text.partition("] ")[2] for _, _, text in lines if text]
    return [text for text in texts if not SAID_UNDER_LOAD.match(text)]


def check(server: Any, *patterns: str, most: int = MOST) -> None:
    """Checks that each of the patterns is in a line of its own, in this order, the version before
    them, and that there are no more lines than `most`."""
    for pattern in patterns:
        server.wait_for(pattern)
    lines = said(server)
    python = re.escape(python_version())
    assert re.match(rf"rocketmq_tw \S+ on Python {python} and Twisted \S+: rmq-", lines[0])
    assert len(lines) <= most, "\n".join(lines)


@pytest.fixture
def name_server(twistd: Start) -> str:
    server = twistd("--pidfile=", "rmq-namesrv", *keys())
    check(server, "name server: listening on ", most=2)
    return re.search(r"listening on (\S+)", server.seen[-1])[1]


def broker(twistd: Start, name_server: str, home: str, *more: str, **settings: object) -> Any:
    return twistd(
        *("--pidfile=", "rmq-broker", "-n", name_server, *more),
        *keys(
            brokerIP1="127.0.0.1",
            haListenPort=0,
            storePathRootDir=home,
            storePathCommitLog=f"{home}/commitlog",
            mappedFileSizeCommitLog=1 << 20,
            **settings,
        ),
    )


def test_of_a_master_and_its_slave(twistd: Start, name_server: str) -> None:
    files = ETC / "2m-2s-async"
    master = broker(twistd, name_server, "master", "-c", str(files / "broker-a.properties"))
    registered = f"broker-a is registered with name server {name_server}"
    check(master, "serves at .*, its store is master, it is master with id 0", registered, most=3)
    address = re.search(r"serves at (\S+),", "".join(master.seen))[1]
    slave = broker(twistd, name_server, "slave", "-c", str(files / "broker-a-s.properties"))
    check(
        slave,
        "serves at .*, its store is slave, it is slave with id 1",
        registered,
        f"the master is {address}",
        r"following the master's HA address 127\.0\.0\.1:",
    )


def test_of_a_controller_and_of_brokers_that_it_elects(twistd: Start, name_server: str) -> None:
    port = ReservedPort()
    controller = twistd(
        *("--pidfile=", "rmq-controller", "-c", str(ETC / "controller" / "controller-n0.conf")),
        *keys(
            listenPort=port.number,
            controllerDLegerPeers=f"n0-{port.address}",
            controllerStorePath="controller",
            mappedFileSize=1 << 20,
        ),
    )
    check(controller, f"listening on {port.address}", "LEADER in term", "decides in term", most=4)
    for number, (role, last) in enumerate(
        (("master", "is registered with name server"), ("slave", "following the master's HA"))
    ):
        elected = broker(
            *(twistd, name_server, f"elected-{number}"),
            *("-c", str(ETC / "controller" / f"broker-n{number}.conf")),
            controllerAddr=port.address,
            storePathEpochFile=f"elected-{number}/epochs",
            storePathBrokerIdentity=f"elected-{number}/identity",
        )
        check(elected, "waits at .* until its group gives it a role", f"is {role} now", last)


def test_of_a_member_of_a_group_of_dledger(twistd: Start, name_server: str) -> None:
    port, other = ReservedPort(), ReservedPort()
    check(
        broker(
            *(twistd, name_server, "member"),
            *("-c", str(ETC / "dledger" / "broker-n0.conf")),
            dLegerPeers=f"n0-{port.address}",
        ),
        r"LEADER in term \d+, leader n0",
        "the broker is master now",
    )
    node = twistd(
        *("--pidfile=", "rmq-dledger", "--group=g", "--id=n0", f"--peers=n0-{other.address}"),
        *("--store=node", "--data-file-size=1048576"),
    )
    check(node, f"g/n0: listening on {other.address}", r"LEADER in term \d+, leader n0", most=3)


def test_of_a_container(twistd: Start, name_server: str, tmp_path: Path) -> None:
    """Two lines of its own, and two for each of its brokers."""
    paths = []
    for name in "ab":
        paths.append(tmp_path / f"broker-{name}.conf")
        paths[-1].write_text(
            f"brokerName={name}\nbrokerId=0\nlistenPort=0\nhaListenPort=0\nbrokerIP1=127.0.0.1\n"
            f"storePathRootDir=store-{name}\nmappedFileSizeCommitLog=1048576\n"
        )
    container = twistd(
        *("--pidfile=", "rmq-container", "-n", name_server, "-b", ":".join(map(str, paths))),
        *keys(),
    )
    serve = [rf"broker {name} serves at .*, its store is store-{name}, " for name in "ab"]
    check(
        container,
        r"container at 127\.0\.0\.1:\d+, its brokers live separate",
        *serve,
        "the container's brokers are: DefaultCluster_a_0, DefaultCluster_b_0",
        most=3 + 2 * 2,
    )


def test_of_a_proxy(twistd: Start, name_server: str) -> None:
    proxy = twistd(
        *("--pidfile=", "rmq-proxy", "-n", name_server),
        *keys(grpcServerPort=0, remotingListenPort=0),
    )
    check(
        proxy,
        r"proxy: gRPC at 127\.0\.0\.1:\d+, classic clients at 127\.0\.0\.1:\d+; either takes both;"
        f" its name servers are {name_server}",
        most=2,
    )


def test_of_a_standalone_server(twistd: Start, tmp_path: Path) -> None:
    """What to type next is no part of the five."""
    ports = tmp_path / "proxy.properties"
    ports.write_text("grpcServerPort=0\nremotingListenPort=0\n")
    server = twistd(
        *("--pidfile=", "rmq-standalone", "--enable-proxy", "-pc", str(ports)),
        *keys(namesrvListenPort=0, haListenPort=0, storePathRootDir="store"),
    )
    check(
        server,
        "name server: listening on ",
        "broker .* serves at .*, it is master with id 0",
        "proxy: gRPC at ",
        "ready: name server ",
    )
