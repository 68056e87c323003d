"""What a peer sends stands in the log as text, wherever the log goes."""

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import (
    LegacyLogObserverWrapper,
    LogLevel,
    LogPublisher,
    globalLogPublisher,
    textFileLogObserver,
)
from twisted.python.failure import Failure
from twisted.python.log import FileLogObserver

from rocketmq_tw.services.process import escape_event, escape_log
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import RegisterBrokerRequestHeader
from tests.support.remoting import ask
from tests.support.wait import wait_until

HOSTILE = "a\r\x1b[2Jb\x07\x9b\u2028\u202ec\ud800d"
ESCAPED = r"a\r\x1b[2Jb\x07\x9b\u2028\u202ec\ud800d"


def modern(file: io.StringIO) -> Any:
    return textFileLogObserver(file, timeFormat=None)


def of_twistd(file: io.StringIO) -> Any:
    return LegacyLogObserverWrapper(FileLogObserver(file).emit)


@pytest.fixture(params=[modern, of_twistd])
def log(request: pytest.FixtureRequest) -> Callable[..., str]:
    """The text that an event becomes."""

    def written(**event: Any) -> str:
        file = io.StringIO()
        publish = LogPublisher(escape_event, request.param(file))
        publish({"log_level": LogLevel.warn, "log_time": 0, "log_namespace": "space", **event})
        return file.getvalue()

    return written


def test_in_a_field(log: Callable[..., str]) -> None:
    line = log(log_format="from {peer}!", peer=HOSTILE)
    assert line.endswith(f"from {ESCAPED}!\n")
    assert line.count("\n") == 1


def test_a_field_has_one_line(log: Callable[..., str]) -> None:
    line = log(log_format="{peer}", peer="one\n1970-01-01 [-] two")
    assert line.endswith(r"one\n1970-01-01 [-] two" + "\n") and line.count("\n") == 1


def test_in_what_is_no_text(log: Callable[..., str]) -> None:
    assert log(log_format="{error}", error=ValueError(HOSTILE)).endswith(f"{ESCAPED}\n")


def test_in_a_traceback(log: Callable[..., str]) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        text = log(log_format="while {what}", what="serving", log_failure=Failure())
    assert "while serving\n" in text
    assert f"ValueError: {ESCAPED}\n" in text
    assert "test_log_escapes.py" in text


def test_all_else_stays_as_it_is() -> None:
    failure = Failure(ValueError("plain\n\ttext"))
    event = {"log_format": "ä {here}\n", "here": "\tb", "log_failure": failure, "count": 3}
    before = dict(event)
    escape_event(event)
    assert event == before


@pytest.fixture
def publisher() -> Iterator[None]:
    yield
    globalLogPublisher.removeObserver(escape_event)


def test_it_is_put_into_the_process_once(publisher: None) -> None:
    events: list[dict[str, Any]] = []
    escape_log()
    escape_log()
    globalLogPublisher.addObserver(events.append)
    globalLogPublisher({"log_format": "{a}", "a": "\x1b"})
    globalLogPublisher.removeObserver(events.append)
    assert [event["a"] for event in events] == [r"\x1b"]
    globalLogPublisher.removeObserver(escape_event)
    globalLogPublisher({"log_format": "{a}", "a": "\x1b"})


START = ("--pidfile=", "rmq-namesrv", "-o", "bindAddress=127.0.0.1", "-o", "listenPort=0")
LISTENING = re.compile(r"listening on (127\.0\.0\.1:\d+)")


#: What the name server logs of it, up to its address.
REGISTERED = r"broker b\r\x1b[31m\nforged 0 of c\x1b registered"


def register(address: str) -> None:
    """A broker with a hostile name registers with the name server, which logs it."""
    header = RegisterBrokerRequestHeader(
        broker_name="b\r\x1b[31m\nforged",
        broker_addr="127.0.0.1:1",
        cluster_name="c\x1b",
        ha_server_addr="127.0.0.1:2",
        broker_id=0,
    )
    ask(address, RemotingCommand.request(RequestCode.REGISTER_BROKER, header), 10)


def test_a_servers_output(twistd: Callable[..., Any]) -> None:
    server = twistd(*START)
    register(server.wait_for(LISTENING.pattern)[1])
    assert server.wait_for(r"broker b.*registered")[0] == REGISTERED


def test_a_servers_log_file(twistd: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    twistd("--logfile", "server.log", *START)

    def found(pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.search(file.read_bytes().decode()) if file.exists() else None

    register(wait_until(lambda: found(LISTENING), "an address")[1])
    said = wait_until(lambda: found(re.compile(r"broker b.*registered")), "the line")
    assert said[0] == REGISTERED
