"""The scenarios of tests/interop/java-grpc/GrpcScenarios.java with stock's client for Python, as a
program of its own: its messages have the names of ours, so that one process cannot have both.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence

# Only this program's interpreter has it.
from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SendReceipt,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType  # type: ignore[import-not-found]

_INVISIBLE, _REQUEST_LIMIT, _LIMIT = 60, 30, 180.0
_LARGE = 3 << 20

_output = threading.Lock()


def _note(*words: object) -> None:
    with _output:
        print(*words, sep="\t", flush=True)


class _Checker(TransactionChecker):
    def check(self, message: Message) -> TransactionResolution:
        body = message.body.decode()
        _note("transaction", "asked", body)
        rolled_back = body == "rolled back"
        return TransactionResolution.ROLLBACK if rolled_back else TransactionResolution.COMMIT


class _Listener(MessageListener):
    """Has messages taken as a function says."""

    def __init__(self, taken: Callable[[Message], bool]) -> None:
        self._taken = taken

    def consume(self, message: Message) -> ConsumeResult:
        return ConsumeResult.SUCCESS if self._taken(message) else ConsumeResult.FAILURE


class _Scenarios:
    def __init__(self, endpoint: str, prefix: str, names: Sequence[str]) -> None:
        self._configuration = ClientConfiguration(
            endpoint, Credentials(), request_timeout=_REQUEST_LIMIT
        )
        self._prefix = prefix
        self._names = names
        topics = [self._topic(name) for name in names]
        self._producer = Producer(self._configuration, topics, checker=_Checker())
        self._producer.startup()

    def run(self) -> None:
        threads = [threading.Thread(target=self._try, args=(name,)) for name in self._names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _try(self, name: str) -> None:
        try:
            getattr(self, name.replace("-", "_"))()
        except Exception as error:
            traceback.print_exc()
            _note(name, "failed", " ".join(repr(error).split()))

    def tags(self) -> None:
        consumer = self._consumer("tags", FilterExpression("wanted || also"))
        for tag in ("wanted", "unwanted", "also"):
            message = self._message("tags", f"body {tag}", color="red")
            message.tag = tag
            # Each one is added.
            message.keys = "k-1"
            message.keys = "k-2"
            _note("tags", "sent", self._producer.send(message).message_id)

        def last(message: Message) -> bool:
            keys, color = ",".join(sorted(message.keys)), message.properties["color"]
            words = (message.message_id, message.body.decode(), message.tag, keys, color)
            _note("tags", "received", *words, message.delivery_attempt)
            consumer.ack(message)
            return bool(message.tag == "also")

        _receive(consumer, last)

    def sql(self) -> None:
        expression = FilterExpression("price > 10 AND color = 'red'", FilterType.SQL)
        consumer = self._consumer("sql", expression)
        for color, price in (("red", "9"), ("blue", "20"), ("red", "20")):
            message = self._message("sql", f"{color} {price}", color=color, price=price)
            self._producer.send_async(message).result(_LIMIT)

        def last(message: Message) -> bool:
            _note("sql", "received", message.body.decode())
            consumer.ack(message)
            return True

        _receive(consumer, last)

    def large(self) -> None:
        large = bytes((place * 31 + place // 1000) & 255 for place in range(_LARGE))
        consumer = self._consumer("large")
        self._send("large", large)

        def last(message: Message) -> bool:
            _note("large", "same" if message.body == large else "other", len(message.body))
            consumer.ack(message)
            return True

        _receive(consumer, last)

    def invisible(self) -> None:
        consumer = self._consumer("invisible")
        self._send("invisible", "shown again")

        def last(message: Message) -> bool:
            _note("invisible", "received", message.body.decode(), message.delivery_attempt)
            if message.delivery_attempt == 1:
                consumer.change_invisible_duration(message, 1)
                return False
            consumer.ack(message)
            return True

        _receive(consumer, last)

    def push(self) -> None:
        seen: set[str] = set()

        def taken(message: Message) -> bool:
            body, attempt = message.body.decode(), message.delivery_attempt
            _note("push", "consumed", body, attempt)
            seen.add(f"{body} {attempt}")
            return body != "never" and (body, attempt) != ("once", 1)

        self._consume("push", taken)
        for body in ("good", "once", "never"):
            self._send("push", body)
        _wait(seen, {"good 1", "once 2", "never 2"})

    def fifo(self) -> None:
        seen: set[str] = set()
        #: The client itself tries again what failed: that is no further delivery.
        tries: Counter[str] = Counter()

        def taken(message: Message) -> bool:
            body = message.body.decode()
            tries[body] += 1
            _note("fifo", "consumed", message.message_group, body, tries[body])
            seen.add(f"{body} {tries[body]}")
            return body != "b-never" and (body, tries[body]) != ("a-1", 1)

        self._consume("fifo", taken)
        for body in ("a-0", "b-never", "a-1", "b-next", "a-2"):
            message = self._message("fifo", body)
            message.message_group = body[0]
            self._producer.send(message)
        _wait(seen, {"a-2 1", "b-never 2", "b-next 1"})

    def delay(self) -> None:
        consumer = self._consumer("delay")
        sent = self._send_late("delay", "recalled", int(time.time()) + 3600)
        recalled = self._producer.recall_message(self._topic("delay"), sent.recall_handle)
        _note("delay", "recalled", str(recalled == sent.message_id).lower())
        due = int(time.time()) + 4
        self._send_late("delay", "late", due)

        def last(message: Message) -> bool:
            _note("delay", "received", message.body.decode(), int((time.time() - due) * 1000))
            consumer.ack(message)
            return True

        _receive(consumer, last)

    def transaction(self) -> None:
        consumer = self._consumer("transaction")
        for body in ("committed", "rolled back", "orphan"):
            transaction = self._producer.begin_transaction()
            self._producer.send(self._message("transaction", body), transaction)
            if body == "committed":
                transaction.commit()
            elif body == "rolled back":
                transaction.rollback()

        def last(message: Message) -> bool:
            body = message.body.decode()
            _note("transaction", "received", body)
            consumer.ack(message)
            return bool(body == "orphan")

        _receive(consumer, last)

    def mixed(self) -> None:
        consumer = self._consumer("mixed")
        self._send("mixed", "plain")
        ordered = self._message("mixed", "in order")
        ordered.message_group = "group"
        self._producer.send(ordered)
        due = int(time.time()) + 3
        self._send_late("mixed", "late", due)
        transaction = self._producer.begin_transaction()
        self._producer.send(self._message("mixed", "committed"), transaction)
        transaction.commit()
        seen: set[str] = set()

        def last(message: Message) -> bool:
            body, group = message.body.decode(), message.message_group or "-"
            _note("mixed", "received", body, group, int((time.time() - due) * 1000))
            consumer.ack(message)
            seen.add(body)
            return len(seen) == 4

        _receive(consumer, last)

    def from_classic(self) -> None:
        consumer = self._consumer("from-classic")
        seen: set[str] = set()

        def last(message: Message) -> bool:
            keys, crc = ",".join(message.keys), zlib.crc32(message.body)
            words = (message.message_id, message.tag, keys, len(message.body), crc)
            _note("from-classic", "received", *words)
            consumer.ack(message)
            seen.add(message.tag)
            return len(seen) == int(message.properties["of"])

        _receive(consumer, last)

    def _topic(self, scenario: str) -> str:
        return f"{self._prefix}-{scenario}"

    def _message(self, scenario: str, body: str | bytes, **properties: str) -> Message:
        message = Message()
        message.topic = self._topic(scenario)
        message.body = body.encode() if isinstance(body, str) else body
        for name, value in properties.items():
            message.add_property(name, value)
        return message

    def _send(self, scenario: str, body: str | bytes) -> None:
        self._producer.send(self._message(scenario, body))

    def _send_late(self, scenario: str, body: str, due: int) -> SendReceipt:
        """Sends a message that comes at a time, in seconds since 1970."""
        message = self._message(scenario, body)
        message.delivery_timestamp = due
        return self._producer.send(message)

    def _consumer(
        self, scenario: str, expression: FilterExpression | None = None
    ) -> SimpleConsumer:
        topic = self._topic(scenario)
        subscription = {topic: expression or FilterExpression()}
        consumer = SimpleConsumer(self._configuration, topic, subscription, 5)
        consumer.startup()
        return consumer

    def _consume(self, scenario: str, taken: Callable[[Message], bool]) -> None:
        topic = self._topic(scenario)
        PushConsumer(
            self._configuration,
            topic,
            _Listener(taken),
            {topic: FilterExpression()},
            consumption_thread_count=4,
        ).startup()


def _receive(consumer: SimpleConsumer, last: Callable[[Message], bool]) -> None:
    """Receives until a message is the last one."""
    deadline, over = time.monotonic() + _LIMIT, False
    while not over:
        if time.monotonic() > deadline:
            raise TimeoutError("not all came")
        for message in consumer.receive(16, _INVISIBLE):
            over |= last(message)


def _wait(seen: Collection[str], expected: set[str]) -> None:
    deadline = time.monotonic() + _LIMIT
    while not expected.issubset(seen):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not all came of {expected}")
        time.sleep(0.02)


def main() -> None:
    for line in sys.stdin:
        endpoint, prefix, *names = line.split()
        try:
            _Scenarios(endpoint, prefix, names).run()
        except Exception as error:
            traceback.print_exc()
            _note("start", "failed", " ".join(repr(error).split()))
        _note("done")


if __name__ == "__main__":
    main()
    # A clean shutdown of every client would wait for its long polls.
    os._exit(0)
