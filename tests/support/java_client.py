"""Stock Java clients in one JVM for each version, driven over JSON lines (tests/interop/java)."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections import Counter
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from tests.support.jars import driver_class_path, java_command
from tests.support.stock import ATTEMPTS, UNANSWERED
from tests.support.wait import LIMIT, PeerFailed, wait_until

Json = dict[str, Any]

#: Longer than the stock client waits for any answer.
_CALL_LIMIT = 180.0
#: Milliseconds. An admin client asks when it wants to know; as the others of a test are, it would
#: ask for a route twice a second, for ever in vain where its name server is gone.
_ADMIN_INTERVALS = {"pollMs": 30_000, "heartbeatMs": 30_000}
#: More name servers than one test has: the admin clients of those before them are stopped.
_ADMINS = 6
_HEAP_MB = 512


class JavaError(PeerFailed):
    """The stock client raised; the message is Java's, the trace follows."""


class JavaClients:
    """One JVM with the stock clients of `version`; thread-safe."""

    def __init__(self, version: str, home: Path, heap_mb: int = _HEAP_MB) -> None:
        self.version = version
        home.mkdir(parents=True, exist_ok=True)
        self._log = home / "driver.log"
        # mqadmin of 4.9 wants its logging there.
        (home / "conf").mkdir(exist_ok=True)
        (home / "conf" / "logback_tools.xml").write_text("<configuration/>\n")
        self._ids = itertools.count(1)
        self._handles = itertools.count(1)
        #: The admin clients by their name servers' addresses, the oldest first.
        self._admins: dict[str, str] = {}
        self._waiting: dict[int, Future[Any]] = {}
        command = [
            *java_command(heap_mb),
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            "-Drocketmq.client.rebalance.waitInterval=500",
            "-Drocketmq.client.rebalance.minInterval=200",
            *driver_class_path(version),
            "Driver",
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, operation: str, *, limit: float = _CALL_LIMIT, **arguments: Any) -> Any:
        """The operation's result; raises `JavaError`, or `TimeoutError` after `limit` seconds."""
        future = self.submit(operation, **arguments)
        try:
            return future.result(limit)
        except FutureTimeout:
            raise TimeoutError(
                f"{operation} of client {self.version}: no answer in {limit:g} s"
            ) from None

    def submit(self, operation: str, **arguments: Any) -> Future[Any]:
        """Starts an operation; its future fires with what `call` returns."""
        number = next(self._ids)
        future: Future[Any] = Future()
        self._waiting[number] = future
        line = json.dumps({"id": number, "op": operation, **arguments}) + "\n"
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode())
        self._process.stdin.flush()
        return future

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            future = self._waiting.pop(answer["id"])
            if "error" in answer:
                future.set_exception(JavaError(f"{answer['error']}\n{answer['trace']}"))
            else:
                future.set_result(answer["result"])
        for future in self._waiting.values():
            future.set_exception(JavaError(f"the JVM ended; see {self._log}"))

    def handle(self, kind: str) -> str:
        """A new name for a client in this JVM."""
        return f"{kind}-{next(self._handles)}"

    def producer(self, namesrv: str, group: str = "test-producers", **options: Any) -> Producer:
        return Producer(self, namesrv, group, options)

    def transactions(self, namesrv: str, group: str, **options: Any) -> TransactionProducer:
        return TransactionProducer(self, namesrv, group, options)

    def requester(self, namesrv: str, group: str) -> Requester:
        return Requester(self, namesrv, group, {})

    def replier(self, namesrv: str, group: str, topic: str) -> Replier:
        return Replier(self, namesrv, group, {"topic": topic})

    def consumer(
        self, namesrv: str, group: str, subscriptions: dict[str, str], **options: Any
    ) -> PushConsumer:
        return PushConsumer(self, namesrv, group, subscriptions, options)

    def puller(self, namesrv: str, group: str = "test-pullers") -> PullConsumer:
        return PullConsumer(self, namesrv, group)

    def popper(self, namesrv: str, group: str, broker: str, address: str) -> PopConsumer:
        return PopConsumer(self, namesrv, group, broker, address)

    def recaller(self, namesrv: str, group: str) -> Recaller:
        return Recaller(self, namesrv, group, {})

    def dashboard(self, namesrv: str) -> Dashboard:
        return Dashboard(self, namesrv, "dashboard", {})

    def create_topic(self, namesrv: str, broker: str, topic: str, queues: int) -> None:
        """Creates a topic on the broker at an address with stock's admin client."""
        self._answered(
            "admin.createTopic",
            handle=self._admin(namesrv),
            address=broker,
            topic=topic,
            queues=queues,
        )

    def admin(self, namesrv: str, method: str, *arguments: Any) -> Any:
        """What a method of stock's admin client returns, as JSON; keys of maps are text."""
        return self._answered(
            "admin.call", handle=self._admin(namesrv), method=method, args=list(arguments)
        )

    def _admin(self, namesrv: str) -> str:
        """The handle of a started admin client, one for each name server."""
        if namesrv not in self._admins:
            admin = self.handle("admin")
            self.call("admin.start", handle=admin, namesrv=namesrv, **_ADMIN_INTERVALS)
            self._admins[namesrv] = admin
            if len(self._admins) > _ADMINS:
                oldest = self._admins.pop(next(iter(self._admins)))
                self.submit("admin.stop", handle=oldest)
        return self._admins[namesrv]

    def mqadmin(self, *arguments: str) -> str:
        """What mqadmin prints."""
        for _ in range(ATTEMPTS):
            output: str = self.call("mqadmin", args=list(arguments))
            if not UNANSWERED.search(output):
                break
        return output

    def mqadmin_done(self, *arguments: str) -> str:
        """What mqadmin prints once that is no failure: some tools have 3 s for all that they do, of
        which the first call needs most on a busy machine. Not for what cannot be done twice."""

        def printed() -> str:
            output = self.mqadmin(*arguments)
            if "Exception" in output:
                raise PeerFailed(output)
            return output

        return wait_until(printed, f"mqadmin {arguments[0]}", interval=0.5)

    def _answered(self, operation: str, **arguments: Any) -> Any:
        """The operation's result; it is asked for again where there was no answer."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self.call(operation, **arguments)
            except JavaError as error:
                if not UNANSWERED.search(str(error)):
                    raise
        return self.call(operation, **arguments)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)


class _Client:
    """A started client of the JVM.

    The end of its `with` block starts its shutdown and does not wait for it, since stock takes
    seconds; `stop` waits.
    """

    kind: str

    def __init__(self, java: JavaClients, namesrv: str, group: str, options: Json) -> None:
        self._java = java
        self.group = group
        self.handle = java.handle(self.kind)
        self._stopped = False
        self._call("start", namesrv=namesrv, group=group, **options)

    def _call(self, operation: str, **arguments: Any) -> Any:
        return self._java.call(f"{self.kind}.{operation}", handle=self.handle, **arguments)

    def stop(self) -> None:
        """A clean shutdown: offsets are committed and the broker is told."""
        if not self._stopped:
            self._stopped = True
            self._call("stop")

    def __exit__(self, *_: object) -> None:
        if not self._stopped:
            self._stopped = True
            self._java.submit(f"{self.kind}.stop", handle=self.handle)


class Producer(_Client):
    """DefaultMQProducer. A message is a dict: topic, body (or size and seed), tags, keys,
    properties, rawProperties (of any name), delayLevel, flag. Options: retries, compressOver,
    compressType (ZLIB, LZ4 or ZSTD, of 5.x), maxMessageSize, trace (it tells the trace topic what
    it sends)."""

    kind = "producer"

    def __enter__(self) -> Producer:
        return self

    def send(
        self, *messages: Json, mode: str = "sync", queue: int | None = None, check: bool = True
    ) -> list[Json]:
        """Send results: status, msgId, offsetMsgId, broker, queue, offset (mode batch: one for all;
        oneway: none). With `check`, a message that was not stored raises `JavaError`."""
        arguments: Json = {} if queue is None else {"queue": queue}
        results: list[Json] | None = self._java.call(
            "send", handle=self.handle, mode=mode, messages=messages, **arguments
        )
        for result in results or ():
            if check and result["status"] != "SEND_OK":
                raise JavaError(f"a send failed: {result}")
        return results or []


class TransactionProducer(_Client):
    """TransactionMQProducer. A message's user properties say what it decides about it at once
    (`decide`) and what it answers when it is asked (`answer`): commit, rollback, anything else."""

    kind = "transactions"

    def __enter__(self) -> TransactionProducer:
        return self

    def send(self, *messages: Json) -> list[Json]:
        """Send results, as `Producer.send` gives them."""
        results: list[Json] = self._call("send", messages=messages)
        return results

    def asked(self) -> list[Json]:
        """The messages that the broker has asked about so far, with the time `at` which it did and
        when they were `born`, in ms since 1970."""
        asked: list[Json] = self._call("asked")
        return asked


class Requester(_Client):
    """DefaultMQProducer that waits for replies."""

    kind = "requester"

    def __enter__(self) -> Requester:
        return self

    def ask(
        self,
        message: Json,
        timeout_ms: int = 60_000,
        *,
        broker: str = "",
        blocking: bool = False,
    ) -> Json:
        """The reply to a message that goes to a queue of `broker`, or of any one, by way of a
        callback; `blocking` of any one, by the call that 5.3.3's clients end too early."""
        reply: Json = self._call(
            "ask", message=message, timeoutMs=timeout_ms, broker=broker, blocking=blocking
        )
        return reply


