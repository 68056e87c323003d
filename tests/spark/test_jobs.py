"""The ready jobs, as their commands run them."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rocketmq_tw.client.message import Message
from rocketmq_tw.client.preparing import Preparer, process_unique_ids, send_command
from rocketmq_tw.message.compression import CompressionType, compression_flag
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.remoting import ask
from tests.support.spark import rmqspark


def rows(spark: Any, path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.parquet(str(path)).select(*columns).collect())


def test_ingest_goes_on_where_it_stopped(topics: Any, spark: Any, tmp_path: Path) -> None:
    topic, out = topics.filled(300, tags="red"), tmp_path / "out"
    command = ["ingest", topic, str(out), "-n", topics.name_servers, "--max-per-batch", "100"]
    assert f"good: read 300 messages, wrote 300 to {out}" in rmqspark(*command)
    topics.fill(topic, ["later"])
    _send_unpackable(topics, topic)
    said = rmqspark(*command)
    assert f"good: read 2 messages, wrote 1 to {out}" in said
    assert f"bad: wrote 1 to {out}.bad" in said
    assert [body for body, _ in rows(spark, Path(f"{out}.bad"), "body", "reason")] == [
        b"not packed"
    ]
    found = spark.read.parquet(str(out))
    bodies = [row[0] for row in found.selectExpr("string(body)").collect()]
    assert sorted(bodies) == sorted([*(f"m{number}" for number in range(300)), "later"])
    assert f"topic={topic}" in os.listdir(out)
    assert {"day", "msgId", "properties", "storeTimestamp"} <= set(found.columns)


def test_ingest_puts_bad_bodies_aside(ours: Any, spark: Any, tmp_path: Path) -> None:
    topic, out = ours.name(), tmp_path / "out"
    ours.fill(topic, ['{"n": 1}', "no json", '{"n": "word"}', '{"n": 2}', "null"])
    _send_bytes(ours, topic, b"\xff\xfe")
    shape = ["--format", "json", "--schema", "n int"]
    rmqspark("ingest", topic, str(out), "-n", ours.name_servers, *shape)
    assert rows(spark, out, "value.n") == [(1,), (2,)]
    bad = spark.read.parquet(f"{out}.bad").selectExpr("hex(body)", "reason").collect()
    reasons = {bytes.fromhex(body): reason for body, reason in bad}
    assert reasons == {
        b"no json": "the body is no JSON of n int",
        b'{"n": "word"}': "the body is no JSON of n int",
        b"null": "the body is no JSON of n int",
        b"\xff\xfe": "the body is no UTF-8",
    }


def test_replay_sends_what_was_ingested(ours: Any, spark: Any, tmp_path: Path) -> None:
    topic, copy, out = ours.filled(60, tags="red", keys=["k"]), ours.name(), tmp_path / "out"
    rmqspark("ingest", topic, str(out), "-n", ours.name_servers)
    command = ["replay", str(out), "-n", ours.name_servers, "--topic", copy]
    planned = rmqspark(*command, "--dry-run", "--rate", "30")
    assert f"{copy}: 60 messages" in planned
    assert "2 s at 30 messages a second" in planned
    ours.fill(copy, ["first"])
    assert ours.bodies(copy) == ["first"]
    assert "sent 60 messages" in rmqspark(*command, "--rate", "30")
    times = [
        row[0] for row in ours.reader(spark.read, copy).load().select("storeTimestamp").collect()
    ]
    assert (max(times) - sorted(times)[1]).total_seconds() >= 1.5
    assert sorted(ours.bodies(copy)) == sorted([*(f"m{n}" for n in range(60)), "first"])


def test_replay_puts_bad_rows_aside(ours: Any, spark: Any, tmp_path: Path) -> None:
    topic, source = ours.name(), tmp_path / "rows"
    made = [("good", ["k"]), (None, None), ("x", ["a b"])]
    frame = spark.createDataFrame(made, "body string, keys array<string>")
    frame.write.parquet(str(source))
    said = rmqspark("replay", str(source), "-n", ours.name_servers, "--topic", topic)
    assert "sent 1 messages" in said
    assert ours.bodies(topic) == ["good"]
    reasons = [reason for (reason,) in rows(spark, Path(f"{source}.bad"), "reason")]
    assert reasons[0].startswith("body is null")
    assert reasons[1].startswith("keys has 'a b'")


def test_stats_by_topic_tag_and_window(ours: Any, spark: Any, tmp_path: Path) -> None:
    topic = ours.filled(30, tags="<red>")
    ours.fill(topic, ["12345"] * 10, tags="green")
    page = tmp_path / "page.html"
    said = rmqspark("stats", topic, "-n", ours.name_servers, "--json", "--html", str(page))
    table = json.loads(said[said.index("[{") :])
    by_tag: dict[str, list[int]] = {}
    for row in table:
        total = by_tag.setdefault(row["tag"], [0, 0])
        total[0] += row["messages"]
        total[1] += row["bytes"]
        assert 0 <= row["p50 ms"] <= row["p99 ms"] <= row["most ms"]
    assert by_tag == {"<red>": [30, 80], "green": [10, 50]}
    html = page.read_text()
    assert "&lt;red&gt;" in html
    assert "<polyline" in html
    assert "http" not in html
    assert "<script" not in html


def test_lag_of_groups_over_time(ours: Any, tmp_path: Path) -> None:
    topic, page = ours.filled(40), tmp_path / "lag.html"
    queue = ours.queues(topic)[0]
    ours.client.commit_offset(queue, 4, "half")
    command = ["lag", topic, "-g", "half", "-g", "none", "-n", ours.name_servers]
    said = rmqspark(*command, "--samples", "2", "--interval", "0.01", "--json", "--html", str(page))
    samples = json.loads(said[said.index("[{") :])
    assert len(samples) == 2
    behind: dict[str, int] = {"half": 0, "none": 0}
    for item in samples[-1]["queues"]:
        behind[item["group"]] += item["lag"]
    assert behind == {"half": 36, "none": 40}
    assert "half of" in page.read_text()


def test_lag_keeps_what_it_has_when_it_is_interrupted(
    ours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rocketmq_tw.spark.jobs.lag.sleep", interrupted)
    command = ["lag", ours.filled(40), "-g", "none", "-n", ours.name_servers]
    said = rmqspark(*command, "--samples", "60")
    assert "none of" in said
    assert "stopped" in said
    assert "lag at" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ingest", "t", "OUT", "-n", "127.0.0.1:1"], "check the option nameServers"),
        (["ingest", "no-such-topic", "OUT"], "check the option topic"),
        (["ingest", "t", "OUT", "-o", "maxOfsets=3"], "did you mean"),
        (["lag", "no-such-topic", "-g", "g"], "check the option topic"),
        (["replay", "OUT/nothing"], "PATH_NOT_FOUND"),
    ],
)
def test_a_mistake_is_one_line(
    ours: Any, spark: Any, tmp_path: Path, arguments: list[str], said: str
) -> None:
    given = [part.replace("OUT", str(tmp_path)) for part in arguments]
    if "-n" not in given:
        given += ["-n", ours.name_servers]
    told = rmqspark(*given, fails=True)
    assert said in told
    assert "Traceback" not in told


def _send_unpackable(topics: Any, topic: str) -> None:
    """A message that says its body is packed, which it is not."""
    queue = topics.queues(topic)[0]
    prepared = Preparer(process_unique_ids()).prepare(Message(topic, b"not packed"))
    prepared = prepared._replace(sys_flag=compression_flag(CompressionType.ZLIB))
    command = send_command(prepared, "test", queue, int(time.time() * 1000))
    answer = ask(topics.cluster.broker.address, command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def _send_bytes(topics: Any, topic: str, body: bytes) -> None:
    topics.client.send(Message(topic, body))
