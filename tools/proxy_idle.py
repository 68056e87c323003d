"""What idle clients and slow readers cost a proxy and its other clients.

    python -m tools.proxy_idle --streams 2000 --slow 50 --seconds 60

A proxy in a broker's process and this many clients with an open Telemetry stream each, on
connections of their own; `slow` further ones pull large messages and read nothing. It prints the
server's memory, its CPU while all are idle, and how long an honest send takes before, beside the
idle ones, and beside the slow ones too. The exit code is 1 where a stream ended or a send failed.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
import psutil
from google.protobuf.message import Message
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, StreamEnded, StreamReset

from rocketmq_tw.proxy.proto import messages as pb
from tests.support.bare_grpc import BareClient
from tests.support.proxies import StandaloneWithProxy
from tests.support.remoting import create_topic
from tests.support.running import Closing

_SERVICE = "/apache.rocketmq.v2.MessagingService/"
_MIB = 1 << 20
TOPIC, LARGE = "Idle", "Large"
#: Clients of one consumer group.
_IN_GROUP = 20
_SENDS = 100


class RawClient:
    """One connection of HTTP/2 with one call that stays open."""

    def __init__(self, address: str, client_id: str, method: str, request: Message) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 30)
        self._http2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._http2.initiate_connection()
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": _SERVICE + method,
            ":authority": address,
            "te": "trailers",
            "content-type": "application/grpc",
            "x-mq-client-id": client_id,
            "x-mq-language": "PYTHON",
        }
        self._http2.send_headers(1, list(headers.items()))
        body = request.SerializeToString()
        self._http2.send_data(1, b"\0" + len(body).to_bytes(4) + body)
        self._flush()
        self.is_over = False

    def take(self) -> None:
        """Reads what is there, and answers pings."""
        try:
            data = self.socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.is_over = True
            return
        for event in self._http2.receive_data(data):
            if isinstance(event, StreamEnded | StreamReset | ConnectionTerminated):
                self.is_over = True
        self._flush()

    def _flush(self) -> None:
        self.socket.sendall(self._http2.data_to_send())


class Crowd(Closing):
    """Clients that only listen, in a thread."""

    def __init__(self) -> None:
        self._clients: list[RawClient] = []
        self._selector = selectors.DefaultSelector()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def add(self, client: RawClient) -> None:
        self._clients.append(client)
        self._selector.register(client.socket, selectors.EVENT_READ, client)

    def over(self) -> int:
        """How many streams have ended."""
        return sum(client.is_over for client in self._clients)

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()
        for client in self._clients:
            client.socket.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for key, _ in self._selector.select(0.2):
                key.data.take()
                if key.data.is_over:
                    self._selector.unregister(key.fileobj)


def consumer_settings(number: int) -> pb.TelemetryCommand:
    """What a consumer tells; some share a group."""
    command = pb.TelemetryCommand()
    command.settings.client_type = pb.SIMPLE_CONSUMER
    command.settings.subscription.group.name = f"group-{number // _IN_GROUP}"
    command.settings.subscription.subscriptions.add().topic.name = TOPIC
    return command


def send_seconds(client: BareClient) -> tuple[list[float], int]:
    """How long sends take, in order of length, and how many failed."""
    times, failed = [], 0
    for number in range(_SENDS):
        began = time.monotonic()
        try:
            status = client.send(TOPIC, f"m{number}", timeout=10)
        except grpc.RpcError:
            failed += 1
        else:
            failed += status.code != pb.OK
            times.append(time.monotonic() - began)
    return sorted(times), failed


def run(home: Path, streams: int, slow: int, seconds: float) -> Sequence[str]:
    """Prints what it measures; returns what should not be."""
    faults: list[str] = []
    with (
        StandaloneWithProxy(home) as server,
        Crowd() as crowd,
        BareClient(server.address, "honest") as honest,
    ):
        for topic in (TOPIC, LARGE):
            create_topic(server.broker_address, topic, 1)
        process = psutil.Process(server.pid)

        def tell(what: str) -> None:
            times, failed = send_seconds(honest)
            memory = process.memory_info().rss / _MIB
            shown = "no send was answered"
            if times:
                median, last = times[len(times) // 2], times[int(len(times) * 0.99) - 1]
                shown = f"a send {median * 1000:.1f} ms, p99 {last * 1000:.1f} ms"
            print(f"{what}: {memory:.0f} MiB, {shown}", flush=True)
            if failed:
                faults.append(f"{what}: {failed} sends failed")

        tell("alone")
        began = time.monotonic()
        for number in range(streams):
            crowd.add(
                RawClient(server.address, f"c{number}", "Telemetry", consumer_settings(number))
            )
        print(f"{streams} clients came in {time.monotonic() - began:.1f} s", flush=True)
        before = process.cpu_times()
        time.sleep(seconds)
        after = process.cpu_times()
        cpu = (after.user + after.system - before.user - before.system) / seconds
        print(f"idle: {cpu * 100:.1f} % of a core", flush=True)
        tell(f"beside {streams} idle clients")
        slow_readers = _slow_readers(server.address, honest, slow)
        tell(f"beside {slow} slow readers too")
        for reader in slow_readers:
            reader.socket.close()
        if crowd.over():
            faults.append(f"{crowd.over()} idle streams ended")
    return faults


def _slow_readers(address: str, honest: BareClient, count: int) -> list[RawClient]:
    """Connections that pull 8 MiB each and read nothing."""
    if not count:
        return []
    for _ in range(8):
        message = pb.Message(topic=pb.Resource(name=LARGE), body=b"x" * _MIB)
        message.system_properties.message_id = "large"
        request = pb.SendMessageRequest(messages=[message])
        honest.call("SendMessage", request, pb.SendMessageResponse, 30)
    (queue,) = honest.queues(LARGE)
    pull = pb.PullMessageRequest(
        group=pb.Resource(name="slow"), message_queue=queue, offset=0, batch_size=8
    )
    pull.filter_expression.expression = "*"
    return [RawClient(address, f"slow{each}", "PullMessage", pull) for each in range(count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--slow", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0, help="for which all are idle")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-idle-") as home:
        faults = run(Path(home), options.streams, options.slow, options.seconds)
    for fault in faults:
        print(f"FAULT: {fault}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
