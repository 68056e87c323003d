"""A controller, alone and inside a name server, started and stopped as a user does."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.raft.bodies import DLedgerRequestCode, VoteRequestBody
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.raft.store.properties import write_term
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.ports import ReservedPort
from tests.support.remoting import ask
from tests.support.wait import wait_until

Start = Callable[..., Any]
STOPPED = (0, -signal.SIGINT)


def keys(port: int, **others: str) -> list[str]:
    """A controller that is a group by itself unless `others` say otherwise."""
    settings = {
        "bindAddress": "127.0.0.1",
        "controllerDLegerGroup": "g",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": "controller",
        "mappedFileSize": "1048576",
        **others,
    }
    return [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]


def request(address: str, code: int, **fields: object) -> RemotingCommand:
    command = RemotingCommand.request(code)
    command.ext_fields = {name: str(value) for name, value in fields.items()}
    return ask(address, command)


def next_id(address: str) -> RemotingCommand:
    return request(
        address, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, clusterName="C", brokerName="g"
    )


def test_a_controller_keeps_what_it_decided(twistd: Start) -> None:
    port = ReservedPort()
    for start, expected in ((0, "1"), (1, "2")):
        controller = twistd("--pidfile=", "rmq-controller", *keys(port.number))
        controller.wait_for(rf"DLedger controller g/n0: listening on {port.address}")
        wait_until(lambda: next_id(port.address).code == 0, "it to lead")
        assert next_id(port.address).ext_fields["nextBrokerId"] == expected
        if start == 0:
            applied = request(
                port.address,
                RequestCode.CONTROLLER_APPLY_BROKER_ID,
                clusterName="C",
                brokerName="g",
                appliedBrokerId=1,
                registerCheckCode="127.0.0.1:1;x",
            )
            assert applied.code == ResponseCode.SUCCESS
        controller.interrupt()
        status, output = controller.finish()
        assert status in STOPPED, output
        assert "Traceback" not in output
    port.release()


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"controllerDLegerGroup": ""}, "controllerDLegerGroup is missing"),
        ({"controllerDLegerPeers": ""}, "controllerDLegerPeers: '' is no peer"),
        ({"controllerDLegerSelfId": "n7"}, "controllerDLegerSelfId=n7: give one of n0"),
        ({"controllerType": "jRaft"}, "controllerType=jRaft: give one of DLedger"),
        ({"controllerStorePath": "file"}, "change controllerStorePath"),
        ({"tls.server.mode": "enforcing", "tls.test.mode.enable": "false"}, "tls.server"),
    ],
)
def test_a_wrong_key_is_named(
    twistd: Start, tmp_path: Path, others: dict[str, str], said: str
) -> None:
    (tmp_path / "file").touch()
    status, output = twistd("--pidfile=", "rmq-controller", *keys(20912, **others)).finish()
    assert status == 1, output
    assert said in output
    assert "Traceback" not in output


def test_a_taken_port_is_named(twistd: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for command in (
            ("rmq-controller", *keys(port)),
            ("rmq-namesrv", *keys(port, enableControllerInNamesrv="true", listenPort="0")),
        ):
            status, output = twistd("--pidfile=", *command).finish()
            assert status == 1, output
            assert "change the port in controllerDLegerPeers" in output
            assert "Traceback" not in output


def test_a_snapshot_without_a_state_is_named(twistd: Start, tmp_path: Path) -> None:
    """A controller says what to remove, alone and, as in stock, in a name server that was to have
    one."""
    own, listen = ReservedPort(), ReservedPort()
    directory = str(tmp_path / "controller" / "dledger-n0")
    store = MemberStore(PosixFiles(), directory, 1 << 20, 1 << 16)
    write_term(PosixFiles(), f"{directory}/currterm", HardState(1, None))
    store.save_snapshot(Snapshot(SnapshotMeta(5, 1, 0, 8), b"not json"))
    store.close()
    both = keys(own.number, enableControllerInNamesrv="true", listenPort=str(listen.number))
    for command in (("rmq-controller", *keys(own.number)), ("rmq-namesrv", *both)):
        status, output = twistd("--pidfile=", *command).finish()
        assert status == 1, output
        assert "the snapshot at entry 5 holds no state" in output
        assert "remove this store" in output and "Traceback" not in output


def test_a_name_server_goes_on_without_controllers(twistd: Start, tmp_path: Path) -> None:
    """Without a majority first, then without the one in its own process."""
    own, listen = ReservedPort(), ReservedPort()
    peers = f"n0-{own.address};n1-127.0.0.1:1;n2-127.0.0.1:2"
    server = twistd(
        "--pidfile=",
        "rmq-namesrv",
        *keys(
            own.number,
            enableControllerInNamesrv="true",
            controllerDLegerPeers=peers,
            listenPort=str(listen.number),
        ),
    )
    server.wait_for("listening on")
    server.wait_for("controller g/n0: listening on")
    assert next_id(own.address).code == ResponseCode.CONTROLLER_NOT_LEADER
    found = request(own.address, RequestCode.CONTROLLER_GET_METADATA_INFO)
    assert found.code == 0 and "controllerLeaderId" not in found.ext_fields
    assert request(listen.address, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
    # Each port has its own requests.
    unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert request(listen.address, RequestCode.CONTROLLER_GET_METADATA_INFO).code == unknown
    assert request(own.address, RequestCode.GET_BROKER_CLUSTER_INFO).code == unknown
    # A vote is written down, which fails from now on.
    rmtree(tmp_path / "controller")
    (tmp_path / "controller").touch()
    vote = VoteRequestBody(
        group="g",
        remote_id="n0",
        local_id="n1",
        leader_id="n1",
        term=9,
        ledger_end_index=9,
        ledger_end_term=8,
    )
    with pytest.raises(OSError):
        for vote.term in range(9, 1000):
            body = msgspec.json.encode(vote)
            ask(own.address, RemotingCommand.request(DLedgerRequestCode.VOTE, body=body))
    server.wait_for("the controller cannot go on and stops, the name server stays")
    assert request(listen.address, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0

    def is_closed() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", own.number)) != 0

    wait_until(is_closed, "the controller's port to be closed")
    server.interrupt()
    status, output = server.finish()
    assert status in STOPPED, output
    own.release()
    listen.release()
