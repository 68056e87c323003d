"""The three servers, started and stopped as a user does."""

import json
import resource
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from OpenSSL import crypto

from rocketmq_tw.net.tls_contexts import self_signed
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.jars import PROJECT
from tests.support.pages import blocks
from tests.support.remoting import ask
from tests.support.rmqadmin import answer, rmqadmin
from tests.support.servers import SAID_UNDER_LOAD

CONFIGURATION = PROJECT / "docs" / "configuration.md"
LOOPBACK = ("-o", "bindAddress=127.0.0.1", "-o", "listenPort=0")
Start = Callable[..., Any]
#: twistd shuts down and then dies of the signal that stopped it.
STOPPED = (0, -signal.SIGINT)


def cluster_info(address: str) -> bytes:
    answer = ask(address, RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO))
    assert answer.code == ResponseCode.SUCCESS
    return answer.body


def lines_of_start(output: str) -> list[str]:
    """What a server said until it was stopped, without what it was asked for."""
    before, _, _ = output.partition("SIGINT")
    lines = [line.partition("#info] ")[2] for line in before.splitlines()]
    return [line for line in lines if line and not SAID_UNDER_LOAD.match(line)]


def test_a_name_server_and_a_broker_find_each_other(twistd: Start) -> None:
    name_server = twistd("--pidfile=", "rmq-namesrv", *LOOPBACK)
    address = name_server.wait_for(r"listening on (127\.0\.0\.1:\d+)")[1]
    assert cluster_info(address) == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
    broker = twistd(
        "--pidfile=",
        "rmq-broker",
        *LOOPBACK,
        *("-n", address),
        *("-o", "storePathRootDir=store"),
    )
    served = broker.wait_for(r"serves at (127\.0\.0\.1:\d+)")[1]
    broker.wait_for(f"is registered with name server {address}")
    assert served.encode() in cluster_info(address)
    broker.interrupt()
    status, output = broker.finish()
    assert status in STOPPED, output
    assert "Traceback" not in output
    version, serves, registered = lines_of_start(output)
    assert version.endswith(": rmq-broker")
    assert serves.endswith(", its store is store, it is master with id 0")
    assert registered.endswith(f"is registered with name server {address}")
    assert served.encode() not in cluster_info(address)
    name_server.interrupt()
    status, output = name_server.finish()
    assert status in STOPPED, output
    assert "Traceback" not in output


@pytest.mark.parametrize("key", ["useTLS=true", "tls.enable=true", "tls.server.mode=enforcing"])
def test_a_broker_reaches_a_name_server_that_wants_tls(twistd: Start, key: str) -> None:
    name_server = twistd(
        "--pidfile=", "rmq-namesrv", *LOOPBACK, *("-o", "tls.server.mode=enforcing")
    )
    address = name_server.wait_for(r"listening on (127\.0\.0\.1:\d+)")[1]
    broker = twistd(
        "--pidfile=",
        "rmq-broker",
        *LOOPBACK,
        *("-n", address),
        *("-o", key),
        *("-o", "storePathRootDir=store"),
    )
    broker.wait_for(f"is registered with name server {address}")
    for server in (broker, name_server):
        server.interrupt()
        status, output = server.finish()
        assert status in STOPPED, output
        assert "Traceback" not in output
        assert "refusing plaintext" not in output


def test_servers_and_rmqadmin_speak_tls_by_the_samples(twistd: Start, tmp_path: Path) -> None:
    key, (certificate,) = self_signed()
    (tmp_path / "ca.pem").write_bytes(crypto.dump_certificate(crypto.FILETYPE_PEM, certificate))
    (tmp_path / "server.pem").write_bytes(crypto.dump_certificate(crypto.FILETYPE_PEM, certificate))
    (tmp_path / "server.key").write_bytes(
        key.to_cryptography_key().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    samples = [block.text for block in blocks(CONFIGURATION) if block.text.startswith("tls.")]
    for name, sample in zip(("server", "clients"), samples, strict=True):
        text = sample.replace("/etc/rocketmq/", f"{tmp_path}/")
        (tmp_path / f"{name}.properties").write_text(text)
    server = twistd(
        "rmq-standalone",
        *("-c", "server.properties", "-o", "listenPort=0", "-o", "namesrvListenPort=0"),
    )
    names = server.wait_for(r"ready: name server (\S+),")[1]
    assert server.wait_for(r"^\s+\S*rmqadmin (.*)")[1] == f"--tls clusterList -n {names}"
    plain = rmqadmin(names, "clusterList")
    assert plain.returncode == 1
    assert "a server that takes TLS only" in plain.stderr
    for option in ("--tls", f"--tls-config {tmp_path}/clients.properties"):
        sent = answer(names, f"sendMessage -t T -p hello {option}")
        assert sent["sendStatus"] == "SEND_OK"
    read = answer(names, "consumeMessage -t T --tls")
    assert [message["body"] for message in read["messages"]] == ["hello", "hello"]


def test_a_server_without_descriptors_serves_again_when_some_are_free(twistd: Start) -> None:
    server = twistd("--pidfile=", "rmq-namesrv", *LOOPBACK)
    address = server.wait_for(r"listening on (127\.0\.0\.1:\d+)")[1]
    files = 20
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (files, files))
    host, port = address.split(":")
    clients = [socket.create_connection((host, int(port))) for _ in range(files)]
    server.wait_for("cannot accept connections: Too many open files")
    for client in clients:
        client.close()
    assert cluster_info(address)
    server.interrupt()
    _, output = server.finish()
    assert output.count("cannot accept") <= 3, "not a line for each connection or turn"
    assert "Traceback" not in output


