"""What docs/spark.md shows is run as it stands; only addresses and directories are the test's."""

import ast
import itertools
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.streaming import StreamingContext

from rocketmq_tw.client.errors import NoRouteError
from tests.support.jars import PROJECT
from tests.support.pages import Block, blocks, commands
from tests.support.spark import SparkReceiver, rmqspark, run_to_end
from tests.support.wait import wait_until

#: All blocks of the page. That what is installed can be typed is shown by
#: tests/unit/services/test_typed_pages.py.
(
    _INSTALL,
    BATCH,
    SOURCE,
    TO_FILES,
    TO_TOPIC,
    JOBS,
    IMPORTS,
    OPTIONS,
    OUTPUT,
    DIRECT,
    SERVICE,
    RECEIVER,
) = blocks(PROJECT / "docs" / "spark.md")
#: Where the job with --every writes.
EVENTS = ("events", "events.bad")
#: Spark takes fractions, though its hints do not.
BATCH_SECONDS: Any = 0.5
_numbers = itertools.count(1)


class Page:
    """Somebody with a broker who types what the page shows; `names` are what its programs have
    from elsewhere."""

    def __init__(self, topics: Any, home: Path, names: dict[str, Any]) -> None:
        self.topics = topics
        self.home = home
        self.names = names
        #: Begins the bodies that this one sends: the topics of the page are those of all tests.
        self._mine = f"reader {next(_numbers)}: "
        self.places = {"127.0.0.1:9876": topics.name_servers, "/lake/": f"{home}/lake/"}

    def fill(self, topic: str, *bodies: str, **fields: Any) -> None:
        self.topics.fill(topic, [self._mine + body for body in bodies], **fields)

    def mine(self, bodies: list[str]) -> list[str]:
        """Those that this one has sent, as it sent them, in the order of the alphabet."""
        return sorted(
            body.removeprefix(self._mine) for body in bodies if body.startswith(self._mine)
        )

    def at_home(self, text: str) -> str:
        for place, here in self.places.items():
            text = text.replace(place, here)
        return text

    def run(self, block: Block) -> Any:
        """Runs the block's statements; the value of the last one where that is an expression."""
        parsed = ast.parse(self.at_home(block.text))
        last = parsed.body[-1]
        if not isinstance(last, ast.Expr):
            exec(compile(parsed, block.page, "exec"), self.names)
            return None
        del parsed.body[-1]
        exec(compile(parsed, block.page, "exec"), self.names)
        return eval(compile(ast.Expression(last.value), block.page, "eval"), self.names)

    def stored(self, name: str) -> list[str]:
        """The bodies that are in Parquet below /lake."""
        frame = self.names["spark"].read.parquet(str(self.home / "lake" / name))
        return self.mine([row.body.decode() for row in frame.select("body").collect()])


@pytest.fixture
def page(ours: Any, spark: Any, tmp_path: Path) -> Page:
    return Page(ours, tmp_path, {"spark": spark})


def test_a_topic_is_a_table(page: Page) -> None:
    page.fill("orders", "a", "b", "c")
    rows = page.run(BATCH).select("body").collect()
    assert page.mine([row.body.decode() for row in rows]) == ["a", "b", "c"]


def test_a_topic_is_a_stream_and_a_sink(page: Page) -> None:
    page.fill("orders", "a", "b", tags="paid")
    page.fill("orders", "c", tags="shipped")
    page.fill("orders", "d", tags="created")
    page.run(SOURCE)
    run_to_end(lambda: page.run(TO_FILES))
    assert page.stored("orders") == ["a", "b", "c"]

    def until_copied() -> Any:
        query = page.run(TO_TOPIC)
        query.processAllAvailable()
        query.stop()
        return query

    run_to_end(until_copied)
    # At least once: a task that is done again sends again.
    assert {*page.mine(page.topics.bodies("copy"))} == {"a", "b", "c"}


