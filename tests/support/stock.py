"""Stock name servers and brokers of either version as processes of a test."""

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.jars import class_path, java_command, stock_jars
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.wait import LIMIT, PeerFailed

#: 4.9 reads its logging from ROCKETMQ_HOME/conf and does not start without it.
_LOGBACK = """<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d %-5level %logger - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="FILE"/></root>
</configuration>
"""

#: Stock gives a connection 3 s and most answers 5 s, which a busy machine may need for others: what
#: administrators ask in vain is asked again.
ATTEMPTS = 4
UNANSWERED = re.compile("Remoting(Connect|SendRequest|Timeout)Exception")

#: What a stock 5.x broker of a test has set differently unless the test says otherwise. Its thread
#: for transaction metrics spins for the whole of its first interval, 3 s by default, and one with a
#: timer compares all 37 MiB of its wheel with the file at each flush, once a second by default; a
#: stop writes it too.
_QUIET_5X = {
    "timerWheelEnable": "false",
    "transactionMetricFlushInterval": "200",
    "timerFlushIntervalMs": "60000",
}

_NAME_SERVER_HEAP_MB = 128
_BROKER_HEAP_MB = 512
_TOOL_HEAP_MB = 64
_TOOLS = "org.apache.rocketmq.tools.command.MQAdminStartup"


def stock_java(
    version: str,
    home: Path,
    heap_mb: int,
    main_class: str,
    profile: str | None = None,
    tls_mode: str = "disabled",
    more: Sequence[Path] = (),
) -> list[str]:
    """The command line that runs a class of stock's with `home` as its home; `profile` as for
    `stock_jars`, `tls_mode` as for `java_command`, `more` as for `class_path`."""
    conf = home / "conf"
    conf.mkdir(exist_ok=True)
    if version.startswith("4."):
        for name in ("broker", "namesrv", "tools"):
            text = _LOGBACK.format(file=home / "stock.log")
            (conf / f"logback_{name}.xml").write_text(text)
    return [
        *java_command(heap_mb, tls_mode),
        "-XX:MaxDirectMemorySize=512m",
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        *class_path(stock_jars(version, profile), *more),
        main_class,
    ]


def run_mqadmin(version: str, home: Path, *arguments: str) -> str:
    """What a tool of stock's prints, in a process of its own: one of 4.9 that fails ends it."""
    command = [*stock_java(version, home, _TOOL_HEAP_MB, _TOOLS), *arguments]
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            command,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
        )
        if not UNANSWERED.search(done.stdout):
            break
    if done.returncode:
        raise PeerFailed(f"mqadmin {version} {arguments[0]}: {done.returncode}: {done.stdout}")
    return done.stdout


@contextmanager
def endless_mqadmin(version: str, home: Path, *arguments: str) -> Iterator[Callable[[], str]]:
    """A tool of stock's that runs until it is killed, as it is at the end. Yields what returns all
    that it has printed and logged so far."""
    printed = home / "printed.txt"
    command = [*stock_java(version, home, _TOOL_HEAP_MB, _TOOLS), *arguments]
    with printed.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield lambda: "".join(
            path.read_text(errors="replace") for path in (printed, *stock_logs(home))
        )
    finally:
        process.kill()
        process.wait()


def stock_logs(home: Path) -> list[Path]:
    logs = [home / "stock.log"]
    logs += sorted((home / "logs" / "rocketmqlogs").glob("**/*.log"))
    return [path for path in logs if path.exists() and path.stat().st_size]


class StockNameServer(NameServerProcess):
    """NamesrvStartup of `version`."""

    tls_mode = "disabled"

    def __init__(self, version: str, home: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(f"namesrv-{version}", home, settings)
        self.version = version

    def command(self) -> list[str]:
        main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
        heap = _NAME_SERVER_HEAP_MB
        java = stock_java(self.version, self.home, heap, main_class, tls_mode=self.tls_mode)
        return [*java, "-c", str(self.write_properties())]

    def log_files(self) -> list[Path]:
        return [*super().log_files(), *stock_logs(self.home)]


class StockBroker(BrokerProcess):
    """BrokerStartup of `version`."""

    tls_mode = "disabled"

    def __init__(
        self,
        version: str,
        name: str,
        home: Path,
        name_servers: list[NameServerProcess],
        *,
        settings: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        """`options` as for every `BrokerProcess`."""
        quiet = {} if version.startswith("4.") else _QUIET_5X
        super().__init__(name, home, name_servers, settings=quiet | (settings or {}), **options)
        self.version = version

    def command(self) -> list[str]:
        main_class = "org.apache.rocketmq.broker.BrokerStartup"
        heap = _BROKER_HEAP_MB
        java = stock_java(self.version, self.home, heap, main_class, tls_mode=self.tls_mode)
        return [*java, "-c", str(self.write_properties())]

    def log_files(self) -> list[Path]:
        return [*super().log_files(), *stock_logs(self.home)]
