"""A client that does nothing wrong, in a process of its own, and how long everything took it."""

from __future__ import annotations

import multiprocessing
import time
from collections import defaultdict
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.load import send_request
from tests.support.remoting import Connection
from tests.support.running import Closing

TOPIC = "honest"
#: The servers that the client talks to.
BROKER, NAME_SERVER = "broker", "name server"
#: Seconds between two rounds: the client shows what a server does, and leaves it idle mostly.
_PAUSE = 0.002
#: Answers to a pull of what is stored and not yet readable, and seconds until it is asked again.
_NOT_YET = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED})
_NOT_YET_PAUSE = 0.005
#: Errors whose text is kept.
_MOST_TEXTS = 5
_SUBSCRIPTION = 4


class Lap(NamedTuple):
    """What happened between two calls of `HonestClient.lap`."""

    #: Seconds that each answered request took, by server.
    seconds: dict[str, list[float]]
    #: Requests that failed, by server.
    errors: dict[str, int]
    #: What went wrong with the first of them.
    texts: list[str]


class HonestClient(Closing):
    """Sends a message, pulls it and asks for its topic's route, again and again until `close`.

    A request fails where it is refused, unanswered for `timeout` seconds, or answered with another
    message; the client then connects anew and goes on.
    """

    def __init__(self, broker: str, name_server: str, timeout: float) -> None:
        # A child that is forked would share what this process holds open.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, broker, name_server, timeout)
        self._process = context.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._limit = 4 * timeout

    def lap(self) -> Lap:
        """What happened since the last call. Raises `TimeoutError` where the client is stuck."""
        self._pipe.send(True)
        if not self._pipe.poll(self._limit):
            raise TimeoutError("the honest client does not get on")
        lap = self._pipe.recv()
        assert isinstance(lap, Lap)
        return lap

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


class _Failed(Exception):
    """The answer is not what was asked for."""

    def __init__(self, text: str, code: int = ResponseCode.SUCCESS) -> None:
        super().__init__(text)
        self.code = code


class _Link:
    """A connection that is made anew after each failure."""

    def __init__(self, address: str, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._connection: Connection | None = None

    def ask(self, request: RemotingCommand) -> RemotingCommand:
        """The answer, where it says SUCCESS."""
        try:
            if self._connection is None:
                self._connection = Connection(self._address, self._timeout)
            answer = self._connection.request(request)
        except Exception:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            raise
        if answer.code != ResponseCode.SUCCESS:
            raise _Failed(f"answered {answer.code}: {answer.remark}", answer.code)
        return answer


class _Client:
    """The rounds of the honest client."""

    def __init__(self, broker: str, name_server: str, timeout: float) -> None:
        self._timeout = timeout
        self._broker = _Link(broker, timeout)
        self._name_server = _Link(name_server, timeout)
        self._number = 0
        self.lap = Lap(defaultdict(list), defaultdict(int), [])

    def take_lap(self) -> Lap:
        lap, self.lap = self.lap, Lap(defaultdict(list), defaultdict(int), [])
        return lap

    def round(self) -> None:
        self._number += 1
        body = b"%d" % self._number
        sent = self._timed(BROKER, lambda: self._send(body))
        if sent is not None:
            self._timed(BROKER, lambda: self._pull(sent, body))
        self._timed(NAME_SERVER, self._route)

    def _timed(self, server: str, call: Callable[[], RemotingCommand]) -> RemotingCommand | None:
        began = time.perf_counter()
        try:
            answer = call()
        except Exception as error:
            self.lap.errors[server] += 1
            if len(self.lap.texts) < _MOST_TEXTS:
                self.lap.texts.append(f"{server}: {type(error).__name__}: {error}")
            return None
        self.lap.seconds[server].append(time.perf_counter() - began)
        return answer

    def _send(self, body: bytes) -> RemotingCommand:
        return self._broker.ask(send_request(TOPIC, self._number % 4, body))

    def _pull(self, sent: RemotingCommand, body: bytes) -> RemotingCommand:
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE)
        request.ext_fields = {
            "consumerGroup": "honest-readers",
            "topic": TOPIC,
            "queueId": sent.ext_fields["queueId"],
            "queueOffset": sent.ext_fields["queueOffset"],
            "maxMsgNums": "1",
            "sysFlag": str(_SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        # A message is readable a moment after its sender was answered, as in stock.
        until = time.perf_counter() + self._timeout
        while True:
            try:
                answer = self._broker.ask(request)
                break
            except _Failed as failed:
                if failed.code not in _NOT_YET or time.perf_counter() > until:
                    raise
            time.sleep(_NOT_YET_PAUSE)
        if body not in answer.body:
            raise _Failed(f"the message {body!r} is not where it was stored")
        return answer

    def _route(self) -> RemotingCommand:
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        request.ext_fields = {"topic": TOPIC}
        return self._name_server.ask(request)


def _run(pipe: Pipe, broker: str, name_server: str, timeout: float) -> None:
    client = _Client(broker, name_server, timeout)
    while True:
        client.round()
        if pipe.poll(_PAUSE):
            pipe.recv()
            pipe.send(client.take_lap())
