"""`tools.big` with little of everything: its steps work, and what they start ends."""

import re

import pytest

from tools.big.__main__ import main

SMALL = (
    "--queues 40 --topics 10 --groups 2 --connections 20 --log-files 3 --old-files 1 --brokers 3"
)


@pytest.mark.parametrize("server", ["broker", "namesrv"])
def test_a_small_run(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([server, "--seconds", "0.1", *SMALL.split()]) == 0
    steps = re.findall(r"^\| (.*?) \| [\d.]+ \|", capsys.readouterr().out, re.MULTILINE)
    wanted = {
        "broker": ("start until a first send", "329, retention", "stop"),
        "namesrv": ("start", "105, the routes of all topics", "the connections of all others end"),
    }
    assert set(wanted[server]) <= set(steps)
