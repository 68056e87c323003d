"""The memory of the commands of `rmqadmin store` does not grow with the store."""

import os
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from rocketmq_tw.admin.main import main
from rocketmq_tw.admin.store.repairing import copy_store, rebuild
from rocketmq_tw.admin.tool import Tool
from tests.support.damaged_stores import change
from tests.support.large_stores import CONFIG, make_large_store
from tests.support.traced_memory import traced_memory

SMALL, LARGE = 2000, 8000
#: Bytes that a command may take more where the store is four times as large: a list of where its
#: messages are would be larger.
MORE = 16_384
#: The same of a dump's lines, whose garbage is collected by chance: 750 rows would be more.
GARBAGE = 500_000
#: The same of what makes queues and index again, whose buffers are fuller or emptier by chance:
#: 15,000 messages in a list would be more.
BUFFERS = 700_000


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    home = tmp_path_factory.mktemp("stores")
    (home / "broker.conf").write_text(CONFIG)
    for messages in (SMALL, LARGE):
        make_large_store(home / str(messages), messages)
    return {messages: home / str(messages) for messages in (SMALL, LARGE)}


def peak_of(*words: str | Path, status: int = 0) -> int:
    """Returns the most bytes that a command had at once."""
    # What it prints is no memory of its own.
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), traced_memory() as traced:
        with pytest.raises(SystemExit) as ended:
            main(["store", *map(str, words)], Tool())
        peak = traced.peak
    assert ended.value.code == status
    return peak


@pytest.mark.parametrize(
    ("words", "status", "more"),
    [
        ("check ROOT", 0, MORE),
        ("stats ROOT", 0, MORE),
        ("dump log ROOT --count COUNT", 0, GARBAGE),
        ("dump log ROOT -t Other", 1, MORE),
        ("dump queue ROOT Topic 0 --count COUNT", 0, MORE),
        ("dump index ROOT --count COUNT", 0, MORE),
        ("dump index ROOT --key Topic#none", 1, MORE),
    ],
)
def test_a_command_on_a_larger_store_takes_no_more_memory(
    words: str, status: int, more: int, stores: dict[int, Path]
) -> None:
    def peak(messages: int) -> int:
        root = stores[messages]
        # Each line of a dump takes its time.
        given = {"ROOT": str(root), "COUNT": str(messages // 8)}
        asked = [given.get(word, word) for word in words.split()]
        return peak_of(*asked, "-c", root.parent / "broker.conf", status=status)

    # What is made once in a process.
    peak(SMALL)
    assert peak(LARGE) < peak(SMALL) + more


def test_a_repair_of_a_larger_store_takes_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its looks at the store are those of a check."""
    peaks: dict[str, list[int]] = {}

    def measure(function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*args: Any, **named: Any) -> Any:
            with traced_memory() as traced:
                made = function(*args, **named)
                peaks.setdefault(function.__name__, []).append(traced.peak)
            return made

        return measured

    for step in (copy_store, rebuild):
        monkeypatch.setattr(f"rocketmq_tw.admin.store.repair.{step.__name__}", measure(step))
    (tmp_path / "broker.conf").write_text(CONFIG)
    # With what is made once in a process.
    for messages in (500, 5000, 20_000):
        root, copy = tmp_path / str(messages), tmp_path / f"{messages}-repaired"
        make_large_store(root, messages, queues=1)
        change(root / "consumequeue/Topic/0" / f"{0:020}", 40, bytes(20))
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), suppress(SystemExit):
            main(["store", "repair", str(root), "--to", str(copy), "-c", f"{tmp_path}/broker.conf"])
    _, small, large = peaks["copy_store"]
    assert large < small + MORE
    _, small, large = peaks["rebuild"]
    assert large < small + BUFFERS
