import io
import json
from typing import Any

import pytest
import yaml

from rocketmq_tw.admin.output import (
    Column,
    Listing,
    Report,
    local_time,
    number_of,
    plain,
    show,
    show_json,
    show_tables,
)
from rocketmq_tw.admin.tool import warn
from tests.unit.admin.conftest import World


def test_nothing_acts_on_the_terminal(capsys) -> None:
    assert plain("a\x1b[31m\n\x9bü🚀") == "a\\x1b[31m\\n\\x9bü🚀"
    row = {"text": "[bold]\x1b[2J\nnext"}
    show_tables(Report(None, [Listing([Column("Text", "text")], [row])], ["line\x07"]))
    out = capsys.readouterr().out
    assert "[bold]\\x1b[2J\\nnext" in out
    assert "line\\x07\n" in out
    assert "\x1b" not in out


def test_a_warning_is_one_printable_line(capsys: Any) -> None:
    warn("broker-a says \x1b[2J\r\nall is well")
    assert capsys.readouterr().err == "rmqadmin: broker-a says \\x1b[2J all is well\n"


def test_a_column_of_its_own_making_is_escaped_too(capsys: Any) -> None:
    row = {"text": "red\x1b[31m"}
    show_tables(Report(None, [Listing([Column("Text", "text", lambda text: text)], [row])]))
    assert "red\\x1b[31m" in capsys.readouterr().out


def test_json_acts_on_no_terminal_and_says_the_same(capsys: Any) -> None:
    data = {"text": "a\x1b[31m\x9b31m\x7f\u202eü🚀"}
    show_json(Report(data))
    out = capsys.readouterr().out
    assert out.removesuffix("\n").isprintable() and "ü🚀" in out
    assert json.loads(out) == data


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_texts_are_shown_whatever_the_encoding_of_the_output_is(
    world: World, monkeypatch: Any, encoding: str
) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 1 -w 1")
    world.rmqadmin("sendMessage -t T -p", "ü日🚀")

    def shown(arguments: str) -> str:
        with io.BytesIO() as written, monkeypatch.context() as patch:
            output = io.TextIOWrapper(written, encoding)
            patch.setattr("sys.stdout", output)
            outcome = world.rmqadmin(f"consumeMessage -t T {arguments}")
            assert (outcome.status, outcome.err) == (0, "")
            output.flush()
            return written.getvalue().decode(encoding)

    text = "ü日🚀" if encoding == "utf-8" else "ü\\u65e5\\U0001f680"
    assert text in shown("")
    assert shown("--format {body}") == f"{text}\n"
    assert json.loads(shown("--output json"))["messages"][0]["body"] == "ü日🚀"
    assert yaml.safe_load(shown("--output yaml"))["messages"][0]["body"] == "ü日🚀"


@pytest.mark.parametrize(
    ("encoding", "rule", "name"), [("utf-8", "─", "漢字漢"), ("ascii", "-", "abcdef")]
)
def test_columns_stand_below_their_titles(
    monkeypatch: pytest.MonkeyPatch, encoding: str, rule: str, name: str
) -> None:
    written = io.BytesIO()
    output = io.TextIOWrapper(written, encoding, errors="backslashreplace")
    monkeypatch.setattr("sys.stdout", output)
    columns = [Column("Name", "name"), Column("Offset", "offset"), Column("Rate", "rate")]
    rows = [{"name": "ab", "offset": 1, "rate": None}, {"name": name, "offset": 12345678}]
    show_tables(Report(None, [Listing(columns, rows)], ["end"]))
    assert written.getvalue().decode(encoding).split("\n") == [
        "Name       Offset   Rate",
        rule * 24,
        "ab              1",
        f"{name}   12345678",
        "end",
        "",
    ]


def test_a_long_value_stays_on_its_line(capsys) -> None:
    show_tables(Report(None, [Listing([Column("A", "a"), Column("B", "b")], [{"a": "x" * 500}])]))
    assert "x" * 500 in capsys.readouterr().out


def test_values_as_people_read_them() -> None:
    assert [plain(value) for value in (None, True, False, 1.005, 7, "x")] == [
        "", "true", "false", "1.00", "7", "x"
    ]  # fmt: skip


def test_times() -> None:
    assert local_time(0) == local_time(-1) == local_time(None) == ""
    assert local_time(1_700_000_000_123).endswith(":20.123")
    assert local_time(10**18) == str(10**18)


def test_what_there_is_none_of_is_told_beside_the_output(capsys: Any) -> None:
    nothing = Report({"rows": []}, [Listing([Column("A", "a")], [])], nothing="no a is there")
    show(nothing, None)
    assert capsys.readouterr() == ("", "rmqadmin: no a is there\n")
    show(nothing, "json")
    assert capsys.readouterr() == ('{"rows":[]}\n', "")
    # Lines that follow say it themselves.
    show(Report(None, [Listing([Column("A", "a")], [])], ["", "0 of them"]), None)
    assert capsys.readouterr() == ("0 of them\n", "")


def test_one_is_not_many() -> None:
    assert [number_of(count, "entry", "entries") for count in (0, 1, 2)] == [
        "0 entries", "1 entry", "2 entries"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("consumerProgress", "there is no consumer group yet: "),
        ("startMonitoring --rounds 1", "there is no consumer group yet: "),
        ("producer -b 10.0.0.2:10911", "no producer is connected to 10.0.0.2:10911"),
        ("consumeMessage -t TBW102 --format {body}", "nothing found"),
    ],
)
def test_a_command_without_a_result_says_so(world, command: str, said: str) -> None:
    outcome = world.rmqadmin(command)
    assert (outcome.status, outcome.out) == (0, "")
    assert outcome.err.startswith(f"rmqadmin: {said}")
