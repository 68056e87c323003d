"""A gRPC client of a proxy by bare calls, for tests that count what became of each one."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import grpc
from google.protobuf.message import Message

from rocketmq_tw.proxy.proto import messages as pb
from tests.support.running import Closing

_SERVICE = "/apache.rocketmq.v2.MessagingService/"
#: Channels find a proxy again soon after it is back.
_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class BareClient(Closing):
    """One client at one proxy. Calls raise `grpc.RpcError` where the proxy does not answer."""

    def __init__(self, address: str, client_id: str) -> None:
        self._metadata = [
            ("x-mq-client-id", client_id),
            ("x-mq-language", "PYTHON"),
            ("x-mq-client-version", "5.0.0"),
        ]
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._told: SimpleQueue[pb.TelemetryCommand | None] | None = None
        self._answers: object = None

    def call(self, method: str, request: Message, answer: type[Message], timeout: float) -> Any:
        """The answer to a unary call."""
        ask = self._channel.unary_unary(
            _SERVICE + method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return ask(request, metadata=self._metadata, timeout=timeout)

    def settle(self, settings: pb.Settings, timeout: float = 10) -> pb.Settings:
        """Opens a Telemetry stream with these settings; the proxy's answer."""
        self.end_stream()
        told = self._told = SimpleQueue()
        told.put(pb.TelemetryCommand(settings=settings))
        open_stream = self._channel.stream_stream(
            _SERVICE + "Telemetry",
            request_serializer=pb.TelemetryCommand.SerializeToString,
            response_deserializer=pb.TelemetryCommand.FromString,
        )
        answers = open_stream(iter(told.get, None), metadata=self._metadata)
        timer = grpc.channel_ready_future(self._channel)
        try:
            timer.result(timeout)
        except grpc.FutureTimeoutError:
            self.end_stream()
            answers.cancel()
            raise
        # What nobody refers to any more is cancelled.
        self._answers = answers
        answer: pb.TelemetryCommand = next(answers)
        return answer.settings

    def consume(self, group: str, topic: str) -> None:
        """Tells that it is a SimpleConsumer of one topic."""
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = group
        settings.subscription.subscriptions.add().topic.name = topic
        self.settle(settings)

    def send(self, topic: str, body: str, timeout: float = 5) -> pb.Status:
        """Sends a message, whose id is its body; what became of it."""
        message = pb.Message(topic=pb.Resource(name=topic), body=body.encode())
        message.system_properties.message_id = body
        request = pb.SendMessageRequest(messages=[message])
        response = self.call("SendMessage", request, pb.SendMessageResponse, timeout)
        status: pb.Status = response.status
        return status

    def queues(self, topic: str) -> list[pb.MessageQueue]:
        """The queues of a topic to receive from."""
        request = pb.QueryRouteRequest(topic=pb.Resource(name=topic))
        response = self.call("QueryRoute", request, pb.QueryRouteResponse, 5)
        return [
            queue
            for queue in response.message_queues
            if queue.permission in (pb.READ, pb.READ_WRITE)
        ]

    def receive(
        self, group: str, queue: pb.MessageQueue, *, invisible: int | None, wait: float = 1.0
    ) -> list[pb.Message]:
        """Receives up to 16 messages, hidden for `invisible` seconds, or by renewals where that is
        None."""
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=group), message_queue=queue, batch_size=16
        )
        request.filter_expression.expression = "*"
        request.filter_expression.type = pb.TAG
        if invisible is None:
            request.auto_renew = True
        else:
            request.invisible_duration.seconds = invisible
        request.long_polling_timeout.seconds = int(wait)
        ask = self._channel.unary_stream(
            _SERVICE + "ReceiveMessage",
            request_serializer=pb.ReceiveMessageRequest.SerializeToString,
            response_deserializer=pb.ReceiveMessageResponse.FromString,
        )
        answers = ask(request, metadata=self._metadata, timeout=wait + 5)
        return [each.message for each in answers if each.HasField("message")]

    def acknowledge(self, group: str, message: pb.Message) -> int:
        """Acknowledges a message; the code of its entry."""
        return int(self.acknowledged(group, message).code)

    def acknowledged(self, group: str, message: pb.Message) -> pb.Status:
        """Acknowledges a message; the status of its entry."""
        request = pb.AckMessageRequest(group=pb.Resource(name=group), topic=message.topic)
        request.entries.add(
            message_id=message.system_properties.message_id,
            receipt_handle=message.system_properties.receipt_handle,
        )
        response = self.call("AckMessage", request, pb.AckMessageResponse, 5)
        status: pb.Status = response.entries[0].status if response.entries else response.status
        return status

    def end_stream(self) -> None:
        """Ends the Telemetry stream, where one is open."""
        if self._told is not None:
            self._told.put(None)
            self._told = None

    def close(self) -> None:
        self.end_stream()
        self._channel.close()
