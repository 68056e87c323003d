"""Which test runs which block of README and docs, as it stands; and what none can run here, with
the reason and what is looked at instead.

That each command can be typed at all is `test_typed_pages.py`'s."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.jars import PROJECT
from tests.support.pages import Block, blocks, typed
from tests.support.runbook import read_runbook

TESTS = PROJECT / "tests"
DOCS = PROJECT / "docs"
NEWCOMER = "interop/test_newcomer.py"
SERVERS = "interop/test_typed_servers.py"
TOOLS = "interop/test_typed_tools.py::test_a_tool_runs_as_it_is_typed"
SPARK = "spark/test_page.py"
UPGRADE = "interop/test_upgrade.py"
#: Page to how a block begins, and the test that runs it.
RUN = {
    "README.md": {
        "make run": f"{NEWCOMER}::newcomer",
        "DefaultMQProducer": f"{NEWCOMER}::test_the_java_application",
        "from": f"{NEWCOMER}::test_the_python_programs",
    },
    "configuration.md": {"twistd": f"{SERVERS}::test_a_broker_of_configuration"},
    "container.md": {
        "twistd -n rmq-container -c etc/container/broker-": f"{SERVERS}::test_a_container",
        "twistd -n rmq-container -c etc/container/cores": f"{SERVERS}::test_a_broker_for_each_core",
    },
    "controller.md": {
        "twistd": f"{SERVERS}::test_controllers",
        "python -m tools.": TOOLS,
        "tail -n 1": f"{SERVERS}::test_controllers_that_were_started_anew",
        "rm -f": f"{SERVERS}::test_controllers_that_were_started_anew",
        "rmqadmin getSyncStateSet": f"{SERVERS}::test_controllers_that_were_started_anew",
    },
    "durability.md": {"python -m tools.": TOOLS},
    "monitoring.md": {"promtool": "interop/test_prometheus.py::test_the_page_with_prometheus"},
    "operating.md": {"python3 -m venv": f"{SERVERS}::test_the_units_of_systemd"},
    "proxy.md": {"twistd": f"{SERVERS}::test_proxies_that_share_their_ports"},
    "raft.md": {
        ".venv/bin/twistd": f"{SERVERS}::test_members_of_a_dledger_group",
        "import": "crash/test_dledger_docs.py::test_the_program_runs_as_it_is_written",
    },
    "replication.md": {
        "twistd -n rmq-namesrv &\nfor f in etc/2m": f"{SERVERS}::test_masters_and_their_slaves",
        "twistd -n rmq-namesrv &\nfor f in etc/d": f"{SERVERS}::test_a_log_in_a_dledger_group",
        "python -m tools.": TOOLS,
        ".venv/bin/python -m tools.": TOOLS,
    },
    "rmqadmin.md": {
        "rmqadmin clusterList": f"{NEWCOMER}::test_the_commands_of_rmqadmin",
        "rmqadmin context": f"{NEWCOMER}::test_contexts",
    },
    "robustness.md": {"python -m tools.": TOOLS},
    "spark.md": {
        "spark.read": f"{SPARK}::test_a_topic_is_a_table",
        "orders = ": f"{SPARK}::test_a_topic_is_a_stream_and_a_sink",
        "(orders.": f"{SPARK}::test_a_topic_is_a_stream_and_a_sink",
        "export": f"{SPARK}::test_the_ready_jobs",
        "from pyspark_rocketmq.dstreams import createDirect": f"{SPARK}::test_the_direct_stream",
        "options = ": f"{SPARK}::test_the_direct_stream",
        "def output": f"{SPARK}::test_the_direct_stream",
        "createDirectStream": f"{SPARK}::test_the_direct_stream",
        "twistd -n rmq-spark-receiver": f"{SPARK}::test_the_receiver",
        "from pyspark_rocketmq.dstreams import confirm": f"{SPARK}::test_the_receiver",
    },
    "store-tools.md": {
        "rmqadmin store": f"{NEWCOMER}::test_the_tools_for_stores",
        "$ rmqadmin store": f"{NEWCOMER}::test_the_tools_for_stores",
    },
    # Each block says where it is typed: see `test_each_procedure_of_an_upgrade_is_followed`.
    "upgrade.md": {"# ": f"{UPGRADE}::test_a_pair_of_4_9_elects_its_master_and_goes_back"},
}


class Left(NamedTuple):
    """Why no test runs a command, and the test of what is looked at instead."""

    reason: str
    instead: str


#: Page and how a command begins.
LEFT = {
    ("README.md", "make test"): Left(
        "it runs the tests", "unit/services/test_typed_pages.py::test_it_can_be_typed"
    ),
    ("spark.md", "make install-spark"): Left(
        "it downloads Spark; `make test` installs the same beside itself",
        "unit/services/test_typed_pages.py::test_it_can_be_typed",
    ),
    ("operating.md", "docker compose"): Left(
        "it needs a Docker daemon and a registry; the lines are typed before a program that starts"
        " each service's command on a host of its own",
        f"{SERVERS}::test_the_containers_of_compose",
    ),
}
#: What is no command and no program: the keys of a file, variables, what a program prints.
SHOWN = {
    "configuration.md": ("# haListenPort", "tls."),
    "monitoring.md": ("metricsExporterType",),
    "operating.md": ("# in the files",),
    "rmqadmin.md": ("rmqadmin: ",),
    "upgrade.md": ("NAME=", "SELF=", "CONF="),
}


def pages() -> list[Path]:
    """The formats have bytes, and no commands: see `test_formats_have_no_commands`."""
    return [PROJECT / "README.md", *sorted(DOCS.glob("*.md"))]


def all_blocks() -> Iterator[Block]:
    for page in pages():
        yield from blocks(page)


def runner(block: Block) -> str:
    """The test that runs the block; "" where none does."""
    fitting = [start for start in RUN.get(block.page, {}) if block.text.startswith(start)]
    return RUN[block.page][max(fitting, key=len)] if fitting else ""


def left(page: str, line: str) -> bool:
    return any(page == of and line.startswith(start) for of, start in LEFT)


def name_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", list(all_blocks()), ids=name_of)
def test_a_block_is_run_or_it_is_said_why_not(block: Block) -> None:
    if block.text.startswith(SHOWN.get(block.page, ())):
        assert not runner(block)
        return
    alone = [line for line in typed(block) if left(block.page, line)]
    if len(alone) < len(typed(block)):
        assert runner(block), f"no test runs {block.text}"


def test_nothing_is_named_that_is_gone() -> None:
    there = list(all_blocks())
    for page, starts in RUN.items():
        for start, test in starts.items():
            assert test in {runner(each) for each in there if each.page == page}, (page, start)
    for page, start in LEFT:
        assert any(
            line.startswith(start) for each in there if each.page == page for line in typed(each)
        )
    for page, begins in SHOWN.items():
        for start in begins:
            assert any(each.text.startswith(start) for each in there if each.page == page)


def named_tests() -> list[tuple[str, str]]:
    """Pages and tests."""
    run = {(page, test) for page, starts in RUN.items() for test in starts.values()}
    return sorted(run | {(page, left.instead) for (page, _), left in LEFT.items()})


@pytest.mark.parametrize(("page", "test"), named_tests())
def test_a_test_is_there_and_reads_the_page(page: str, test: str) -> None:
    file, _, name = test.partition("::")
    text = (TESTS / file).read_text()
    functions = {
        each.name for each in ast.walk(ast.parse(text)) if isinstance(each, ast.FunctionDef)
    }
    assert name in functions
    assert page in text or "PAGES" in text


def test_each_procedure_of_an_upgrade_is_followed() -> None:
    text = (TESTS / UPGRADE).read_text()
    steps = {title for title, found in read_runbook(DOCS / "upgrade.md").items() if found}
    assert steps
    assert not [title for title in steps if f'"{title}"' not in text]


def test_indented_commands_are_blocks() -> None:
    """Below the item of a list, four columns are text."""
    shown = re.compile(r" {4,}(?:python|twistd|rmqadmin|make|docker) .*")
    for page in pages():
        inside = {line.strip() for block in blocks(page) for line in block.text.splitlines()}
        for line in page.read_text().splitlines():
            if shown.match(line):
                assert line.strip() in inside, f"{page.name}: {line}"


def test_formats_have_no_commands() -> None:
    for page in (DOCS / "formats").glob("*.md"):
        for block in blocks(page):
            assert not re.match(r"\$ |(?:python|twistd|rmqadmin|make|docker)\b", block.text)
