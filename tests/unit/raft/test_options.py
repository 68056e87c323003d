"""What `twistd rmq-dledger` refuses, and what its options come to."""

from pathlib import Path

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.python.usage import UsageError

from rocketmq_tw.raft.core.membership import MembershipError, parse_peers
from rocketmq_tw.services.dledger import DLedgerService, Options

PEERS = "n0-127.0.0.1:1;n1-127.0.0.1:2;n2-127.0.0.1:3"


def options(*arguments: str) -> Options:
    parsed = Options()
    parsed.parseOptions(arguments)
    return parsed


def test_stocks_defaults() -> None:
    raft = options().node_config().raft
    assert raft.members == ("n0",)
    assert (raft.heartbeat_interval_ms, raft.max_heartbeat_leak) == (2000, 3)
    assert (raft.min_vote_interval_ms, raft.max_vote_interval_ms) == (300, 1000)
    assert raft.data_file_size == 1024**3
    assert not raft.state_machine


def test_every_option_reaches_the_configuration() -> None:
    given = options(
        *("--group", "g", "--id", "n1", "--peers", PEERS, "--heartbeat-ms", "100"),
        *("--heartbeat-leak", "5", "--min-vote-ms", "20", "--max-vote-ms", "40"),
        *("--preferred-leaders", "n1;n2", "--data-file-size", "65536"),
    )
    config = given.node_config()
    raft = config.raft
    assert (config.group, raft.self_id, raft.members) == ("g", "n1", ("n0", "n1", "n2"))
    assert config.peers["n2"] == "127.0.0.1:3"
    assert (raft.heartbeat_interval_ms, raft.max_heartbeat_leak) == (100, 5)
    assert (raft.min_vote_interval_ms, raft.max_vote_interval_ms) == (20, 40)
    assert raft.preferred_leader_ids == ("n1", "n2")
    assert raft.data_file_size == 65536


@pytest.mark.parametrize(
    ("arguments", "mode", "speaks"),
    [((), "permissive", False), (("--tls",), "permissive", True), ((), "enforcing", True)],
)
def test_a_file_may_say_how_a_member_takes_tls_alone(
    tmp_path: Path, arguments: tuple[str, ...], mode: str, speaks: bool
) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(f"tls.server.mode={mode}\n")
    given = options("--tls-config", str(file), *arguments)
    assert given.server_tls is not None and given.server_tls.server_mode == mode
    assert (given.client_tls is not None) == speaks


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--group", " "), "--group is empty"),
        (("--peers", "n0"), "write id-host:port"),
        (("--peers", "n0-host:99999"), "write id-host:port"),
        (("--peers", "../x-host:1", "--id", "../x"), "no member id"),
        (("--peers", "n0-h:1;n0-h:2"), "stands twice"),
        (("--peers", PEERS, "--id", "n7"), "none of the peers"),
        (("--heartbeat-ms", "0"), "--heartbeat-ms 0: give a whole number of 1 or more"),
        (("--heartbeat-ms", "soon"), "--heartbeat-ms soon: give a whole number"),
        (("--min-vote-ms", "500", "--max-vote-ms", "500"), "has to be below"),
        (("--index-file-size", "33"), "multiple of 32"),
        (("--data-file-size", "100"), "of 4096 or more"),
        (("--peers", "n0-h:\u00b2"), "write id-host:port"),
        (("--peers", PEERS, "--preferred-leaders", "n1;n9"), "n9 is none of the peers"),
    ],
)
def test_what_is_refused(arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        options(*arguments)


def test_peers_are_read_in_their_order() -> None:
    assert list(parse_peers("n1-a:2;n0-b:1").items()) == [("n1", "a:2"), ("n0", "b:1")]
    assert parse_peers("n0-host-with-dash:1") == {"n0": "host-with-dash:1"}
    with pytest.raises(MembershipError):
        parse_peers("")


def test_a_store_of_another_file_size_refuses_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / "00000000000000000512").write_bytes(bytes(512))
    reasons: list[str] = []
    monkeypatch.setattr(
        "rocketmq_tw.services.dledger.refuse_to_start",
        lambda reactor, error, keys: reasons.append(str(error)),
    )
    service = DLedgerService(
        MemoryReactorClock(), options("--peers", PEERS, "--store", str(tmp_path))
    )
    service.startService()
    assert not service.running
    assert "set mappedFileSizeForEntryData to what the store was written with" in reasons[0]
