from rocketmq_tw.admin.output import Column, Listing, Report, local_time, plain, show_tables


def test_nothing_acts_on_the_terminal(capsys) -> None:
    assert plain("a\x1b[31m\n\x9bü🚀") == "a\\x1b[31m\\n\\x9bü🚀"
    row = {"text": "[bold]\x1b[2J\nnext"}
    show_tables(Report(None, [Listing([Column("Text", "text")], [row])], ["line\x07"]))
    out = capsys.readouterr().out
    assert "[bold]\\x1b[2J\\nnext" in out
    assert "line\\x07\n" in out
    assert "\x1b" not in out


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
