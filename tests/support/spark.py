"""Spark for tests and tools: sessions that use this Python, and a standalone cluster."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyspark
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.spark.dstreams.control import ControlError, confirm
from rocketmq_tw.spark.jobs.command_line import cli
from tests.support.jars import PROJECT
from tests.support.ports import LOOPBACK, ReservedPort
from tests.support.processes import STOP_LIMIT, ServerProcess
from tests.support.running import Running
from tests.support.wait import wait_until

#: A test's JVM lives for seconds, so it should start fast rather than run fast.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
#: Nor is a query of a few rows worth a compiler's time.
_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.extraJavaOptions": _SHORT_LIVED,
    "spark.executor.extraJavaOptions": _SHORT_LIVED,
}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    # Tests count the rows of all batches, and a slow machine makes many small ones.
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


def environment() -> dict[str, str]:
    """For processes that use Spark: workers run this Python, with the project on its path."""
    path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    return os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": path,
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_HOME": _spark_home(),
    }


@cache
def _spark_home() -> str:
    """Spark's home without its archive of PySpark, so that each worker that starts takes the
    installed PySpark, which is compiled, and not that one, which it would compile."""
    installed = Path(pyspark.__file__).parent
    home = Path(tempfile.mkdtemp(prefix="spark-home-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for name in ("bin", "sbin", "jars"):
        (home / name).symlink_to(installed / name)
    return str(home)


def session(
    home: Path, master: str = "local[2]", *, short_lived: bool = True, **settings: Any
) -> Any:
    """A new session of this process; its files are under `home`."""
    from pyspark.sql import SparkSession

    os.environ.update(environment())
    builder = SparkSession.builder.master(master).appName("rocketmq_tw")
    chosen = _SETTINGS | {
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
    }
    if short_lived:
        chosen |= _FEW_ROWS
    for name, value in (chosen | settings).items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def patient_client(name_servers: str, **options: Any) -> BlockingClient:
    """A client that waits where a machine is busy: a send that it gave up could come twice."""
    return BlockingClient(name_servers, connect_timeout=30, timeout=60, **options)


#: Spark gives a process for a stream's offsets ten seconds to start, fixed in its code; on a busy
#: machine that may be too short.
TOO_SLOW = "Python worker failed to connect back"
ATTEMPTS = 8


def run_to_end(start: Callable[[], Any], limit: float = 300) -> Any:
    """The query that `start` starts, once it has ended without an error; `limit` in seconds. One
    that Spark gave up before it began is started again, as its checkpoint allows."""
    for attempt in range(ATTEMPTS):
        query = start()
        try:
            assert query.awaitTermination(limit), f"the query did not end in {limit} s"
        except StreamingQueryException as error:
            if TOO_SLOW not in str(error) or attempt == ATTEMPTS - 1:
                raise
        else:
            break
    return query


def rmqspark(*arguments: str, fails: bool = False) -> str:
    """What the command says, run in this process and its session; called again where Spark gave a
    stream up before it began."""
    for _ in range(ATTEMPTS):
        result = CliRunner().invoke(cli, arguments)
        if TOO_SLOW not in result.output:
            break
    assert (result.exit_code != 0) == fails, (result.output, result.exception)
    return result.output


_DAEMONS = {
    "SPARK_DAEMON_MEMORY": "256m",
    # The REST port would be a fixed one.
    "SPARK_DAEMON_JAVA_OPTS": f"{_SHORT_LIVED} -Dspark.master.rest.enabled=false",
}


class StandaloneCluster(Running):
    """Spark's own master and `workers` workers with a core each, as processes of this machine."""

    def __init__(self, home: Path, workers: int = 2) -> None:
        self._home = home
        self._workers = workers
        self._port = ReservedPort()
        self._processes: list[subprocess.Popen[bytes]] = []
        home.mkdir(parents=True, exist_ok=True)

    @property
    def master(self) -> str:
        return f"spark://{self._port.address}"

    def start(self) -> None:
        """Returns once all workers are registered."""
        main = ["org.apache.spark.deploy.master.Master", "--host", LOOPBACK]
        self._launch("master", [*main, "--port", str(self._port.number), "--webui-port", "0"])
        self._wait_logged("master", "I have been elected leader", 1)
        for number in range(self._workers):
            main = ["org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "--cores", "1"]
            options = ["--memory", "768m", "--webui-port", "0"]
            work = ["--work-dir", str(self._home / f"work-{number}")]
            self._launch(f"worker-{number}", [*main, *options, *work, self.master])
        self._wait_logged("master", "Registering worker", self._workers)

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._port.release()

    def _launch(self, name: str, arguments: list[str]) -> None:
        home = environment()["SPARK_HOME"]
        with self._log(name).open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [f"{home}/bin/spark-class", *arguments],
                    cwd=self._home,
                    env=environment() | _DAEMONS,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )

    def _log(self, name: str) -> Path:
        return self._home / f"{name}.log"

    def _wait_logged(self, name: str, text: str, times: int) -> None:
        def seen() -> bool:
            return self._log(name).read_text(errors="replace").count(text) >= times

        wait_until(seen, f"{text!r} in {self._log(name)}", interval=0.1)


class SparkReceiver(ServerProcess):
    """`twistd -n rmq-spark-receiver`; `address` is its data port, `control` the other."""

    def __init__(self, home: Path, name_servers: str, topic: str, group: str) -> None:
        super().__init__("spark-receiver", home)
        self._name_servers, self._topic, self._group = name_servers, topic, group
        self._data, self._control = ReservedPort(), ReservedPort()

    @property
    def address(self) -> str:
        return self._data.address

    @property
    def control(self) -> str:
        return self._control.address

    def command(self) -> list[str]:
        start = "from twisted.scripts.twistd import run; run()"
        command = [sys.executable, "-c", start, "-n", "--pidfile=", "rmq-spark-receiver"]
        command += ["-n", self._name_servers, "-t", self._topic, "-g", self._group]
        return [*command, "-d", str(self._data.number), "-c", str(self._control.number)]

    def environment(self) -> dict[str, str]:
        return environment() | {"PYTHONUNBUFFERED": "1"}

    def ready(self) -> bool:
        try:
            confirm(self.control, [], timeout=2.0)
        except ControlError:
            return False
        return True

    def close(self) -> None:
        super().close()
        self._data.release()
        self._control.release()
