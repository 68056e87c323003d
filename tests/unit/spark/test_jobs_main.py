"""How `rmqspark` tells what is wrong, before Spark or a server is asked."""

from __future__ import annotations

import pytest

from rocketmq_tw.spark.jobs.main import main


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        ("nope", 2, "No such command 'nope'"),
        ("lag T -g g -n a\x1b[2Jb", 1, "nameServers has 'a\\x1b[2Jb'"),
        ("lag T", 2, "Missing option '--group' / '-g'"),
        ("lag T -g g", 2, "no name server is given"),
        ("lag T -g g -n somewhere", 1, "nameServers has 'somewhere': give host:port"),
        ("lag T -g a/b -n a:1", 1, "the option group: the group 'a/b' has an illegal character"),
        ("ingest T out -n a:1 -o pullBatchSize=x", 1, "give a whole number of at least 1"),
        ("replay out -n a:1 --rate 0", 2, "0 is not in the range x>=1"),
        ("stats T -n a:1 -o nix", 2, "--option nix: give key=value"),
    ],
)
def test_a_wrong_call_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    status: int,
    line: str,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (status, "")
    assert err.startswith("rmqspark: ")
    assert err.count("\n") == 1
    assert line in err
    assert err.removesuffix("\n").isprintable()


def test_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["-h"])
    assert not ended.value.code
    assert "ingest" in capsys.readouterr().out
