"""A container and its brokers as processes: started, killed, stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.broker import AddBrokerRequestHeader, RemoveBrokerRequestHeader
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2
from tests.support.ports import BrokerPorts
from tests.support.remoting import ask
from tests.support.wait import wait_until

Start = Callable[..., Any]
STOPPED = (0, -signal.SIGINT)


class Place:
    """A directory with the files of brokers, whose ports are reserved."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ports: dict[str, BrokerPorts] = {}

    def file(self, name: str, text: str = "") -> str:
        self.ports[name] = ports = BrokerPorts()
        path = self.home / f"{name}.conf"
        path.write_text(
            f"brokerName={name}\nlistenPort={ports.listen.number}\n"
            f"storePathRootDir={self.store(name)}\nmappedFileSizeCommitLog=1048576\n{text}"
        )
        return str(path)

    def store(self, name: str) -> Path:
        return self.home / f"store-{name}"

    def send(self, name: str) -> str:
        """Sends to queue 0 of the broker; returns the message's place in it."""
        header = SendMessageRequestHeaderV2(
            producer_group="P",
            topic="Topic",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=5,
            flag=0,
            properties="",
        )
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"body")
        answer = ask(self.ports[name].listen.address, request)
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer.ext_fields["queueOffset"]

    def stopped_cleanly(self, name: str) -> bool:
        """Whether the store was closed properly since it was opened."""
        return not (self.store(name) / "abort").exists()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for ports in made.ports.values():
        ports.release()


def start(twistd: Start, how: str, *files: str) -> tuple[Any, str]:
    """A container and the address at which it listens."""
    container = twistd(
        "--pidfile=",
        "rmq-container",
        *("-o", "bindAddress=127.0.0.1", "-o", "listenPort=0"),
        *("-o", f"brokerProcesses={how}", "-o", "brokerContainerIP=127.0.0.1"),
        *(("-b", ":".join(files)) if files else ()),
    )
    address = container.wait_for(r"container at (127\.0\.0\.1:\d+)")[1]
    container.wait_for("the container's brokers are: ")
    return container, address


def add(address: str, path: str) -> RemotingCommand:
    header = AddBrokerRequestHeader(config_path=path)
    return ask(address, RemotingCommand.request(RequestCode.ADD_BROKER, header), 60)


def remove(address: str, name: str) -> RemotingCommand:
    header = RemoveBrokerRequestHeader(
        broker_name=name, broker_cluster_name="DefaultCluster", broker_id=0
    )
    return ask(address, RemotingCommand.request(RequestCode.REMOVE_BROKER, header), 60)


def processes_of(container: Any) -> list[psutil.Process]:
    return psutil.Process(container.process.pid).children()


def test_a_taken_port_is_told_before_any_broker_begins(twistd: Start, place: Place) -> None:
    first, second = place.file("a"), place.file("b")
    ha = place.ports["b"].ha.number
    local = ("-o", "bindAddress=127.0.0.1", "-o", "listenPort=0")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", ha))
        taken.listen()
        container = twistd("--pidfile=", "rmq-container", *local, "-b", f"{first}:{second}")
        status, output = container.finish()
    assert status == 1, output
    _, line = output.splitlines()
    assert line.endswith(
        f"cannot start: 127.0.0.1:{ha} cannot be listened on (Address already in use): change"
        f" listenPort of {second}"
    )
    assert not place.store("a").exists() and not place.store("b").exists()


