"""A program with all of our own clients, as an application has them, for tests beside stock's.

`python -m tests.support.our_clients NAMESRV TOPIC GROUP BODY...` sends to every broker of
the topic, consumes what is there and the bodies that are named, and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react

from rocketmq_tw.client.message import Message, ReceivedMessage
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.pull import PullConsumer
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.client.settings import ConsumerSettings, ProducerSettings, StartFrom
from rocketmq_tw.message.names import retry_topic
from rocketmq_tw.wire.bodies.queues import MessageQueue

PLAIN, BATCHED, LATE = 24, 3, 8
PROPERTIES = {"ключ": "語 🚀"}
#: Over the 4 KiB from which producers compress.
LARGE = "compress me " * 1000
#: What the listener of the first consumer refuses once.
REFUSED = ("own-0", "own-1", "own-2")
_LIMIT = 180.0
_STEP = 0.05


class Run:
    """One run against one name server."""

    def __init__(self, reactor: Any, name_server: str, topic: str, group: str) -> None:
        self._reactor = reactor
        self._name_server = name_server
        self._topic = topic
        self._group = group

    async def all(self, others: Collection[str]) -> dict[str, Any]:
        """What was sent and seen; `others` are bodies that someone else sent."""
        producer = Producer(
            self._reactor,
            [self._name_server],
            f"{self._group}-producers",
            settings=ProducerSettings(send_timeout=_LIMIT),
        )
        await producer.start()
        sent = await self._send(producer)
        await self._make_group()
        consumed = await self._consume(self._group, {*sent, *others})
        late = [f"late-{number}" for number in range(LATE)]
        for body in late:
            await producer.send(Message(self._topic, body.encode(), tags="b"))
        again = await self._consume(self._group, set(late))
        ordered = await self._consume(f"{self._group}-ordered", {*sent, *others, *late}, True)
        pulled = await self._pull()
        await producer.stop()
        return {
            "sent": sent,
            "late": late,
            "consumed": list(map(_shown, consumed)),
            "again": list(map(_shown, again)),
            "ordered": list(map(_shown, ordered)),
            "pulled": pulled,
        }

    async def _send(self, producer: Producer) -> list[str]:
        """Every kind of send to every broker; the bodies."""
        topic, queues = self._topic, await producer.queues(self._topic)
        plain = [f"own-{number}" for number in range(PLAIN)]
        for number, body in enumerate(plain):
            message = Message(
                topic,
                body.encode(),
                tags="ab"[number % 2],
                keys=[f"key-{number}"],
                properties=PROPERTIES,
            )
            await producer.send(message, queue=queues[number % len(queues)])
        sent = list(plain)
        for queue in {queue.broker_name: queue for queue in queues}.values():
            name = queue.broker_name
            batch = [f"batch-{name}-{number}" for number in range(BATCHED)]
            await producer.send_batch(
                [Message(topic, body.encode(), tags="b") for body in batch], queue=queue
            )
            single = {"oneway": f"oneway-{name}", "late": f"delayed-{name}", "large": name + LARGE}
            await producer.send_oneway(
                Message(topic, single["oneway"].encode(), tags="a"), queue=queue
            )
            await producer.send(
                Message(topic, single["late"].encode(), tags="a", delay_level=1), queue=queue
            )
            await producer.send(Message(topic, single["large"].encode(), tags="a"), queue=queue)
            await producer.send(Message(topic, b"unwanted", tags="c"), queue=queue)
            sent += [*batch, *single.values()]
        return sent

    async def _make_group(self) -> None:
        """Waits for the retry topic at all brokers, which clients look for every 30 s only."""
        member = PullConsumer(self._reactor, [self._name_server], self._group)
        brokers = {queue.broker_name for queue in await member.queues(self._topic)}
        await member.start()
        while True:
            route = await member.session.routes.refresh(retry_topic(self._group))
            if route is not None and {data.broker_name for data in route.broker_datas} == brokers:
                break
            await self._pause()
        await member.stop()

    async def _consume(
        self, group: str, bodies: set[str], orderly: bool = False
    ) -> list[ReceivedMessage]:
        """What a push consumer gets until it has all of `bodies`, the refused ones twice."""
        received: list[ReceivedMessage] = []

        def listener(message: ReceivedMessage) -> None:
            received.append(message)
            if not orderly and message.body.decode() in REFUSED and not message.reconsume_times:
                raise ValueError("not now")

        consumer = PushConsumer(
            self._reactor,
            [self._name_server],
            group,
            listener,
            settings=ConsumerSettings(orderly=orderly, start_from=StartFrom.FIRST),
        )
        consumer.subscribe(self._topic, "a || b")
        await consumer.start()
        again = set() if orderly else bodies.intersection(REFUSED)
        await self._until(
            lambda: (
                bodies <= {message.body.decode() for message in received}
                and again
                <= {message.body.decode() for message in received if message.reconsume_times}
            ),
            lambda: f"{group} waits for {bodies - {m.body.decode() for m in received}}",
        )
        await consumer.stop()
        return received

    async def _pull(self) -> list[dict[str, Any]]:
        """Each queue from its begin to its end, and where a commit leaves the group."""
        consumer = PullConsumer(self._reactor, [self._name_server], f"{self._group}-pull")
        await consumer.start()
        queues = []
        for queue in await consumer.queues(self._topic):
            offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
            messages: list[ReceivedMessage] = []
            while offset < end:
                result = await consumer.pull(queue, offset)
                messages += result.messages
                offset = result.next_offset
            await consumer.commit_offset(queue, offset)
            queues.append(
                {
                    **_place(queue),
                    "end": end,
                    "offsets": [message.queue_offset for message in messages],
                    "committed": await consumer.committed_offset(queue),
                    "found": await consumer.search_offset(queue, messages[0].store_timestamp),
                }
            )
        await consumer.stop()
        return queues

    async def _until(self, condition: Callable[[], bool], waits_for: Callable[[], str]) -> None:
        deadline = self._reactor.seconds() + _LIMIT
        while not condition():
            if self._reactor.seconds() > deadline:
                raise TimeoutError(waits_for())
            await self._pause()

    def _pause(self) -> Deferred[None]:
        pause: Deferred[None] = deferLater(self._reactor, _STEP)
        return pause


def _place(queue: MessageQueue) -> dict[str, Any]:
    return {"broker": queue.broker_name, "queue": queue.queue_id}


def _shown(message: ReceivedMessage) -> dict[str, Any]:
    return {
        **_place(message.queue),
        "topic": message.topic,
        "body": message.body.decode(),
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "times": message.reconsume_times,
        "offset": message.queue_offset,
        "delay": message.store_timestamp - message.born_timestamp,
    }


def main(arguments: Sequence[str]) -> None:
    """Runs, prints, and ends the process."""
    name_server, topic, group, *others = arguments

    async def run(reactor: Any) -> None:
        print(json.dumps(await Run(reactor, name_server, topic, group).all(others)))

    react(lambda reactor: Deferred.fromCoroutine(run(reactor)))


if __name__ == "__main__":
    main(sys.argv[1:])
