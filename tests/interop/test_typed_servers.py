"""What docs show of starting servers is typed as it stands, at a terminal that has the ports of the
pages to itself (`tests/support/terminal.py`)."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import block, typed
from tests.support.terminal import INTERRUPTED, Started, Terminal
from tests.support.wait import PeerFailed, wait_until

NAME_SERVER = "127.0.0.1:9876"
#: As README has it.
NAMESRV = "twistd -n rmq-namesrv"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with Terminal(tmp_path / "home") as opened:
        yield opened


def registered_in(log: str) -> set[str]:
    found = re.findall(r"broker (\S+) (\d+) of \S+ registered at \S+:(\d+)", log)
    return {" ".join(each) for each in found}


def answer(terminal: Terminal, command: str) -> Any:
    return json.loads(terminal.type(f"rmqadmin {command} --output json"))


def wait_for(terminal: Terminal, *wanted: str) -> None:
    """Waits until exactly these brokers are registered: name, id and port of each."""
    # The name server's log costs less than rmqadmin.
    wait_until(lambda: set(wanted) <= registered_in(terminal.said), f"{wanted} in the log")

    def registered() -> bool:
        rows = answer(terminal, f"clusterList -n {NAME_SERVER}")["brokers"]
        found = {
            f"{row['brokerName']} {row['brokerId']} {row['address'].rpartition(':')[2]}"
            for row in rows
        }
        if found != set(wanted):
            raise PeerFailed(f"registered: {sorted(found)}")
        return True

    wait_until(registered, f"{wanted} to be registered", interval=0.5)


def test_a_broker_of_configuration(terminal: Terminal) -> None:
    terminal.begin(NAMESRV)
    (command,) = typed(block("configuration.md", "twistd -n rmq-broker"))
    terminal.begin(command)
    wait_for(terminal, "broker-a 0 10921")


def test_a_container(terminal: Terminal) -> None:
    terminal.begin(NAMESRV)
    start, add, remove = typed(block("container.md", "twistd -n rmq-container -c etc/container/b"))
    terminal.begin(start)
    wait_for(terminal, "broker-a 0 10911")
    terminal.type(add)
    wait_for(terminal, "broker-a 0 10911", "broker-b 0 10931")
    # Somebody who sits there is asked.
    terminal.type(remove, answer="y")
    wait_for(terminal, "broker-a 0 10911")


@pytest.mark.more
def test_a_broker_for_each_core(terminal: Terminal) -> None:
    terminal.begin(NAMESRV)
    one_machine, first_of_two = typed(
        block("container.md", "twistd -n rmq-container -c etc/container/cores")
    )
    masters = {number: f"broker-0{number} 0 {10891 + 20 * number}" for number in (1, 2, 3, 4)}
    started = terminal.begin(one_machine)
    wait_for(terminal, *masters.values())
    terminal.interrupt(started, status=INTERRUPTED)
    wait_for(terminal)
    terminal.begin(first_of_two)
    wait_for(terminal, masters[1], masters[3], "broker-02 1 12931", "broker-04 1 12971")


def test_proxies_that_share_their_ports(terminal: Terminal) -> None:
    """That both of them are used: `test_shared_ports.py`."""
    for start in typed(block("proxy.md", "twistd -n rmq-proxy")):
        terminal.type(start)
    wait_until(lambda: terminal.said.count("proxy: gRPC at") == 2, "two proxies to listen")


def test_controllers(terminal: Terminal) -> None:
    *starts, shows = typed(block("controller.md", "twistd -n --pidfile= rmq-controller"))
    for start in starts:
        terminal.type(start)
    wait_until(lambda: "decides in term" in terminal.said, "a controller to lead")
    said = terminal.type_until(shows)
    assert "127.0.0.1:9877" in said


@pytest.mark.more
def test_masters_and_their_slaves(terminal: Terminal) -> None:
    """The same files run in `test_deployments.py`, with other ports."""
    for line in typed(block("replication.md", "twistd -n rmq-namesrv &\nfor f in etc/2m-2s-sync")):
        terminal.type(line)
    wait_for(
        terminal, "broker-a 0 10911", "broker-a 1 10931", "broker-b 0 10921", "broker-b 1 10941"
    )


def test_a_log_in_a_dledger_group(terminal: Terminal) -> None:
    for line in typed(block("replication.md", "twistd -n rmq-namesrv &\nfor f in etc/dledger")):
        terminal.type(line)

    wait_until(lambda: len(registered_in(terminal.said)) >= 3, "three members in the log")

    def elected() -> bool:
        rows = answer(terminal, f"clusterList -n {NAME_SERVER}")["brokers"]
        if sorted(row["brokerId"] == 0 for row in rows) != [False, False, True]:
            raise PeerFailed(f"registered: {rows}")
        return True

    wait_until(elected, "a master and two slaves", interval=1)


def test_members_of_a_dledger_group(terminal: Terminal) -> None:
    """Each in a terminal of its own, as the page says."""
    members = [terminal.begin(line) for line in typed(block("raft.md", ".venv/bin/twistd"))]
    assert len(members) == 3

    def led() -> bool:
        said = [re.findall(r"in term \d+, leader (n\d)", member.said) for member in members]
        return all(said) and len({leaders[-1] for leaders in said}) == 1

    wait_until(led, "all of them to follow one")


GROUP = "127.0.0.1:9877;127.0.0.1:9878;127.0.0.1:9879"
MEMBERS = ("n0", "n1", "n2")


def in_sync(terminal: Terminal) -> tuple[str, dict[str, int]]:
    """The master's address, and the lasting ids of all three by their addresses, where they are in
    sync."""
    (group,) = answer(terminal, f"getSyncStateSet -a '{GROUP}' -b broker-a")["brokerSets"]
    members = [each for each in group["replicas"] if each["inSync"]]
    if len(members) != len(MEMBERS) or not group["masterAddress"]:
        raise PeerFailed(f"in sync: {members}")
    return group["masterAddress"], {each["address"]: each["brokerId"] for each in members}


@pytest.mark.more
def test_controllers_that_were_started_anew(terminal: Terminal) -> None:
    """Their stores are lost; the page says how the brokers go on."""
    starts = typed(block("controller.md", "twistd -n --pidfile= rmq-controller"))[:3]
    compare = typed(block("controller.md", "tail -n 1"))
    (forget,) = typed(block("controller.md", "rm -f"))
    (shows,) = typed(block("controller.md", "rmqadmin getSyncStateSet"))
    broker = "twistd -n --pidfile= rmq-broker -c etc/controller/broker-{}.conf"

    def start_controllers() -> list[Started]:
        return [terminal.begin(start.removesuffix("&")) for start in starts]

    terminal.begin(NAMESRV)
    controllers = start_controllers()
    brokers = [terminal.begin(broker.format(member)) for member in MEMBERS]
    master, ids = wait_until(lambda: in_sync(terminal), "all to be in sync", interval=1)
    terminal.type_until(f"rmqadmin sendMessage -n {NAME_SERVER} -t Orders -p kept", "SEND_OK")
    del ids[master]
    elect = f"rmqadmin electMaster -a '{GROUP}' -c DefaultCluster -bn broker-a -b"
    terminal.type(f"{elect} {min(ids.values())}")
    for controller in controllers:
        terminal.interrupt(controller, status=INTERRUPTED)
    terminal.type("rm -r data/controller/controllers")
    start_controllers()
    found = []
    for number, member in enumerate(MEMBERS):
        terminal.type(f"STORE=data/controller/broker-{member}")
        address = f"127.0.0.1:309{number + 1}1"
        epoch, end = (terminal.type(line.replace("127.0.0.1:10911", address)) for line in compare)
        found.append((int(epoch.split("-")[0]), int(end.split()[-1]), member))
    for each in brokers:
        terminal.interrupt(each, status=INTERRUPTED)
    for member in MEMBERS:
        terminal.type(f"STORE=data/controller/broker-{member}")
        terminal.type(forget)
    leader = max(found)[2]
    terminal.begin(broker.format(leader))
    terminal.type_until(shows, "broker-a")
    for member in MEMBERS:
        if member != leader:
            terminal.begin(broker.format(member))
    wait_until(lambda: in_sync(terminal), "all to be in sync", interval=1)
    assert "kept" in terminal.type(f"rmqadmin consumeMessage -n {NAME_SERVER} -t Orders")


@pytest.mark.more
def test_the_containers_of_compose(terminal: Terminal) -> None:
    """The lines are typed as they stand, before a program that is no Docker (`compose.py`)."""
    if not terminal.has_namespaces:
        pytest.skip("this machine lets nobody have hosts of his own")
    terminal.own("/etc", copied=True)
    terminal.own("/var/lib")
    terminal.type('docker() { python -m tests.support.compose "$@"; }')
    up, show, elect = typed(block("operating.md", "docker compose"))
    terminal.begin(up)

    def master() -> int:
        (group,) = json.loads(terminal.type(f"{show} --output json"))["brokerSets"]
        members = {each["address"]: each["brokerId"] for each in group["replicas"]}
        if len(members) < 2 or not group["masterAddress"]:
            raise PeerFailed(f"in sync: {members}")
        return int(members[group["masterAddress"]])

    assert wait_until(master, "both brokers to be in sync", interval=1) == 1
    terminal.type(elect)
    wait_until(lambda: master() == 2, "the other one to lead", interval=1)
    assert {"broker-a 0 10911", "broker-b 0 10911"} <= registered_in(terminal.said)


@pytest.mark.more
@pytest.mark.skipif(shutil.which("systemctl") is None, reason="no systemctl here")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a user")
def test_the_units_of_systemd(tmp_path: Path) -> None:
    """They are installed and enabled as the page says; what systemd would start is started here,
    since nobody but a machine's first process can be systemd."""
    with Terminal(tmp_path / "home", alone=False, as_root=True) as terminal:
        if not terminal.has_namespaces:
            pytest.skip("this machine lets nobody have an /etc of his own")
        etc = terminal.own("/etc", copied=True)
        terminal.own("/opt")
        terminal.own("/var/lib")
        terminal.type("export SYSTEMD_OFFLINE=1")
        *lines, enable = typed(block("operating.md", "python3 -m venv"))
        for line in lines:
            terminal.type(line)
        assert "not been booted with systemd" in terminal.type(enable, status=1)
        enabled = etc / "systemd/system/multi-user.target.wants/rmq-broker@broker-a.service"
        assert enabled.is_symlink()
        assert "rocketmq" in (etc / "passwd").read_text()
        shutil.copy(terminal.checkout / "etc/namesrv.properties", etc / "rocketmq")
        with (etc / "rocketmq/broker-a.properties").open("a") as settings:
            # What the page says behind the block.
            settings.write("storePathRootDir=/var/lib/rocketmq/store\n")
        units = [
            (etc / "systemd/system" / name).read_text()
            for name in ("rmq-namesrv.service", "rmq-broker@.service")
        ]
        starts = []
        for unit in units:
            (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.M)
            (directory,) = re.findall(r"^WorkingDirectory=(.*)$", unit, re.M)
            starts.append(f"mkdir -p {directory} && cd {directory} && {command} &")
        # Nobody else is on the network of these.
        rmqadmin = f"/opt/rocketmq_tw/bin/rmqadmin clusterList -n {NAME_SERVER}"
        script = "\n".join(
            (
                "ip link set lo up",
                *(line.replace("%i", "broker-a") for line in starts),
                f"until {rmqadmin} | grep broker-a; do sleep 1; done",
            )
        )
        assert "broker-a" in terminal.type(shlex.join(["unshare", "--net", "bash", "-c", script]))
        assert (tmp_path / "home/own/var/lib/rocketmq/store/commitlog").is_dir()
