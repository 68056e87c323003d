"""`rmqspark ingest`: what its two queries are told, without a Spark."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from rocketmq_tw.spark.jobs import ingest as ingest_module
from rocketmq_tw.spark.jobs.ingest import ingest
from rocketmq_tw.spark.jobs.running import Job


class Reader:
    """`spark.readStream`: keeps the options of each source."""

    def __init__(self) -> None:
        self.sources: list[dict[str, Any]] = []

    def format(self, name: str) -> "Reader":
        return self

    def options(self, **options: Any) -> "Reader":
        self.sources.append(options)
        return self

    def load(self) -> None:
        pass


@pytest.mark.parametrize("own", [[], ["-o", "commitOffsets=true"]])
def test_only_what_is_written_to_the_output_is_committed(
    monkeypatch: pytest.MonkeyPatch, own: list[str]
) -> None:
    reader = Reader()
    spark = SimpleNamespace(readStream=reader)
    monkeypatch.setattr(Job, "session", lambda job: nullcontext(spark))
    monkeypatch.setattr(Job, "check_source", lambda *of, **options: None)
    for name in ("_parsed", "_watch"):
        monkeypatch.setattr(ingest_module, name, lambda *of, **options: None)
    monkeypatch.setattr(ingest_module, "Ingestion", lambda *of, **options: None)
    arguments = ["t", "out", "-n", "a:1", "-o", "group=g", *own]
    result = CliRunner().invoke(ingest, arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    good, bad = (source.get("commitOffsets") for source in reader.sources)
    assert good == ("true" if own else None)
    assert bad is False
