"""The HTTP port for monitoring: `/metrics` for Prometheus, `/healthz` and `/readyz` for whatever
starts servers and watches them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IListeningPort, IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.metrics.instruments import Metric, gauge, labelled
from rocketmq_tw.metrics.prometheus import METRICS_CONTENT_TYPE, exposition
from rocketmq_tw.net.address import join_address
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.shared_results import SharedResults
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.threads import InThread

#: Seconds between two looks at how late the reactor is.
_LOOK_SECONDS = 0.25
#: Seconds after which the longest delay begins anew; the former one is told for as long once more.
#: A monitor that asks once a minute sees it, whether others ask or not.
WINDOW_SECONDS = 60.0
#: Seconds for which an idle connection stays open.
IDLE_SECONDS = 60
#: Seconds that a connection has for a question: for the first since it is there, for each further
#: one since its first byte.
QUESTION_SECONDS = 5
#: Open connections; one more takes the place of the one that has asked nothing for the longest.
MAX_CONNECTIONS = 64

#: Figures that one step collects: those of a group in a topic, for which queues are read.
_OF_A_STEP = 5


class Monitoring:
    """Answers over HTTP what a server measures and whether it is ready.

    `metrics` yields its figures. `not_ready` says why it cannot serve its clients yet; an empty
    text means that it can.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        config: MonitoringConfig,
        in_thread: InThread,
        metrics: Callable[[], Iterable[Metric]],
        not_ready: Callable[[], str],
    ) -> None:
        self._reactor = reactor
        self._config = config
        self._in_thread = in_thread
        self._metrics = metrics
        self._not_ready = not_ready
        self._slices = Slices(reactor)
        self._pages = SharedResults(self._slices)
        self._delays = LongestDelay(reactor)
        self._listening: IListeningPort | None = None
        self._is_stopping = False

    def start(self) -> int:
        """Listens where the configuration says so, and returns the port; 0 where it does not.
        Raises `CannotListenError`."""
        config = self._config
        if not config.is_enabled:
            return 0
        root = Resource()
        root.putChild(b"metrics", _Page(self._page, METRICS_CONTENT_TYPE))
        root.putChild(b"healthz", _Health(lambda: ""))
        root.putChild(b"readyz", _Health(self._why_not_ready))
        host = config.metrics_prom_exporter_host
        site = _Limited(
            self._reactor,
            _QuietSite(root, requestFactory=_Question, timeout=IDLE_SECONDS, reactor=self._reactor),
        )
        listening = self._listening = self._reactor.listenTCP(
            config.metrics_prom_exporter_port, site, interface=host
        )
        port: int = listening.getHost().port
        self._delays.start()
        self.log.info(
            "monitoring: http://{address}/metrics, /healthz, /readyz",
            address=join_address(host, port),
        )
        return port

    def server_stops(self) -> None:
        """Answers from now on that the server is being stopped, and tells none of its figures."""
        self._is_stopping = True

    def stop(self) -> Deferred[Any]:
        """Closes the port; fires once it is closed."""
        self.server_stops()
        self._delays.stop()
        listening, self._listening = self._listening, None
        return succeed(None) if listening is None else maybeDeferred(listening.stopListening)

    def _why_not_ready(self) -> str:
        """Connections that are open when the server stops may still ask."""
        return "it is being stopped" if self._is_stopping else self._not_ready()

    def _page(self) -> Deferred[bytes]:
        """Fires with all figures; questions that meet share one answer."""
        return self._pages.get("metrics", self._make_page)

    @inlineCallbacks
    def _make_page(self) -> Generator[Deferred[Any], Any, bytes]:
        figures: list[Metric] = []
        yield self._slices(self._collect(figures))
        page: bytes = yield self._in_thread(lambda: exposition(figures))
        return page

    def _collect(self, figures: list[Metric]) -> Iterator[None]:
        """Fills `figures`, in steps."""
        delay = gauge(
            "rocketmq_reactor_longest_delay", self._delays.longest * 1000, unit="milliseconds"
        )
        figures += labelled([delay], self._config.labels)
        told = () if self._is_stopping else self._metrics()
        for number, metric in enumerate(labelled(told, self._config.labels)):
            figures.append(metric)
            if number % _OF_A_STEP == 0:
                yield


