"""Each `python -m tools...` of README and docs runs as it is typed, with options behind it that
make it short. What they need, and no page repeats, is in tests/MORE.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import PAGES, blocks, inline_commands, typed
from tests.support.terminal import Terminal

#: What stands behind each line, by how the line begins. These take less than 5 s of CPU.
CHEAP = {
    "acting_sim": "--seeds 1",
    "bench.inprocess": "--case 1 --messages 200",
    "bench.pair": "--messages 400",
    "bench.proxy_inprocess": "--case send-4 --messages 400",
    "bench.whole_report": "--help",
    "compare_mqadmin": "",
    "controller_sim --first": "",
    "controller_sim --seeds": "--seeds 4",
    "proxy_idle": "--streams 50 --slow 5 --seconds 1",
    "raft_campaign": "--seeds 20",
    "store_campaign": "--restarts 30",
    "table_hours": "--hours 4 --only controllers",
}
#: These take 5 to 100 s of CPU, most of them since they start processes of ours and of stock's.
MORE = {
    "acting_campaign": "--seconds 10",
    "acting_load": "--delayed 100 --timed 100 --halves 10 --popped 100 --after 40",
    "bench.cores": "--most 1 --seconds 0.2 --turns 1",
    "big": "--seconds 0.1 --queues 40 --topics 10 --groups 2 --connections 20 --log-files 3"
    " --old-files 1 --brokers 3",
    "compare_dashboard": "--program --only /topic/list",
    "busy_group": "--others 1 --seconds 2",
    "controller_campaign gap": "--rounds 1",
    "controller_campaign hand-overs": "--number 1",
    "controller_campaign matrix": "--rounds 1",
    "deployments": "--set single --kind ours",
    "dledger_campaign": "--deaths 1",
    "hostile_campaign": "--seconds 0.3",
    "memory_campaign": "--minutes 1 --growth 200",
    "proxy_campaign": "--kills 1",
    "replication_campaign throughput": "--rounds 1 --seconds 2 --warm 4",
    "replication_campaign volume": "--mebibytes 8 --pair ours,ours",
}


def lines() -> list[str]:
    """The command lines of all pages, each once."""
    found = set()
    for page in PAGES:
        shown = [line for block in blocks(page) for line in typed(block)]
        for line in (*shown, *inline_commands(page)):
            line = line.removeprefix(".venv/bin/")
            if line.startswith("python -m tools."):
                found.add(line)
    return sorted(found)


def beginning(line: str) -> str:
    """How the line begins, of all that are shortened here; empty for one that is not."""
    words = line.partition("tools.")[2]
    fitting = [start for start in CHEAP | MORE if words == start or words.startswith(f"{start} ")]
    return max(fitting, key=len, default="")


def parameters() -> Iterator[object]:
    for line in filter(beginning, lines()):
        begins = beginning(line)
        marks = [pytest.mark.more] if begins in MORE else []
        yield pytest.param(line, (CHEAP | MORE)[begins], marks=marks, id=begins)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    # Some make networks of their own, and some download what stock's programs are made of.
    with Terminal(tmp_path / "home", alone=False) as opened:
        yield opened


@pytest.mark.parametrize(("line", "shorter"), list(parameters()))
def test_a_tool_runs_as_it_is_typed(line: str, shorter: str, terminal: Terminal) -> None:
    said = terminal.type(f"{line} {shorter}")
    assert "Traceback" not in said


def test_each_line_of_the_pages_is_shortened_here() -> None:
    assert [line for line in lines() if not beginning(line)] == []
    assert {beginning(line) for line in lines()} == CHEAP.keys() | MORE.keys()
