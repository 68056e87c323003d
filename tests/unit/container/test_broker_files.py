"""Which files make a broker, and what they make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rocketmq_tw.config.properties import MAX_FILE_BYTES
from rocketmq_tw.container.broker_files import BrokerFiles, FileRefused
from rocketmq_tw.container.interface import BrokerIdentity

FILES = BrokerFiles("", "127.0.0.1", "/home/me")


def test_a_small_regular_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "b.conf"
    path.write_text("brokerName=b\nbrokerClusterName=C\nstorePathRootDir=${user.home}/b\n")
    setup = FILES.read(str(path))
    assert setup.identity == BrokerIdentity("C", "b", 0)
    assert setup.store_config.store_path_root_dir == "/home/me/b"
    assert setup.listen_port == 6888, "stock's, where the file has none"


def test_a_pipe_a_device_a_directory_and_a_large_file_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    large = tmp_path / "large"
    large.write_bytes(b"brokerName=b\n" + b"#" * MAX_FILE_BYTES)
    for path in (str(tmp_path / "pipe"), "/dev/zero", str(tmp_path), str(large), "a\0b"):
        with pytest.raises(FileRefused, match="addBroker properties empty"):
            FILES.read(path)


@pytest.mark.parametrize(
    ("text", "kind", "broker_id"),
    [
        ("brokerName=a\n", "master", 0),
        ("brokerRole=SYNC_MASTER\nbrokerId=5\n", "master", 0),
        ("brokerRole=SLAVE\nbrokerId=2\n", "slave", 2),
        ("enableDLegerCommitLog=true\ndLegerSelfId=n3\nbrokerId=-1\n", "dLedger", 3),
        ("enableControllerMode=true\n", "master", 0),
        ("enableControllerMode=true\nbrokerRole=SLAVE\nbrokerId=1\n", "slave", 1),
    ],
)
def test_who_a_broker_is(text: str, kind: str, broker_id: int) -> None:
    setup = FILES.parse(text, "/f")
    assert (setup.kind, setup.identity.broker_id) == (kind, broker_id)


def test_a_dledger_id_without_a_number_is_refused() -> None:
    with pytest.raises(FileRefused, match="dLegerSelfId"):
        FILES.parse("enableDLegerCommitLog=true\ndLegerSelfId=first\n", "/f")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "adminAddresses=10.0.0.0/8",
            "adminAddresses has no effect here: what the container's file",
        ),
        (
            "tls.server.mode=disabled",
            "tls.server.mode has no effect here: what the container's file",
        ),
        ("logLevel=debug", "logLevel has no effect here: what the container's file says counts"),
        ("metricsExporterType=PROM", "metricsExporterType has no effect here"),
        ("sendMessageThreadPoolNums=4", "sendMessageThreadPoolNums has no effect here"),
    ],
)
def test_what_has_no_effect_in_a_container_is_said(line: str, told: str) -> None:
    with capturedLogs() as events:
        FILES.parse(f"brokerName=b\nlistenPort=10921\nautoCreateTopicEnable=false\n{line}\n", "/f")
    [event] = events
    assert event["log_level"] is LogLevel.info
    assert formatEvent(event).startswith(f"/f:4: {told}")


def test_a_wrong_value_is_refused_where_it_has_no_effect_too() -> None:
    with pytest.raises(FileRefused, match="adminAddresses"):
        FILES.parse("brokerName=b\nadminAddresses=everybody\n", "/f")
