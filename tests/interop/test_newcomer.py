"""What README and the pages of rmqadmin show is typed as it stands, by somebody who has `make run`
in another terminal: Java, Python, gRPC, rmqadmin, the tools for stores.

Other pages have tests of their own: `tests/unit/services/test_pages_are_run.py` names them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from OpenSSL import crypto

from rocketmq_tw.net.tls_contexts import self_signed
from tests.support.grpc_clients import python_client
from tests.support.jars import PROJECT, java_command, stock_jars
from tests.support.pages import Block, block, blocks, typed
from tests.support.terminal import ELSEWHERE, INTERRUPTED, Started, Terminal
from tests.support.wait import wait_until

README = PROJECT / "README.md"
JAVA = """
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
public class Newcomer {
    public static void main(String[] arguments) {
        try {
%s            producer.shutdown();
        } catch (Throwable error) {
            // A producer's threads would keep the program alive.
            error.printStackTrace();
            System.exit(1);
        }
    }
}
"""
#: What docs/store-tools.md looks at: each queue has a message, one of them 102, of known keys.
FILL = """
from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.message import Message

with BlockingClient(["127.0.0.1:9876"]) as client:
    for queue in client.queues("Orders"):
        for number in range(102 if queue.queue_id == 2 else 1):
            client.send(Message("Orders", b"hello", keys=[f"order-{number}"]), queue=queue)
"""
#: The body of what is sent while a program shows messages.
SENT = "watched"


class Newcomer(NamedTuple):
    """`server` is `make run`."""

    terminal: Terminal
    server: Started


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with Terminal(tmp_path_factory.mktemp("newcomer") / "home") as terminal:
        make_run, _ = typed(block("README.md", "make run"))
        server = terminal.begin(make_run)
        wait_until(lambda: "consumeMessage" in server.said, "what to do next")
        yield Newcomer(terminal, server)


@pytest.fixture(scope="module")
def terminal(newcomer: Newcomer) -> Terminal:
    return newcomer.terminal


def of_language(language: str) -> list[Block]:
    return [block for block in blocks(README) if block.language == language]


def test_the_java_application(terminal: Terminal) -> None:
    (block,) = of_language("java")
    source = terminal.home / "Newcomer.java"
    source.write_text(JAVA % block.text)
    for version in ("4.9.7", "5.3.3"):
        words = [*java_command(128), "-cp", f"{stock_jars(version)}/*", str(source)]
        # Its call ends after three seconds, which the machine may take for its first message.
        terminal.type_until(shlex.join(words), "SEND_OK")


def program(block: Block, python: str | Path = ".venv/bin/python") -> str:
    return shlex.join([str(python), "-c", block.text])


def test_the_python_programs(terminal: Terminal) -> None:
    making = re.search(r"`(rmqadmin updateTopic [^`]*)`", README.read_text())
    assert making is not None
    terminal.type(making[1])
    by_grpc, blocking, deferred, consuming = of_language("python")
    said = terminal.type(program(by_grpc, python_client()))
    assert re.search(r"^[0-9A-F]{34}$", said, re.M)
    assert "hello" in terminal.type(program(blocking))
    assert "SEND_OK" in terminal.type(program(deferred))
    consumed = watch(terminal, program(consuming), tags="created")
    assert f"Orders created {SENT.encode()!r}" in consumed.splitlines()


def test_the_commands_of_rmqadmin(terminal: Terminal) -> None:
    (terminal.checkout / "orders.txt").write_text("first\nsecond\n")
    for command in typed(block("rmqadmin.md", "rmqadmin clusterList")):
        if "--follow" not in command:
            terminal.type(command)
            continue
        line = watch(terminal, command, tags="watched", status=INTERRUPTED).splitlines()[-1]
        assert SENT in line
        if "--format" in command:
            assert line.endswith(f" {SENT}"), line
    read = json.loads(terminal.type("rmqadmin consumeMessage -t Orders --output json"))["messages"]
    assert {"hello", "first", "second"} <= {message["body"] for message in read}
    assert any(message["properties"].get("source") == "file" for message in read)


def test_contexts(terminal: Terminal) -> None:
    """`production` is on another host, where a name server takes TLS only."""
    first, *others = typed(block("rmqadmin.md", "rmqadmin context"))
    terminal.type("unset NAMESRV_ADDR")
    if terminal.is_alone:
        secure(terminal)
        terminal.type(first)
    for command in others:
        if "production" in command:
            if terminal.is_alone:
                terminal.type_until(command)
        else:
            # Somebody who sits there is asked whether to remove it.
            terminal.type(command, answer="y")
    left = json.loads(terminal.type("rmqadmin context list --output json"))
    names = {each["name"] for each in left["contexts"]}
    assert names == ({"production"} if terminal.is_alone else set())


def secure(terminal: Terminal) -> None:
    """Starts the name server of `production`, with the keys that docs/configuration.md has for
    servers and for rmqadmin."""
    directory = terminal.own("/etc", copied=True) / "rocketmq"
    directory.mkdir()
    key, (certificate,) = self_signed()
    pem = crypto.dump_certificate(crypto.FILETYPE_PEM, certificate)
    (directory / "server.pem").write_bytes(pem)
    (directory / "ca.pem").write_bytes(pem)
    (directory / "server.key").write_bytes(crypto.dump_privatekey(crypto.FILETYPE_PEM, key))
    server = block("configuration.md", "tls.server.mode=enforcing").text
    (directory / "namesrv.properties").write_text(f"{server}bindAddress={ELSEWHERE}\n")
    client = block("configuration.md", "tls.test.mode.enable=false").text
    (directory / "tls.properties").write_text(client)
    (directory / "tools.yml").write_text("accessKey: RocketMQ\nsecretKey: 12345678\n")
    paths = f"-o kvConfigPath={directory}/kv.json -o configStorePath={directory}/kept.properties"
    terminal.begin(f"twistd -n --pidfile= rmq-namesrv -c /etc/rocketmq/namesrv.properties {paths}")


def watch(terminal: Terminal, command: str, *, tags: str, status: int = 0) -> str:
    """What a program shows that runs until Ctrl-C; it is ended as a user does that, once it has
    shown a message that is sent with `tags` meanwhile."""
    started = terminal.begin(command)

    def seen() -> bool:
        # It shows what comes once it has begun, and does not say when that is.
        send = f"rmqadmin sendMessage -n 127.0.0.1:9876 -t Orders -c {tags} -p {SENT}"
        terminal.type(send)
        return SENT in started.said

    wait_until(seen, "a message that is shown")
    return terminal.interrupt(started, status=status)


def test_the_tools_for_stores(newcomer: Newcomer) -> None:
    """The last test: it stops the server, whose store it looks at."""
    terminal = newcomer.terminal
    terminal.type(shlex.join(["python", "-c", FILL]))
    terminal.interrupt(newcomer.server, status=INTERRUPTED)
    usage, check, repair, stats, dump = blocks(PROJECT / "docs" / "store-tools.md")
    (terminal.checkout / "store").symlink_to(terminal.checkout / "data" / "store")
    for command in typed(usage):
        terminal.type(command.replace("DIR", "store").replace("COPY", "a-copy"))
    for shown in (check, repair, stats, dump):
        for command in typed(shown):
            terminal.type(command)