def test_standalone_says_what_to_do_next_and_stops_cleanly(twistd: Start, tmp_path: Path) -> None:
    both = twistd("rmq-standalone", "-o", "listenPort=0", "-o", "namesrvListenPort=0")
    ready = both.wait_for(r"ready: name server (\S+), broker (\S+), store in (\S+)")
    name_server, broker, store = ready.groups()
    assert name_server.startswith("127.0.0.1:") and broker.startswith("127.0.0.1:")
    assert broker.encode() in cluster_info(name_server)
    both.wait_for("next, in another terminal")
    for command in ("clusterList", "sendMessage", "consumeMessage"):
        line = both.wait_for(r"^\s+\S*rmqadmin (.*)")[1]
        assert line.startswith(f"{command} -n {name_server}")
        done = rmqadmin("", line)
        assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout
    for address, code, text in (
        (broker, RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=48"),
        (name_server, RequestCode.UPDATE_NAMESRV_CONFIG, b"waitSecondsForService=44"),
    ):
        changed = ask(address, RemotingCommand.request(code, body=text))
        assert changed.code == ResponseCode.SUCCESS, "of an administrator: it is on this machine"
    both.interrupt()
    status, output = both.finish()
    assert status in STOPPED, output
    assert "Traceback" not in output
    said = lines_of_start(output.partition("next, in")[0])
    assert [line.split()[0] for line in said] == ["rocketmq_tw", "name", "broker", "ready:"]
    assert (tmp_path / store / "checkpoint").exists()
    assert not (tmp_path / store / "abort").exists(), "a clean stop leaves no abort file"


def test_changes_are_kept_in_the_file_that_was_read(twistd: Start, tmp_path: Path) -> None:
    kept, elsewhere = tmp_path / "etc" / "both.conf", tmp_path / "run" / "etc"
    kept.parent.mkdir()
    kept.write_text("listenPort=0\nnamesrvListenPort=0\n")
    elsewhere.mkdir(parents=True)
    both = twistd(
        "--rundir=run", "rmq-standalone", "-c", "etc/both.conf", "-o", "fileReservedTime=48"
    )
    ready = both.wait_for(r"ready: name server (\S+), broker (\S+), store in")
    overridden, kept_only = (
        ask(address, RemotingCommand.request(code, body=text))
        for address, code, text in (
            (ready[2], RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=24"),
            (ready[1], RequestCode.UPDATE_NAMESRV_CONFIG, b"waitSecondsForService=44"),
        )
    )
    assert overridden.remark.startswith("-o on the server's command line gives fileReservedTime")
    assert (kept_only.code, kept_only.remark) == (ResponseCode.SUCCESS, None)
    both.interrupt()
    both.finish()
    assert kept.read_text().endswith("fileReservedTime=24\nwaitSecondsForService=44\n")
    assert not list(elsewhere.iterdir())


def test_a_taken_port_is_named_and_what_started_is_stopped(twistd: Start, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        local = "bindAddress=127.0.0.1"
        for command in (
            ("rmq-namesrv", "-o", local, "-o", f"listenPort={port}"),
            ("rmq-standalone", "-o", "listenPort=0", "-o", f"namesrvListenPort={port}"),
            ("rmq-standalone", "-o", "namesrvListenPort=0", "-o", f"listenPort={port}"),
            ("rmq-broker", "-o", local, "-o", "listenPort=0", "-o", f"haListenPort={port}"),
        ):
            status, output = twistd(*command).finish()
            key = command[-1].partition("=")[0]
            assert f": change {key}\n" in output, output
            assert status == 1, output
            assert f"127.0.0.1:{port} cannot be listened on" in output
            assert "Traceback" not in output
            assert not (tmp_path / "twistd.pid").exists()
            assert not (tmp_path / "data" / "store" / "abort").exists()


def test_a_standalone_tells_of_a_taken_port_before_any_of_its_servers_begins(
    twistd: Start, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        proxy = tmp_path / "proxy.json"
        proxy.write_text(json.dumps({"grpcServerPort": port, "remotingListenPort": 0}))
        free = ("-o", "namesrvListenPort=0", "-o", "listenPort=0")
        for command in (
            ("rmq-standalone", *free, "-o", f"listenPort={port}"),
            # Its VIP channel, and its port for slaves.
            ("rmq-standalone", *free, "-o", f"listenPort={port + 2}"),
            ("rmq-standalone", *free, "-o", f"haListenPort={port}"),
            ("rmq-standalone", *free, "--enable-proxy", "-pc", str(proxy)),
        ):
            status, output = twistd(*command).finish()
            assert status == 1
            said = output.splitlines()
            assert len(said) == 2 and f"cannot start: 127.0.0.1:{port} cannot be" in said[1], output


def test_a_place_that_cannot_be_used_is_named_with_its_key(twistd: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    local = ("-o", "bindAddress=127.0.0.1", "-o", "listenPort=0")
    store = ("-o", "storePathRootDir=store")
    peers = ("--peers", "n0-127.0.0.1:20911", "--bind", "127.0.0.1")
    for key, *command in (
        ("storePathRootDir", "rmq-broker", *local, "-o", "storePathRootDir=file/store"),
        ("storePathCommitLog", "rmq-broker", *local, *store, "-o", "storePathCommitLog=file"),
        ("kvConfigPath", "rmq-namesrv", *local, "-o", f"kvConfigPath={tmp_path}"),
        ("--store", "rmq-dledger", *peers, "--store", "file"),
    ):
        status, output = twistd("--pidfile=", *command).finish()
        assert f": change {key}\n" in output, output
        assert status == 1, output
        assert "Traceback" not in output


@pytest.mark.parametrize("more", [(), ("-g", "0")])
def test_a_number_that_no_user_has_is_refused_with_one_line(
    twistd: Start, more: tuple[str, ...]
) -> None:
    status, output = twistd("-u", "3999999999", *more, "rmq-namesrv", *LOOPBACK).finish()
    assert (status, output) == (1, "-u 3999999999: no user has this number: give another one\n")


def test_a_wrong_file_refuses_with_one_line(twistd: Start, tmp_path: Path) -> None:
    (tmp_path / "b.properties").write_text("brokerName=b\nflushDiskType=SYNC\n")
    status, output = twistd("rmq-broker", "-c", "b.properties").finish()
    assert status == 1
    assert output == ("b.properties:2: flushDiskType=SYNC: give one of ASYNC_FLUSH, SYNC_FLUSH\n")


def test_an_unknown_key_is_warned_of(twistd: Start, tmp_path: Path) -> None:
    (tmp_path / "n.properties").write_text("listenPort=0\nbindAdress=127.0.0.1\n")
    server = twistd("rmq-namesrv", "-c", "n.properties", "-o", "bindAddress=127.0.0.1")
    server.wait_for(r"n\.properties:2: bindAdress is no known key: did you mean bindAddress\?")
    server.wait_for("listening on")
    server.interrupt()
    assert server.finish()[0] in STOPPED


def test_a_server_runs_on_the_reactor_that_is_asked_for(twistd: Start) -> None:
    for chosen, runs in ((), r"rocketmq_tw\.net\.reactor"), (("--reactor", "poll"), "pollreactor"):
        server = twistd("--pidfile=", *chosen, "rmq-namesrv", *LOOPBACK, "-o", "logLevel=debug")
        server.wait_for(f"reactor class: .*{runs}")
        cluster_info(server.wait_for(r"listening on (127\.0\.0\.1:\d+)")[1])
        server.interrupt()
        status, output = server.finish()
        assert status in STOPPED, output


def test_a_broker_tells_what_it_read_after_a_kill(twistd: Start) -> None:
    command = ("--pidfile=", "rmq-broker", *LOOPBACK, "-o", "storePathRootDir=store")
    killed = twistd(*command)
    killed.wait_for("serves at")
    killed.process.kill()
    killed.finish()
    again = twistd(*command)
    again.wait_for("recovery after a stop that was not clean: 0 messages were read from offset 0")
    again.wait_for("serves at")
    again.interrupt()
    again.finish()
    clean = twistd(*command)
    clean.wait_for("serves at")
    clean.interrupt()
    assert "recovery" not in clean.finish()[1]
