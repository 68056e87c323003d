"""Spark's standalone cluster with two workers: reads and streams that spread."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark import StandaloneCluster, environment

PROGRAM = """
import json, sys, time
from pathlib import Path
from click import ClickException
from pyspark.streaming import StreamingContext
from pyspark_rocketmq.dstreams import createDirectStream
from rocketmq_tw.spark.jobs.command_line import cli
from tests.support.spark import ATTEMPTS, TOO_SLOW, session

master, name_servers, topic, copy, home = sys.argv[1:]
small = {"spark.executor.memory": "512m", "spark.cores.max": "2", "spark.driver.memory": "512m"}
# On a busy machine one executor might do all before the other one is there.
small |= {"spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s"}
spark = session(Path(home), master, **small)

def rows(topic):
    reader = spark.read.format("rocketmq").options(nameServers=name_servers, topic=topic)
    return reader.option("minPartitions", 8).load()

frame = rows(topic)
hosts = frame.rdd.mapPartitions(lambda part: [__import__("os").environ["SPARK_EXECUTOR_DIRS"]])
executors = len(set(hosts.collect()))
frame.select("body", "tags").write.format("rocketmq").options(
    nameServers=name_servers, topic=copy).mode("append").save()
def job(*arguments):
    for attempt in range(ATTEMPTS):
        try:
            return cli([*arguments, "-n", name_servers], standalone_mode=False)
        except ClickException as error:
            # Spark gave the stream up before it began.
            if TOO_SLOW not in str(error) or attempt == ATTEMPTS - 1:
                raise

job("ingest", copy, home + "/out", "--max-per-batch", "200")
job("stats", copy, "--html", home + "/page.html", "--window", "1 day")
bodies = [row[0] for row in spark.read.parquet(home + "/out").selectExpr("string(body)").collect()]

direct = set()
ssc = StreamingContext(spark.sparkContext, 0.5)
createDirectStream(ssc, {"nameServers": name_servers, "topic": copy, "group": "direct",
    "startingOffsets": "earliest"}).map(lambda record: record.body.decode()).foreachRDD(
    lambda rdd: direct.update(rdd.collect()))
ssc.start()
limit = time.monotonic() + 600
while len(direct) < len(bodies) and time.monotonic() < limit:
    ssc.awaitTerminationOrTimeout(0.1)
ssc.stop(stopSparkContext=False)
print(json.dumps({"executors": executors, "bodies": bodies, "direct": sorted(direct)}))
"""


@pytest.mark.timeout(2400)
def test_reads_writes_streams_and_jobs_on_two_workers(ours: Any, tmp_path: Path) -> None:
    topic, copy = ours.filled(300, tags="red"), ours.name()
    with StandaloneCluster(tmp_path / "engine") as engine:
        program = [sys.executable, "-c", PROGRAM, engine.master, ours.name_servers, topic, copy]
        done = subprocess.run(
            [*program, str(tmp_path / "job")],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=2000,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["executors"] == 2
    sent = sorted(f"m{number}" for number in range(300))
    assert sorted(result["bodies"]) == sent
    assert result["direct"] == sent
    assert "300" in (tmp_path / "job" / "page.html").read_text()
