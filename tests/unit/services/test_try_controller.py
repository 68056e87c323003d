"""What `make try-controller` has one type is there and can be typed."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketmq_tw.admin.main import cli
from rocketmq_tw.admin.tool import Tool
from tools import try_controller


def test_what_is_shown_can_be_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(try_controller.PROJECT)
    names = list(try_controller.commands())
    running = {name: SimpleNamespace(pid=number) for number, name in enumerate(names, 100)}
    try_controller._explain(running)  # type: ignore[arg-type]
    shown = [shlex.split(line, comments=True) for line in capsys.readouterr().out.splitlines()]
    typed = [words for words in shown if words and words[0].endswith(("rmqadmin", "twistd"))]
    asked = [words[1:] for words in typed if words[0].endswith("rmqadmin")]
    assert [words[0] for words in asked] == ["getSyncStateSet", "sendMessage", "consumeMessage"]
    for words in asked:
        context = cli.make_context("rmqadmin", words[:1], obj=Tool())
        _, command, _ = cli.resolve_command(context, words)
        assert command is not None
        command.make_context(words[0], words[1:], parent=context)
    started = [words[1:] for words in typed if words[0].endswith("twistd")]
    assert len(started) == 3
    for words in started:
        assert words[:3] == ["-n", "--pidfile=", "rmq-broker"]
        assert Path(words[-1]).is_file()
    killed = [words[2] for words in shown if words[:2] == ["kill", "-9"]]
    assert killed == [str(running[name].pid) for name in names if name.startswith("broker")]