def test_the_ready_jobs(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [page.home / "lake" / name / "_spark_metadata" / "0" for name in EVENTS]

    class CtrlC:
        """Is pressed once the first messages are written; lag's 60 samples are waited for."""

        def is_set(self) -> bool:
            return all(batch.exists() for batch in written)

    @contextmanager
    def pressed() -> Iterator[CtrlC]:
        yield CtrlC()

    def typed(command: str) -> str:
        program, *arguments = shlex.split(page.at_home(command))
        assert program == "rmqspark"
        with monkeypatch.context() as patched:
            if "--every" in arguments:
                patched.setattr("rocketmq_tw.spark.jobs.ingest.interrupt_event", pressed)
            return rmqspark(*arguments)

    monkeypatch.setattr("rocketmq_tw.spark.jobs.lag.sleep", lambda seconds: None)
    monkeypatch.chdir(page.home)
    page.fill("orders", "a", "b", "c")
    page.topics.fill("events", ['{"id": 1, "name": "first"}', "no JSON"])
    exported, *rest = commands(JOBS)
    program, setting = shlex.split(page.at_home(exported))
    assert program == "export"
    monkeypatch.setenv(*setting.split("=", 1))
    orders, events, replay, stats, lag = map(typed, rest)

    assert "good: read" in orders
    assert page.stored("orders") == ["a", "b", "c"]
    assert "stopped" in events
    found = page.names["spark"].read.parquet(str(page.home / "lake" / "events"))
    assert [tuple(row) for row in found.select("value.id", "value.name").collect()] == [
        (1, "first")
    ]
    assert "orders-again: " in replay
    assert "at 5000 messages a second" in replay
    assert "orders" in stats
    assert lag.count("billing of orders: ") == lag.count("shipping of orders: ") == 60
    for name in ("orders.html", "lag.html"):
        assert "<polyline" in (page.home / name).read_text()
    with pytest.raises(NoRouteError):
        page.topics.client.queues("orders-again")


@pytest.fixture
def streaming(page: Page, spark: Any) -> Iterator[StreamingContext]:
    """Where the page's programs have their `ssc` from."""
    ssc = StreamingContext(spark.sparkContext, BATCH_SECONDS)
    page.names["ssc"] = ssc
    yield ssc
    ssc.stop(stopSparkContext=False)


def start_and_save(page: Page, streaming: StreamingContext) -> None:
    """Returns once the page's `save` has got a message."""
    saved: list[str] = []
    page.names["save"] = lambda rows: saved.extend(row.body.decode() for row in rows)
    streaming.start()

    def seen() -> bool:
        # A stream begins at the end of the topic, and does not say when it has found that.
        page.fill("orders", "a")
        return bool(page.mine(saved))

    wait_until(seen, "a message that is saved", interval=0.5)


def committed(page: Page) -> int:
    """Messages of the topic that the page's group has done."""
    client = page.topics.client
    queues = page.topics.queues("orders")
    return sum(client.committed_offset(queue, "old-job") or 0 for queue in queues)


def test_the_direct_stream(page: Page, streaming: StreamingContext) -> None:
    page.fill("orders", "before")
    for block in (IMPORTS, OPTIONS, OUTPUT, DIRECT):
        page.run(block)
    start_and_save(page, streaming)
    wait_until(lambda: committed(page), "the commit")


def test_the_receiver(page: Page, streaming: StreamingContext) -> None:
    (command,) = commands(SERVICE)
    words = shlex.split(command)
    group, topic = words[words.index("-g") + 1], words[words.index("-t") + 1]
    page.fill(topic, "before")
    done = committed(page)
    names = page.topics.name_servers
    with SparkReceiver(page.home / "service", names, topic, group) as service:
        page.places |= {"127.0.0.1:9880": service.address, "127.0.0.1:9881": service.control}
        page.run(RECEIVER)
        start_and_save(page, streaming)
        wait_until(lambda: committed(page) > done, "the commit")