class Replier(_Client):
    """DefaultMQPushConsumer of one topic that answers each message with `re: ` and its body."""

    kind = "replier"

    def __enter__(self) -> Replier:
        return self

    def replied(self) -> list[Json]:
        """What each reply was answered with: a send result, or what was raised."""
        replied: list[Json] = self._call("replied")
        return replied

    def reply_to(self, client_id: str, topic: str) -> Json:
        """What a reply to the client of that id is answered with, sent once."""
        answer: Json = self._call("replyTo", clientId=client_id, topic=topic)
        return answer


class Recaller(_Client):
    """A producer of 5.x that takes messages back."""

    kind = "recaller"

    def __enter__(self) -> Recaller:
        return self

    def send(self, message: Json) -> str:
        """Sends a message for a time of its own; its handle."""
        handle: str = self._call("send", message=message)
        return handle

    def recall(self, topic: str, handle: str) -> str:
        """The id of the message that is taken back."""
        unique_id: str = self._call("recall", topic=topic, recallHandle=handle)
        return unique_id


class Dashboard(_Client):
    """The calls of stock's dashboard 2.1.1, with 5.x clients (tests/interop/java-dashboard)."""

    kind = "dashboard"

    def __enter__(self) -> Dashboard:
        return self

    def answer(self, request: str, parameters: Json) -> Json:
        """The body of its answer: status, data and errMsg."""
        answer: Json = self._call("answer", request=request, parameters=parameters)
        return answer


