"""`tools.bench.cores` counts what brokers in processes of their own do."""

import re

import pytest

from tools.bench.cores import main


def test_what_a_broker_does_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--most", "1", "--seconds", "0.2", "--turns", "1"]) == 0
    lines = re.findall(r"^\| (\d) \| ([\d,]+) \|", capsys.readouterr().out, re.MULTILINE)
    assert [brokers for brokers, _ in lines] == ["1"]
    assert all(int(rate.replace(",", "")) > 0 for _, rate in lines)
