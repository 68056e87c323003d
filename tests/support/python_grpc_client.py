"""Stock's Python gRPC client, as a program of its own: its messages have the names of ours, so that
one process cannot have both.

`PYTHON tests/support/python_grpc_client.py ENDPOINT TOPIC GROUP NUMBER` sends messages, receives
and acknowledges them, and prints what became of them as JSON.
"""

import json
import sys
import time
from typing import Any

LIMIT = 120.0


def main(endpoint: str, topic: str, group: str, number: int) -> dict[str, Any]:
    # Only this program's interpreter has it.
    from rocketmq import (  # type: ignore[import-not-found]
        ClientConfiguration,
        Credentials,
        FilterExpression,
        Message,
        Producer,
        SimpleConsumer,
    )

    configuration = ClientConfiguration(endpoint, Credentials())
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression()}, 3)
    consumer.startup()
    producer = Producer(configuration, (topic,))
    producer.startup()
    try:
        sent = []
        for index in range(number):
            message = Message()
            message.topic = topic
            message.body = f"message {index}".encode()
            message.tag = "tag"
            message.keys = f"key-{index}"
            message.add_property("index", str(index))
            sent.append(producer.send(message).message_id)
        received: list[dict[str, Any]] = []
        deadline = time.monotonic() + LIMIT
        while len(received) < number and time.monotonic() < deadline:
            for message in consumer.receive(16, 15):
                consumer.ack(message)
                received.append(
                    {
                        "id": message.message_id,
                        "body": message.body.decode(),
                        "tag": message.tag,
                        "keys": sorted(message.keys),
                        "index": message.properties["index"],
                    }
                )
        return {"sent": sent, "received": received}
    finally:
        producer.shutdown()
        consumer.shutdown()


if __name__ == "__main__":
    endpoint, topic, group, number = sys.argv[1:]
    print("RESULT " + json.dumps(main(endpoint, topic, group, int(number))), flush=True)