class PushConsumer(_Client):
    """DefaultMQPushConsumer that notes what it receives.

    Options: orderly, broadcast, failTimes (a message fails that often), maxReconsumeTimes, from
    (FIRST_OFFSET, LAST_OFFSET), instance, sql (subscriptions are SQL92 expressions),
    trace, workMs (consuming a message takes so long), heartbeatMs.
    """

    kind = "consumer"

    def __init__(
        self,
        java: JavaClients,
        namesrv: str,
        group: str,
        subscriptions: dict[str, str],
        options: Json,
    ) -> None:
        options = {"from": "FIRST_OFFSET", "subscriptions": subscriptions} | options
        super().__init__(java, namesrv, group, options)

    def __enter__(self) -> PushConsumer:
        return self

    def received(self, count: int = 0, *, start: int = 0, limit: float = LIMIT) -> list[Json]:
        """What came after the first `start` messages; waits for `count` of them and raises
        `TimeoutError` where fewer came within `limit` seconds."""
        messages: list[Json] = self._call(
            "received",
            limit=limit + _CALL_LIMIT,
            count=count,
            limitMs=int(limit * 1000),
            **{"from": start},
        )
        if len(messages) < count:
            raise TimeoutError(f"{len(messages)} of {count} messages came within {limit:g} s")
        return messages

    def bodies(self, count: int = 0, *, limit: float = LIMIT) -> list[str]:
        return [message["body"] for message in self.received(count, limit=limit)]

    def wait_bodies(self, expected: set[str], limit: float = LIMIT) -> list[Json]:
        """Waits until each of the bodies came at least once; returns all that came."""

        def missing_none() -> list[Json]:
            messages = self.received()
            missing = expected - {message["body"] for message in messages}
            if missing:
                queues = Counter((each["broker"], each["queue"]) for each in messages)
                raise PeerFailed(
                    f"{len(missing)} are missing, as {sorted(missing)[:5]};"
                    f" each queue gave {queues}"
                )
            return messages

        return wait_until(missing_none, f"{len(expected)} bodies", limit=limit, interval=0.1)

    def assigned(self) -> list[Json]:
        queues: list[Json] = self._call("assigned")
        return queues


