"""The same on an engine that spreads: Spark's standalone cluster with two workers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rocketmq_tw.testing.spark import StandaloneCluster, environment

PROGRAM = """
import json, sys
from pathlib import Path
from rocketmq_tw.testing.spark import run_to_end, session

master, name_servers, topic, copy, home = sys.argv[1:]
small = {"spark.executor.memory": "512m", "spark.cores.max": "2", "spark.driver.memory": "512m"}
spark = session(Path(home), master, **small)

def rows(topic):
    reader = spark.read.format("rocketmq").options(nameServers=name_servers, topic=topic)
    return reader.option("minPartitions", 8).load()

frame = rows(topic)
hosts = frame.rdd.mapPartitions(lambda part: [__import__("os").environ["SPARK_EXECUTOR_DIRS"]])
executors = len(set(hosts.collect()))
frame.select("body", "tags").write.format("rocketmq").options(
    nameServers=name_servers, topic=copy).mode("append").save()
stream = spark.readStream.format("rocketmq").options(
    nameServers=name_servers, topic=copy, startingOffsets="earliest", maxOffsetsPerTrigger=100)
writer = (stream.load().writeStream.format("parquet").trigger(availableNow=True)
    .option("checkpointLocation", home + "/checkpoint").option("path", home + "/out"))
run_to_end(writer.start)
bodies = [row[0] for row in spark.read.parquet(home + "/out").selectExpr("string(body)").collect()]
print(json.dumps({"executors": executors, "bodies": bodies}))
"""


@pytest.mark.timeout(600)
def test_reads_writes_and_streams_on_two_workers(ours: Any, tmp_path: Path) -> None:
    topic, copy = ours.filled(300, tags="red"), ours.name()
    with StandaloneCluster(tmp_path / "engine") as engine:
        program = [sys.executable, "-c", PROGRAM, engine.master, ours.name_servers, topic, copy]
        done = subprocess.run(
            [*program, str(tmp_path / "job")],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["executors"] == 2
    assert sorted(result["bodies"]) == sorted(f"m{number}" for number in range(300))
