"""What README and the pages of rmqadmin show is typed as it stands, by somebody who has `make run`
in another terminal: Java, Python, gRPC, rmqadmin, the tools for stores.

Only the addresses are those of the test. Whole procedures of other pages have tests of their own,
see `tests/support/runbook.py`; that each command can be typed at all is
`tests/unit/services/test_typed_pages.py`'s."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.message import Message
from tests.support.grpc_clients import python_client
from tests.support.jars import PROJECT, java_command, stock_jars
from tests.support.pages import Block, blocks, commands
from tests.support.proxies import StandaloneWithProxy
from tests.support.rmqadmin import answer
from tests.support.wait import LIMIT, wait_until

README = PROJECT / "README.md"
RMQADMIN = PROJECT / "docs" / "rmqadmin.md"
STORE_TOOLS = PROJECT / "docs" / "store-tools.md"
JAVA = """
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
public class Newcomer {
    public static void main(String[] arguments) throws Exception {
%s        producer.shutdown();
    }
}
"""


#: A background job of a shell ignores SIGINT, and so would the programs that the tests start there.
INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
PROGRAM = "#!{python}" + INTERRUPTED + "from rocketmq_tw.{module} import main\nmain()\n"
#: The body of what is sent while a program shows messages.
SENT = "watched"


class Newcomer:
    """Types at a machine with a server that runs; its name server is 127.0.0.1:9876 in docs."""

    def __init__(self, home: Path, server: StandaloneWithProxy) -> None:
        self.home = home
        self.server = server
        programs = home / "bin"
        programs.mkdir(parents=True)
        for name, module in (("rmqadmin", "admin.main"),):
            path = programs / name
            path.write_text(PROGRAM.format(python=sys.executable, module=module))
            path.chmod(0o755)
        self.environment = os.environ | {
            "PATH": os.pathsep.join((str(programs), os.environ["PATH"])),
            "PYTHONPATH": str(PROJECT),
            "NAMESRV_ADDR": server.name_server,
            "RMQADMIN_CONTEXTS": str(home / "contexts.yaml"),
        }

    def at_home(self, text: str) -> str:
        """The text with the addresses of this machine."""
        return text.replace("127.0.0.1:9876", self.server.name_server).replace(
            "127.0.0.1:8081", self.server.ports.grpc
        )

    def start(self, *words: str, output: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, status: int = 0) -> str:
        """What the program prints, once it has ended with `status`."""
        process = self.start(*words)
        said, _ = process.communicate(timeout=LIMIT)
        assert process.returncode == status, f"{words} ended with {process.returncode}:\n{said}"
        return said

    def type(self, command: str) -> str:
        return self.run("bash", "-euo", "pipefail", "-c", self.at_home(command))


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    home = tmp_path_factory.mktemp("newcomer")
    with StandaloneWithProxy(home / "server") as server:
        wait_until(
            lambda: answer(server.name_server, "clusterList")["brokers"],
            "the broker's registration",
        )
        yield Newcomer(home / "me", server)


def of_language(language: str) -> list[Block]:
    return [block for block in blocks(README) if block.language == language]


def test_the_java_application(newcomer: Newcomer) -> None:
    (block,) = of_language("java")
    source = newcomer.home / "Newcomer.java"
    source.write_text(JAVA % newcomer.at_home(block.text))
    for version in ("4.9.7", "5.3.3"):
        jars = f"{stock_jars(version)}/*"
        assert "SEND_OK" in newcomer.run(*java_command(128), "-cp", jars, str(source))


def test_the_python_programs(newcomer: Newcomer) -> None:
    making = re.search(r"`(rmqadmin updateTopic [^`]*)`", README.read_text())
    assert making is not None
    newcomer.type(making[1])
    said = []
    *sending, consuming = of_language("python")
    for block in sending:
        uses_grpc = "from rocketmq import" in block.text
        python = str(python_client()) if uses_grpc else sys.executable
        said.append(newcomer.run(python, "-c", newcomer.at_home(block.text)))
    by_grpc, blocking, deferred = said
    assert re.search(r"^[0-9A-F]{34}$", by_grpc, re.M)
    assert "hello" in blocking
    assert "SEND_OK" in deferred
    text = INTERRUPTED + newcomer.at_home(consuming.text)
    consumed = watch(newcomer, sys.executable, "-uc", text, tags="created")
    assert f"Orders created {SENT.encode()!r}" in consumed.splitlines()


def test_the_commands_of_rmqadmin(newcomer: Newcomer) -> None:
    (newcomer.home / "orders.txt").write_text("first\nsecond\n")
    first, contexts, _ = blocks(RMQADMIN)
    for command in commands(first):
        if "--follow" in command:
            words = shlex.split(command)
            if "--format" in words:
                line = watch(newcomer, *words, tags="watched", status=130).splitlines()[0]
                assert line.endswith(f" {SENT}"), line
                continue
            followed = watch(newcomer, *words, "--output", "json", tags="watched", status=130)
            assert json.loads(followed.splitlines()[0])["body"] == SENT
        else:
            newcomer.type(command)
    read = answer(newcomer.server.name_server, "consumeMessage -t Orders")["messages"]
    assert {"hello", "first", "second"} <= {message["body"] for message in read}
    assert any(message["properties"].get("source") == "file" for message in read)
    # The file of TLS and the servers of production are somebody else's; a terminal would be asked.
    for command in commands(contexts):
        if "--context production" not in command and "add production" not in command:
            newcomer.type(command + (" --yes" if "remove" in command else ""))
    assert "test" not in newcomer.type("rmqadmin context list --output json").partition("[")[2]


def watch(newcomer: Newcomer, *words: str, tags: str, status: int = 0) -> str:
    """What a program shows that runs until Ctrl-C; it is ended as a user does that, once it has
    shown a message that is sent with `tags` meanwhile."""
    shown = newcomer.home / "shown"
    with shown.open("w") as output:
        process = newcomer.start(*words, output=output)

    def seen() -> bool:
        # It shows what comes once it has begun, and does not say when that is.
        newcomer.type(f"rmqadmin sendMessage -t Orders -c {tags} -p {SENT}")
        return SENT in shown.read_text()

    try:
        wait_until(seen, "a message that is shown")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT)
    assert process.returncode == status, shown.read_text()
    return shown.read_text()


def test_the_tools_for_stores(newcomer: Newcomer) -> None:
    """The last test: it stops the server, whose store it looks at."""
    with BlockingClient([newcomer.server.name_server]) as client:
        # What the page looks at: each queue has a message, one of them a hundred, of known keys.
        for queue in client.queues("Orders"):
            for number in range(102 if queue.queue_id == 2 else 1):
                client.send(Message("Orders", b"hello", keys=f"order-{number}"), queue=queue)
    newcomer.server.stop()
    usage, check, repair, stats, dump = blocks(STORE_TOOLS)
    store = newcomer.home / "store"
    store.symlink_to(newcomer.server.home / "store")
    for command in commands(usage):
        typed = command.replace("DIR", "store").replace("COPY", "a-copy")
        newcomer.type(typed)
    for block in (check, repair, stats, dump):
        for command in commands(block):
            newcomer.type(command)
