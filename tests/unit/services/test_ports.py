"""Which ports servers look at before they begin, and what they say of one that is taken."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.services import broker, container, namesrv
from rocketmq_tw.services.failed_start import PROXY_KEYS, KeysToChange, describe_failed_start
from rocketmq_tw.services.ports import check_free
from tests.support.ports import ReservedPort

LOCAL = ("bindAddress=127.0.0.1", "listenPort=0")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which another program listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def keys(*given: str) -> list[str]:
    return [part for each in (*LOCAL, *given) for part in ("-o", each)]


def of_broker(*arguments: str) -> broker.BrokerService:
    options = broker.Options({})
    options.parseOptions(arguments)
    return broker.BrokerService(MemoryReactorClock(), options.loaded, proxy=options.proxy)


def of_name_server(*arguments: str) -> namesrv.NamesrvService:
    options = namesrv.Options({})
    options.parseOptions(arguments)
    return namesrv.NamesrvService(MemoryReactorClock(), options.loaded)


def of_container(*arguments: str) -> container.ContainerService:
    options = container.Options({})
    options.parseOptions(arguments)
    return container.ContainerService(MemoryReactorClock(), options.loaded)


#: Any of several servers.
Server = broker.BrokerService | namesrv.NamesrvService | container.ContainerService


def refusal(server: Server, port: int) -> str:
    """Which key is to be changed since the port is taken."""
    with pytest.raises(CannotListenError) as caught:
        check_free(server.ports())
    reason = describe_failed_start(caught.value, KeysToChange("another key"))
    start = f"127.0.0.1:{port} cannot be listened on (Address already in use): change "
    assert reason.startswith(start)
    return reason.removeprefix(start)


def test_a_broker_looks_at_all_that_it_listens_on(taken: int, tmp_path: Path) -> None:
    # Its VIP channel is two below its port, the port for slaves one above.
    assert refusal(of_broker(*keys(f"listenPort={taken}")), taken) == "listenPort"
    assert refusal(of_broker(*keys(f"listenPort={taken + 2}")), taken) == "listenPort"
    assert refusal(of_broker(*keys(f"haListenPort={taken}")), taken) == "haListenPort"
    group = ("enableDLegerCommitLog=true", "dLegerGroup=g", "dLegerSelfId=n0")
    member = of_broker(*keys(*group, f"dLegerPeers=n0-127.0.0.1:{taken}"))
    assert refusal(member, taken) == "this member's address in dLegerPeers"
    file = tmp_path / "proxy.json"
    file.write_text(json.dumps({"remotingBrokerPorts": f"broker-a:{taken}"}))
    with_proxy = of_broker(*keys(), "--enable-proxy", "-pc", str(file))
    assert taken in {each.port for each in with_proxy.ports() if each.keys == PROXY_KEYS}


def test_no_other_port_is_asked_for() -> None:
    assert of_broker(*keys()).ports() == [], "the kernel chooses"
    slave = of_broker(*keys("haListenPort=10912", "brokerRole=SLAVE", "brokerId=1"))
    assert slave.ports() == [], "slaves listen for no others"
    (own, vip) = of_broker(*keys("listenPort=10911", "brokerRole=SLAVE", "brokerId=1")).ports()
    assert (own.port, vip.port) == (10911, 10909)


def test_a_name_server_looks_at_its_controller_s_port_too(taken: int) -> None:
    free = ReservedPort()
    controller = (
        "enableControllerInNamesrv=true",
        "controllerDLegerGroup=g",
        "controllerDLegerSelfId=n0",
        f"controllerDLegerPeers=n0-127.0.0.1:{taken}",
    )
    both = of_name_server(*keys(*controller), "-o", f"listenPort={free.number}")
    assert refusal(both, taken) == "the port in controllerDLegerPeers"
    assert refusal(of_name_server(*keys(f"listenPort={taken}")), taken) == "listenPort"
    free.release()


def test_a_container_looks_at_the_ports_of_its_brokers(taken: int, tmp_path: Path) -> None:
    """Those for slaves follow from their own, whatever a file says."""
    files = [tmp_path / name for name in ("a.conf", "none.conf", "b.conf")]
    store = f"storePathRootDir={tmp_path}\n"
    files[0].write_text(f"brokerName=a\nlistenPort=0\n{store}")
    files[2].write_text(f"brokerName=b\nlistenPort={taken - 1}\nhaListenPort=1\n{store}")
    together = of_container(*keys(), "-b", ":".join(map(str, files)))
    ports = [each for each in together.ports() if each.port == taken]
    assert [each.keys.port for each in ports] == [f"listenPort of {files[2]}"]
    assert refusal(of_container(*keys(f"listenPort={taken + 2}")), taken) == "listenPort"