class PullConsumer(_Client):
    """DefaultMQPullConsumer. A queue is a dict of topic, broker and queue."""

    kind = "puller"

    def __init__(self, java: JavaClients, namesrv: str, group: str) -> None:
        super().__init__(java, namesrv, group, {})

    def __enter__(self) -> PullConsumer:
        return self

    def queues(self, topic: str) -> list[Json]:
        queues: list[Json] = self._call("queues", topic=topic)
        return sorted(queues, key=lambda queue: (queue["broker"], queue["queue"]))

    def pull(
        self,
        queue: Json,
        offset: int,
        count: int = 32,
        expression: str = "*",
        *,
        sql: bool = False,
    ) -> Json:
        """status, next, min, max and the messages; with `sql` the expression is an SQL92 one."""
        result: Json = self._call(
            "pull", **_queue(queue), offset=offset, max=count, expression=expression, sql=sql
        )
        return result

    def drain(self, topic: str) -> list[Json]:
        """Every message of the topic."""
        messages: list[Json] = self._call("drain", topic=topic)
        return messages

    def wait_drained(self, topic: str, count: int) -> list[Json]:
        """Every message of the topic, once there are `count` and all brokers give theirs."""

        def all_there() -> list[Json]:
            messages = self.drain(topic)
            return messages if len(messages) >= count else []

        return wait_until(all_there, f"{count} messages of {topic}", interval=0.2)

    def min_offset(self, queue: Json) -> int:
        offset: int = self._call("minOffset", **_queue(queue))
        return offset

    def max_offset(self, queue: Json) -> int:
        offset: int = self._call("maxOffset", **_queue(queue))
        return offset

    def search_offset(self, queue: Json, timestamp: int) -> int:
        offset: int = self._call("searchOffset", timestamp=timestamp, **_queue(queue))
        return offset

    def commit(self, queue: Json, offset: int) -> None:
        self._call("commit", offset=offset, **_queue(queue))

    def committed(self, queue: Json) -> int:
        offset: int = self._call("committed", **_queue(queue))
        return offset

    def view(self, topic: str, message_id: str) -> Json:
        message: Json = self._call("view", topic=topic, msgId=message_id)
        return message

    def query(self, topic: str, key: str, begin: int = 0, end: int = 2**62) -> list[Json]:
        messages: list[Json] = self._call("query", topic=topic, key=key, begin=begin, end=end)
        return messages


class PopConsumer(_Client):
    """A member of a group that pops from the broker at `address` and acknowledges one by one, with
    5.x clients."""

    kind = "popper"

    def __init__(
        self, java: JavaClients, namesrv: str, group: str, broker: str, address: str
    ) -> None:
        super().__init__(java, namesrv, group, {})
        self._target = {"group": group, "broker": broker, "address": address}

    def __enter__(self) -> PopConsumer:
        return self

    def pop(self, topic: str, **options: Any) -> Json:
        """status, rest and messages. Options: queue, max, invisible and poll in ms, expression,
        orderly, attempt (who tries again the same pop names the same one)."""
        defaults = {"queue": -1, "max": 32, "invisible": 60_000, "poll": 0, "expression": "*"}
        popped: Json = self._call("pop", topic=topic, **self._target, **defaults | options)
        return popped

    def ack(self, message: Json) -> Json:
        answer: Json = self._call("ack", message=message, **self._target)
        return answer

    def ack_all(self, topic: str, messages: list[Json]) -> Json:
        """Acknowledges messages of one topic with one request."""
        answer: Json = self._call("ackAll", topic=topic, messages=messages, **self._target)
        return answer

    def notified(self, topic: str, *, queue: int = -1, poll: int = 0, **options: Any) -> bool:
        """Whether there is something to pop, once there is, or after `poll` ms. Options: orderly,
        attempt."""
        has_message: bool = self._call(
            "notified", topic=topic, queue=queue, poll=poll, **self._target, **options
        )
        return has_message

    def hide(self, message: Json, invisible_ms: int) -> Json:
        """The message as it is to be acknowledged from now on."""
        answer = self._call("hide", message=message, invisible=invisible_ms, **self._target)
        assert answer["status"] == "OK", answer
        properties = message["properties"] | {"POP_CK": answer["extraInfo"]}
        changed: Json = message | {"properties": properties}
        return changed


def _queue(queue: Json) -> Json:
    return {name: queue[name] for name in ("topic", "broker", "queue")}