@pytest.mark.parametrize("how", ["together", "separate"])
def test_brokers_come_and_go(twistd: Start, place: Place, how: str) -> None:
    container, address = start(twistd, how, place.file("a"))
    assert add(address, place.file("b")).code == ResponseCode.SUCCESS
    assert len(processes_of(container)) == (2 if how == "separate" else 0)
    assert place.send("a") == place.send("b") == "0"
    get_config = RemotingCommand.request(RequestCode.GET_BROKER_CONFIG)
    shown = ask(place.ports["b"].listen.address, get_config).body
    assert b"isInBrokerContainer=true\n" in shown
    port = place.ports["a"].listen.number
    taken = place.file("c", f"listenPort={port}\n")
    answer = add(address, taken)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert re.search(f"start broker failed, .*{port} cannot be listened on", answer.remark or "")
    assert not place.store("c").exists(), "it is told before the store is read"
    locked = place.file("d", f"storePathRootDir={place.store('a')}\n")
    answer = add(address, locked)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "store-a is in use by another broker" in (answer.remark or "")
    assert place.send("a") == "1", "it is left alone"
    assert remove(address, "a").code == ResponseCode.SUCCESS
    assert place.stopped_cleanly("a") and not place.stopped_cleanly("b")
    assert place.send("b") == "1"
    assert remove(address, "a").code == ResponseCode.BROKER_NOT_EXIST
    assert add(address, str(place.home / "a.conf")).code == ResponseCode.SUCCESS
    assert place.send("a") == "2"
    children = processes_of(container)
    container.interrupt()
    status, output = container.finish()
    assert status in STOPPED, output
    assert "Traceback" not in output
    assert place.stopped_cleanly("a") and place.stopped_cleanly("b")
    assert not any(child.is_running() for child in children)


def test_a_killed_broker_is_started_again(twistd: Start, place: Place) -> None:
    container, _ = start(twistd, "separate", place.file("a"), place.file("b"))
    assert place.send("a") == place.send("b") == "0"
    first = next(child for child in processes_of(container) if "a.conf" in child.cmdline()[-1])
    others = set(processes_of(container)) - {first}
    os.kill(first.pid, signal.SIGKILL)
    container.wait_for("DefaultCluster_a_0 ended with signal 9: it is started again in 1 s")
    assert place.send("b") == "1"
    container.wait_for("broker a serves at")
    assert place.send("a") == "1"
    assert others < set(processes_of(container)), "the other one is the same process"
    container.interrupt()
    container.finish()
    assert place.stopped_cleanly("a") and place.stopped_cleanly("b")


def test_a_killed_container_leaves_no_process_behind(twistd: Start, place: Place) -> None:
    container, _ = start(twistd, "separate", place.file("a"), place.file("b"))
    assert place.send("a") == place.send("b") == "0"
    children = processes_of(container)
    assert len(children) == 2
    container.process.kill()
    wait_until(
        lambda: not any(child.is_running() for child in children), "the brokers to end", limit=60
    )
    assert place.stopped_cleanly("a") and place.stopped_cleanly("b")


def test_a_container_whose_file_does_not_fit_does_not_start(twistd: Start, place: Place) -> None:
    good, bad = place.file("a"), place.file("b", "brokerRole=SLAVE\n")
    container = twistd(
        *("--pidfile=", "rmq-container", "-o", "bindAddress=127.0.0.1", "-o", "listenPort=0"),
        *("-o", "brokerProcesses=together", "-b", f"{good}:{bad}"),
    )
    status, output = container.finish()
    assert status == 1
    assert f"cannot start: {bad}: slave broker id must be > 0" in output
    assert place.stopped_cleanly("a"), "what had started is stopped"


def test_the_sample_for_two_cores_serves_with_two_processes(twistd: Start, place: Place) -> None:
    sample = Path(__file__).parents[3] / "etc" / "container" / "cores"
    lines = (sample / "2-cores.conf").read_text().splitlines()
    named = [Path(path).stem for path in lines[-1].partition("=")[2].split(":")]
    files = []
    for name in named:
        # With ports and directories of the test's own, which come last.
        files.append(place.file(name))
        text = (sample / f"{name}.conf").read_text() + Path(files[-1]).read_text()
        Path(files[-1]).write_text(text)
    settings = {
        "listenPort": "0",
        "namesrvAddr": "127.0.0.1:9",
        "bindAddress": "127.0.0.1",
        "brokerConfigPaths": ":".join(files),
    }
    own = [line for line in lines if line.partition("=")[0] not in settings]
    config = place.home / "2-cores.conf"
    text = [*own, *(f"{key}={value}" for key, value in settings.items())]
    config.write_text("\n".join(text))
    container = twistd("--pidfile=", "rmq-container", "-c", str(config))
    container.wait_for("the container's brokers are: ")
    assert len(processes_of(container)) == 2
    assert [place.send(name) for name in named] == ["0", "0"]
    container.interrupt()
    status, output = container.finish()
    assert status in STOPPED, output
