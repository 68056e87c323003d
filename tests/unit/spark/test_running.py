"""What all jobs share: one line for a failure, an orderly end at Ctrl-C."""

import os
import signal

import click
import pytest

from rocketmq_tw.spark.jobs.running import interrupt_event, parse_pairs, reason, source_settings


def test_an_interrupt_is_noted_and_the_handler_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interrupt_event() as interrupted:
        assert not interrupted.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted.wait(30)
    assert signal.getsignal(signal.SIGINT) is before


def test_the_reason_is_the_last_of_our_errors_in_sparks_report() -> None:
    report = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in y\n'
        "OSError: the first\n"
        "rocketmq_tw.spark.errors.OptionError: there is no option maxOfsets: did you mean it?\n"
    )
    assert reason(ValueError(report)) == "there is no option maxOfsets: did you mean it?"
    assert reason(ValueError("[PATH_NOT_FOUND] /x\nmore")) == "[PATH_NOT_FOUND] /x"
    javas = "An error occurred while calling o7.start.\n: java.io.IOException: mkdir of /x failed\n"
    assert reason(ValueError(f"{javas}\tat a.B.c(B.java:1)\n")) == "mkdir of /x failed"


def test_settings_of_the_command_line() -> None:
    assert parse_pairs(("a=b=c",), "--conf") == {"a": "b=c"}
    with pytest.raises(click.BadParameter, match="give key=value"):
        parse_pairs(("a",), "--conf")
    assert source_settings("h:1", ("pull.timeout.ms=5",)) == {
        "nameServers": "h:1",
        "pullTimeoutMs": "5",
    }
    with pytest.raises(click.UsageError, match="--name-servers host:port, or set NAMESRV_ADDR"):
        source_settings(None, ())
