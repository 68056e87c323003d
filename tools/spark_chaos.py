"""Kills what moves messages and counts what arrived.

    python tools/spark_chaos.py ingest   [--servers KIND] [--messages N] [--kills 3]
    python tools/spark_chaos.py direct   [--servers KIND] [--messages N] [--kills 3]
    python tools/spark_chaos.py receiver [--servers KIND] [--messages N] [--kills 3]

`ingest` runs `rmqspark ingest` into Parquet. `kills` times in the middle the driver is killed (-9,
with its JVM) and started again, then, after a bit of progress, the broker; each message has to be
in Parquet once. `direct` and `receiver` do the same to a DStreams program (receiver: its service is
killed as well, at the end); each message has to be in the output at least once.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.message import Message
from tests.support.cluster import Cluster
from tests.support.spark import SparkReceiver, environment, session
from tests.support.wait import wait_until

SETTINGS = {
    "maxTransferCountOnMessageInMemory": "4096",
    "maxTransferBytesOnMessageInMemory": str(4 * 1024 * 1024),
    "mappedFileSizeCommitLog": str(256 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 300_000),
}
TOPIC, GROUP = "chaos", "chaos-group"
LIMIT = 900.0


class Driver:
    """A process group: a Python driver and its JVM."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=environment(), stdout=log, stderr=log, start_new_session=True
            )

    @property
    def ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(LIMIT)


def fill(name_servers: str, count: int) -> None:
    with BlockingClient(name_servers) as client:
        for at in range(0, count, 500):
            bodies = range(at, min(at + 500, count))
            client.send_batch([Message(TOPIC, b"%09d" % number) for number in bodies])


def bodies_of(count: int) -> set[str]:
    """All of the same length, so that half a line of a job that was killed is none of them."""
    return {f"{number:09d}" for number in range(count)}


def progress_of_ingest(home: Path) -> Callable[[], int]:
    """Batches that Spark's sink has taken."""
    log = home / "out" / "_spark_metadata"
    return lambda: len([name for name in os.listdir(log) if name.isdigit()]) if log.is_dir() else 0


def progress_of_stream(home: Path) -> Callable[[], int]:
    """Lines that the job wrote, in tens of thousands."""
    out = home / "lines"
    return lambda: out.read_bytes().count(b"\n") // 10_000 if out.exists() else 0


def ingest(home: Path, cluster: Cluster, kills: int) -> tuple[Counter[str], int]:
    count_of = progress_of_ingest(home)
    start = "from rocketmq_tw.spark.jobs.main import main; main()"
    command = [sys.executable, "-c", start, "ingest", TOPIC, str(home / "out")]
    command += ["-n", cluster.namesrv, "--master", "local[2]", "--max-per-batch", "20000"]
    command += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    driver = Driver(command, home / "driver.log")
    done = _kill_in_the_middle(driver, cluster, count_of, kills)
    while driver.wait() != 0:
        driver.start()
    spark = session(home / "spark")
    rows = spark.read.parquet(str(home / "out")).selectExpr("string(body) as body").collect()
    spark.stop()
    return Counter(row.body for row in rows), done


def stream(
    kind: str, home: Path, cluster: Cluster, kills: int, count: int
) -> tuple[Counter[str], int]:
    command = [sys.executable, __file__, f"run-{kind}", "--home", str(home)]
    command += ["--name-servers", cluster.namesrv]
    service = SparkReceiver(home / "service", cluster.namesrv, TOPIC, GROUP)
    if kind == "receiver":
        service.start()
        command += ["--data", service.address, "--control", service.control]
    driver = Driver(command, home / "driver.log")
    done = _kill_in_the_middle(driver, cluster, progress_of_stream(home), kills)
    if kind == "receiver":
        service.kill()
        service.start()
        done += 1
    out = home / "lines"

    expected = bodies_of(count)

    def all_there() -> bool:
        if driver.ended:
            driver.start()
        return expected <= set(out.read_text().split())

    try:
        wait_until(all_there, f"{count} messages", limit=LIMIT, interval=1.0)
    finally:
        driver.kill()
        service.close()
    return Counter(out.read_text().split()), done


def _kill_in_the_middle(
    driver: Driver, cluster: Cluster, progress: Callable[[], int], kills: int
) -> int:
    """Kills the driver after a bit of progress, then the broker under a running driver; so often.
    Raises `SystemExit` where the job was done before all that."""

    def goes_on(before: int) -> bool:
        if driver.ended:
            if driver.wait() == 0:
                sys.exit("the job ended before all kills: give it more messages")
            driver.start()
        return progress() > before

    def go_on() -> None:
        before = progress()
        wait_until(lambda: goes_on(before), "progress", limit=LIMIT)

    driver.start()
    for _ in range(kills):
        go_on()
        driver.kill()
        driver.start()
        go_on()
        cluster.broker.kill()
        time.sleep(1.0)
        cluster.broker.start()
    return 2 * kills


def run_stream(kind: str, chosen: argparse.Namespace) -> None:
    """The DStreams program under test; it runs until it is killed."""
    from pyspark.streaming import StreamingContext

    from pyspark_rocketmq import dstreams

    home = Path(chosen.home)
    options = {
        "nameServers": chosen.name_servers,
        "topic": TOPIC,
        "group": GROUP,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 20_000,
    }
    lines, data, control = str(home / "lines"), chosen.data, chosen.control

    def output(rdd: object) -> None:
        bodies = [record.body for record in rdd.collect()]  # type: ignore[attr-defined]
        with open(lines, "ab") as file:
            file.write(b"".join(b"\n" + body for body in bodies) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if control is None:
            dstreams.commitAsync(options, dstreams.offsetRanges(rdd))
        else:
            dstreams.confirmRecords(rdd, control)

    context = session(home / "spark").sparkContext

    def create() -> StreamingContext:
        ssc = StreamingContext(context, 1)
        if kind == "direct":
            dstreams.createDirectStream(ssc, options).foreachRDD(output)
            ssc.checkpoint(str(home / "checkpoint"))
        else:
            dstreams.createStream(ssc, data).foreachRDD(output)
        return ssc

    if kind == "direct":
        ssc = StreamingContext.getOrCreate(str(home / "checkpoint"), create)
    else:
        ssc = create()
    ssc.start()
    ssc.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    jobs = ("ingest", "direct", "receiver", "run-direct", "run-receiver")
    parser.add_argument("job", choices=jobs)
    parser.add_argument("--servers", default="ours", choices=("ours", "4.9.7", "5.3.3"))
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--kills", type=int, default=3)
    for name in ("--home", "--name-servers", "--data", "--control"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.job.startswith("run-"):
        run_stream(chosen.job.removeprefix("run-"), chosen)
        return
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        kinds = [chosen.servers]
        with Cluster.of(home, name_servers=kinds, brokers=kinds, settings=SETTINGS) as cluster:
            fill(cluster.namesrv, chosen.messages)
            started = time.monotonic()
            if chosen.job == "ingest":
                found, done = ingest(home, cluster, chosen.kills)
            else:
                found, done = stream(chosen.job, home, cluster, chosen.kills, chosen.messages)
            result = {
                "job": chosen.job,
                "servers": chosen.servers,
                "messages": chosen.messages,
                "kills": done,
                "seconds": round(time.monotonic() - started),
                "missing": len(bodies_of(chosen.messages) - found.keys()),
                "more than once": sum(count > 1 for count in found.values()),
            }
    print(json.dumps(result))
    if result["missing"] or (chosen.job == "ingest" and result["more than once"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
