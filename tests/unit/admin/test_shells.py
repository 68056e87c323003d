"""Completion as docs/rmqadmin.md has it, in the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import RegisterBrokerRequestHeader
from tests.support.jars import PROJECT
from tests.support.remoting import Connection
from tests.support.servers import OurNameServer
from tests.support.wait import LIMIT, wait_until

#: Completes as rmqadmin; for anything else it only writes what it was given.
PROGRAM = """#!/bin/sh
[ -z "$_RMQADMIN_COMPLETE" ] && { echo "$@" > "$HOME/given"; exit; }
exec %s -c 'from rocketmq_tw.admin.main import main; main()' "$@"
"""
#: The shell to how it is started, the file that it reads first below its home, and what that has.
SHELLS = {
    "bash": (
        ["bash", "--noprofile", "--rcfile", ".bashrc", "-i"],
        ".bashrc",
        'eval "$(_RMQADMIN_COMPLETE=bash_source rmqadmin)"',
    ),
    "zsh": (
        ["zsh", "-d", "-i"],
        ".zshrc",
        'autoload -Uz compinit && compinit -u\neval "$(_RMQADMIN_COMPLETE=zsh_source rmqadmin)"',
    ),
    "fish": (
        ["fish", "-i"],
        ".config/fish/config.fish",
        "_RMQADMIN_COMPLETE=fish_source rmqadmin | source",
    ),
}


BROKER = "Brokerage-a"


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real name server that knows `BROKER` as long as it is connected."""
    header = RegisterBrokerRequestHeader(
        broker_name=BROKER,
        broker_addr="127.0.0.1:1",
        cluster_name="DefaultCluster",
        ha_server_addr="127.0.0.1:2",
        broker_id=0,
    )
    with OurNameServer(tmp_path_factory.mktemp("namesrv")) as names, Connection(names.address) as b:
        b.request(RemotingCommand.request(RequestCode.REGISTER_BROKER, header))
        yield names.address


@pytest.mark.parametrize(
    "shell",
    [
        pytest.param(
            name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"no {name} here")
        )
        for name in SHELLS
    ],
)
@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("topicL\t", "topicList"),
        ("topicRoute --nam\t", "topicRoute --namesrvAddr"),
        # A name that the cluster has.
        ("wipeWritePerm -b Brok\t", f"wipeWritePerm -b {BROKER}"),
    ],
)
def test_a_tab_completes_what_was_typed(
    tmp_path: Path, name_server: str, shell: str, typed: str, given: str
) -> None:
    command, name, text = SHELLS[shell]
    program = tmp_path / "bin" / "rmqadmin"
    program.parent.mkdir()
    program.write_text(PROGRAM % sys.executable)
    program.chmod(0o755)
    started = tmp_path / name
    started.parent.mkdir(parents=True, exist_ok=True)
    started.write_text(f"{text}\necho yes > ready\n")
    terminal, other_end = pty.openpty()
    running = subprocess.Popen(
        # In a session of its own, whose terminal this is.
        ["setsid", "--ctty", *command],
        cwd=tmp_path,
        env={
            "HOME": str(tmp_path),
            "NAMESRV_ADDR": name_server,
            "PATH": os.pathsep.join((str(program.parent), os.environ["PATH"])),
            "PYTHONPATH": str(PROJECT),
            "TERM": "xterm",
        },
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
    )
    os.close(other_end)

    def text_of(name: str) -> str:
        assert running.poll() is None, "the shell ended"
        # What it shows has to be read, or it would wait.
        while select.select([terminal], [], [], 0)[0]:
            os.read(terminal, 4096)
        return (tmp_path / name).read_text()

    try:
        wait_until(lambda: text_of("ready"), "the shell")
        os.write(terminal, f"rmqadmin {typed}\r".encode())
        assert wait_until(lambda: text_of("given"), "the command") == f"{given}\n"
    finally:
        running.kill()
        running.wait(LIMIT)
        os.close(terminal)