class LongestDelay:
    """Measures how late the reactor came, at most, to a call that was due; its clients waited as
    long."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        #: In seconds, of the window that is open and of the one before.
        self._now = self._before = 0.0
        self._window_ends = 0.0
        self._expected: float | None = None
        self._measuring = PeriodicCall(
            clock, "measuring the reactor's delay", _LOOK_SECONDS, self._measure
        )

    @property
    def longest(self) -> float:
        """The longest delay in seconds of the last one to two minutes."""
        return max(self._now, self._before)

    def start(self) -> None:
        """Measures from now on."""
        now = self._clock.seconds()
        self._expected = now + _LOOK_SECONDS
        self._window_ends = now + WINDOW_SECONDS
        self._measuring.start()

    def stop(self) -> None:
        """Measures no more."""
        self._measuring.stop()

    def _measure(self) -> None:
        now = self._clock.seconds()
        if now >= self._window_ends:
            self._before, self._now = self._now, 0.0
            self._window_ends = now + WINDOW_SECONDS
        if self._expected is not None:
            self._now = max(self._now, now - self._expected)
        self._expected = now + _LOOK_SECONDS


class _Channel(http.HTTPChannel):
    """Questions are short: what Prometheus sends has 300 bytes."""

    maxHeaders = 100
    totalHeadersSize = 4096

    def lineReceived(self, line: bytes) -> None:
        if line[:1] in (b" ", b"\t"):
            # A header that goes on, which Twisted puts together anew with each line. None has to be
            # taken (RFC 9112, 5.2).
            _refuse(self, b"400 Bad Request")
        else:
            super().lineReceived(line)


def _refuse(transport: Any, status: bytes) -> None:
    transport.write(b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % status)
    transport.loseConnection()


class _QuietSite(Site):
    noisy = False
    protocol: Any = _Channel

    def log(self, request: Any) -> None:
        """Requests come every few seconds: no line for each."""


class _Connection(ProtocolWrapper):
    """A connection over which pages are asked for."""

    def __init__(self, factory: Any, wrapped: Any) -> None:
        super().__init__(factory, wrapped)
        self._factory: _Limited = factory
        self._waiting = Alarm(self.clock, self.close)
        self._open = 0

    @property
    def clock(self) -> IReactorTime:
        return self._factory.clock

    @property
    def is_answered(self) -> bool:
        """Whether no question waits for its answer."""
        return not self._open

    def connectionMade(self) -> None:
        super().connectionMade()
        self._waiting.set(QUESTION_SECONDS)

    def dataReceived(self, data: bytes) -> None:
        if self.disconnecting:
            # Behind a refusal comes what is refused. Twisted would take chunks of a body apart, and
            # on PyPy fail at that: its view of them lives too long.
            return
        if self.is_answered and not self._waiting.is_set:
            self._waiting.set(QUESTION_SECONDS)
        super().dataReceived(data)

    def connectionLost(self, reason: Any = connectionDone) -> None:
        self._waiting.cancel()
        super().connectionLost(reason)

    def close(self) -> None:
        """Ends it at once."""
        self._waiting.cancel()
        self._factory.unregisterProtocol(self)
        self.abortConnection()

    def asked(self) -> None:
        """Notes that a question has come whole."""
        self._waiting.cancel()
        self._open += 1

    def answered(self) -> None:
        """Notes that the answer is written."""
        self._open -= 1
        self._factory.used(self)


class _Question(Request):
    """A question; its connection is told when it is there and when it is answered. None has a body:
    Twisted would keep one of any size, in a file."""

    def gotLength(self, length: int | None) -> None:
        super().gotLength(0)
        if length != 0:
            _refuse(self.transport, b"413 Content Too Large")

    def handleContentChunk(self, data: bytes) -> None:
        """Drops what came with a question that is refused already."""

    def process(self) -> None:
        """Answers in the next turn of the reactor: one read has thousands of questions, and the
        channel looks at the next one when this is answered."""
        connection: Any = self.transport
        connection.asked()
        turn: IDelayedCall = connection.clock.callLater(0, super().process)

        def over(_: object) -> None:
            if turn.active():
                turn.cancel()
            connection.answered()

        self.notifyFinish().addBoth(over)


class _Limited(WrappingFactory):
    """Few connections: monitoring needs no more, and strangers get no more. Those that stay silent
    keep nobody out."""

    noisy = False
    protocol = _Connection

    def __init__(self, clock: IReactorTime, wrapped: Any) -> None:
        super().__init__(wrapped)
        self.clock = clock

    def buildProtocol(self, addr: Any) -> Any:
        if len(self.protocols) >= MAX_CONNECTIONS:
            idle = next((one for one in self.protocols if one.is_answered), None)
            if idle is None:
                return None
            idle.close()
        return super().buildProtocol(addr)

    def unregisterProtocol(self, p: Any) -> None:
        # One that was closed is not counted any more, and told that it is lost later.
        self.protocols.pop(p, None)

    def used(self, connection: _Connection) -> None:
        """Makes it the last one that is closed when there are too many."""
        if self.protocols.pop(connection, None):
            self.protocols[connection] = 1


class _Page(Resource):
    """A page that is made anew for each question."""

    isLeaf = True
    _log = Logger()

    def __init__(self, make: Callable[[], Deferred[bytes]], content_type: str) -> None:
        super().__init__()
        self._make = make
        self._content_type = content_type.encode()

    def render_GET(self, request: Any) -> object:
        gone: list[object] = []
        request.notifyFinish().addErrback(gone.append)

        def made(page: bytes) -> None:
            if not gone:
                request.setHeader(b"content-type", self._content_type)
                request.write(page)
                request.finish()

        def failed(failure: Failure) -> None:
            self._log.failure("a page for monitoring cannot be made", failure=failure)
            if not gone:
                request.setResponseCode(http.INTERNAL_SERVER_ERROR)
                request.finish()

        self._make().addCallbacks(made, failed)
        return NOT_DONE_YET


class _Health(Resource):
    """Answers 200 while `why_not` returns an empty text, 503 with the text otherwise."""

    isLeaf = True

    def __init__(self, why_not: Callable[[], str]) -> None:
        super().__init__()
        self._why_not = why_not

    def render_GET(self, request: Any) -> bytes:
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        reason = self._why_not()
        if reason:
            request.setResponseCode(http.SERVICE_UNAVAILABLE)
        return f"{reason or 'ok'}\n".encode()
