"""Every command of README and docs can be typed: programs, options, files and targets are there.

What they do is shown by the tests that `test_pages_are_run.py` names."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from rocketmq_tw.admin.command_line import cli
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.config.load import load
from rocketmq_tw.config.properties import read_properties
from rocketmq_tw.services import (
    broker,
    container,
    controller,
    dledger,
    namesrv,
    proxy,
    spark_receiver,
    standalone,
)
from rocketmq_tw.spark.jobs.command_line import cli as rmqspark
from tests.support.jars import PROJECT
from tests.support.pages import PAGES, Block, blocks, commands, inline_commands

SERVERS = {
    "rmq-broker": broker.Options,
    "rmq-container": container.Options,
    "rmq-controller": controller.Options,
    "rmq-dledger": dledger.Options,
    "rmq-namesrv": namesrv.Options,
    "rmq-proxy": proxy.Options,
    "rmq-spark-receiver": spark_receiver.Options,
    "rmq-standalone": standalone.Options,
}
#: Programs that are not ours, as docs use them.
OTHERS = {
    "cp",
    "docker",
    "export",
    "install",
    "mkdir",
    "prometheus",
    "promtool",
    "python3",
    "systemctl",
    "useradd",
}
#: Pages whose procedures are typed by tests of their own (`tests/support/runbook.py`).
REHEARSED = {"upgrade.md"}
IN_TEXT = " in the text"
GROUPS: dict[str, Any] = {"rmqadmin": cli, "rmqspark": rmqspark}


def typed() -> list[tuple[str, str]]:
    """The place and the text of each command."""
    found = []
    for page in PAGES:
        if page.name in REHEARSED:
            continue
        for block in blocks(page):
            if is_shell(block):
                found += [(f"{page.name}:{block.line}", command) for command in commands(block)]
        found += [(f"{page.name}{IN_TEXT}", command) for command in inline_commands(page)]
    return found


def is_shell(block: Block) -> bool:
    first = block.text.split()[0] if block.text.split() else ""
    program = first.rpartition("/")[2]
    if block.language:
        return block.language == "sh"
    if block.text.startswith("$ "):
        return True
    ours = {"rmqadmin", "rmqspark", "twistd", "make", "python", "pip", *OTHERS}
    return program in ours and not re.match(r"\w+: |\w+=", block.text)


def check(words: Sequence[str], *, whole: bool) -> None:
    """Fails where the command would be refused before it does anything; of one that is not
    `whole`, as they stand in texts, its name and its options are looked at."""
    program, *arguments = words
    program = program.rpartition("/")[2]
    if program in GROUPS:
        check_click(GROUPS[program], program, arguments, whole=whole)
    elif program == "twistd":
        check_twistd(arguments, whole=whole)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.M)
        assert arguments[0] in targets
    elif program == "python":
        assert arguments[0] == "-m"
        check_tool(arguments[1], arguments[2:])
    elif program == "docker":
        check_compose(arguments)
    elif program == "pip":
        assert arguments[0] == "install"
    else:
        assert program in OTHERS, f"{program}: who has it?"


def check_click(group: click.Group, name: str, arguments: list[str], *, whole: bool) -> None:
    context = group.make_context(name, [], obj=Tool(), resilient_parsing=True)
    command: click.Command = group
    known = {option for parameter in group.params for option in parameter.opts}
    rest = list(arguments)
    while isinstance(command, click.Group) and rest and rest[0] != "COMMAND":
        if rest[0].startswith("-"):
            assert rest.pop(0) in known | {"-h", "--help"}
            continue
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = type(context)(command, parent=context)
    if whole:
        command.make_context(name, rest, parent=context.parent)
    options = {option for parameter in command.params for option in parameter.opts}
    for word in rest:
        if re.match(r"--?[a-zA-Z]", word) and not isinstance(command, click.Group):
            assert word in options, f"{command.name} has no {word}"


def check_twistd(arguments: list[str], *, whole: bool) -> None:
    program = next((word for word in arguments if word.startswith("rmq-")), None)
    at = len(arguments) if program is None else arguments.index(program)
    assert program is None or program in SERVERS
    assert all(
        re.match("-n$|--(pidfile|logfile|reactor|syslog)|[a-z]", word) for word in arguments[:at]
    )
    if program is not None and whole:
        SERVERS[program]().parseOptions(arguments[at + 1 :])


def check_compose(arguments: Sequence[str]) -> None:
    """Of `docker compose`: its file, profiles and services are there, and what is typed inside of a
    container can be typed."""
    assert arguments[:2] == ["compose", "-f"]
    services = yaml.safe_load(Path(arguments[2]).read_text())["services"]
    rest = list(arguments[3:])
    if rest[0] == "--profile":
        assert any(rest[1] in each.get("profiles", []) for each in services.values())
        del rest[:2]
    if rest[0] == "exec":
        assert rest[1] in services
        check(rest[2:], whole=True)
    else:
        assert rest[0] == "up"


def check_tool(module: str, arguments: list[str]) -> None:
    assert importlib.util.find_spec(module) is not None
    sources = [path.read_text() for path in (PROJECT / "tools").rglob("*.py")]
    for word in arguments:
        if word.startswith("--"):
            assert any(f'"{word}"' in source for source in sources), f"{module} has no {word}"


@pytest.mark.parametrize(("where", "command"), typed())
def test_it_can_be_typed(
    where: str, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("etc", "tools"):
        (tmp_path / name).symlink_to(PROJECT / name)
    (tmp_path / "orders.txt").write_text("created\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:9876")
    for part in re.split(r" '?&&'? ", command):
        check(shlex.split(part), whole=not where.endswith(IN_TEXT))


def test_keys_of_blocks_are_known() -> None:
    keys, _ = blocks(PROJECT / "docs" / "monitoring.md")
    loaded = load(broker.Options.types, read_properties(keys.text, "monitoring.md"), "/home/me")
    assert not loaded.notices


def test_most_commands_are_looked_at() -> None:
    """Where the reader of pages breaks, nothing would be looked at any more."""
    assert len(typed()) > 80
