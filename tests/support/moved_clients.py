"""A program with our own clients of a static topic, which moves meanwhile.

`python -m tests.support.moved_clients NAMESRV TOPIC GROUP COUNT` sends COUNT messages, consumes
them and prints the number of the round; when a line is typed it does the same again. At the end it
prints as JSON where every message went and came from.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThread

from rocketmq_tw.client.message import Message, ReceivedMessage
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.client.settings import ConsumerSettings, ProducerSettings, StartFrom

_LIMIT = 120.0
#: Two rounds: in front of the move and behind it.
_ROUNDS = 2


async def run(reactor: Any, name_server: str, topic: str, group: str, count: int) -> None:
    """All of the program."""
    received: list[ReceivedMessage] = []

    def listener(message: ReceivedMessage) -> None:
        received.append(message)
        if message.body.endswith(b"-0") and not message.reconsume_times:
            raise ValueError("not now")

    producer = Producer(
        reactor,
        [name_server],
        f"{group}-producers",
        settings=ProducerSettings(send_timeout=_LIMIT, retries=0),
    )
    await producer.start()
    consumer = PushConsumer(
        reactor,
        [name_server],
        group,
        listener,
        settings=ConsumerSettings(start_from=StartFrom.FIRST),
    )
    consumer.subscribe(topic)
    await consumer.start()
    sent = {}
    for number in range(_ROUNDS):
        for each in range(count):
            body = f"{number}-{each}"
            result = await producer.send(Message(topic, body.encode()))
            sent[body] = [result.queue.queue_id, result.queue_offset]
        # The first of each round comes again.
        deadline = reactor.seconds() + _LIMIT
        while len(received) < (number + 1) * (count + 1):
            if reactor.seconds() > deadline:
                raise TimeoutError(f"{len(received)} messages came")
            await deferLater(reactor, 0.1)
        print(number, flush=True)
        await deferToThread(sys.stdin.readline)
    await consumer.stop()
    await producer.stop()
    came = [
        [
            message.body.decode(),
            message.queue.broker_name,
            message.queue.queue_id,
            message.queue_offset,
            message.reconsume_times,
        ]
        for message in received
    ]
    print(json.dumps({"sent": sent, "came": came}), flush=True)


def main(reactor: Any, *arguments: str) -> Deferred[None]:
    """Starts the program."""
    name_server, topic, group, count = arguments
    return Deferred.fromCoroutine(run(reactor, name_server, topic, group, int(count)))


if __name__ == "__main__":
    react(main, sys.argv[1:])
