"""Measures the requests of every server, and writes the line of the log that tells its metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.metrics.instruments import Histogram, Metric, truth
from rocketmq_tw.net.interfaces import RequestResult
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.codes import RequestCode, ResponseCode

#: Upper bounds of the buckets, in milliseconds, as in stock.
LATENCY_BOUNDS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
#: Seconds between two lines in the log.
LOG_SECONDS = 600.0
#: Figures that are told at a time, and how many of them one line has.
MAX_LOGGED = 200
OF_A_LINE = 20
#: What figures have that nothing was counted for yet.
_NOTHING = ("0", "0.0")
#: Stands for all codes that the protocol does not have: peers may invent any number of them.
_UNKNOWN = -1


def request_latency() -> Histogram[RequestResult]:
    """Returns stock's `rocketmq_rpc_latency`: the milliseconds that requests took, by request code
    and response code, by whether they were held, and by what became of the response; codes that the
    protocol does not have are `unknown`. Its `record` is an
    observer for `IListener.observe`."""
    return Histogram(
        "rocketmq_rpc_latency", LATENCY_BOUNDS, _labels_of, _counted_as, unit="milliseconds"
    )


class MetricsLog:
    """Logs the figures that `metrics` returns every ten minutes: those that are others than the
    time before, and not 0 at first."""

    log = Logger()

    def __init__(self, clock: IReactorTime, metrics: Callable[[], Iterable[Metric]]) -> None:
        self._metrics = metrics
        #: What was told last of each figure that was looked at last.
        self._told: dict[str, str] = {}
        self._lines = PeriodicCall(clock, "logging metrics", LOG_SECONDS, self._log)

    def start(self) -> None:
        """Logs from now on, for the first time in ten minutes."""
        self._lines.start()

    def stop(self) -> None:
        """Logs no more."""
        self._lines.stop()

    def _log(self) -> None:
        now = {each.series: str(each.value) for each in islice(self._metrics(), MAX_LOGGED)}
        before, self._told = self._told, now
        changes = [
            f"{name} {value}"
            for name, value in now.items()
            if value != before.get(name) and (name in before or value not in _NOTHING)
        ]
        for start in range(0, len(changes), OF_A_LINE):
            self.log.info("metrics: {figures}", figures=", ".join(changes[start:][:OF_A_LINE]))


def _labels_of(result: RequestResult | None) -> Mapping[str, str]:
    labels = {"protocol_type": "remoting"}
    if result is not None:
        request_code, response_code, suspended, outcome = result
        labels["is_long_polling"] = truth(suspended)
        labels["result"] = outcome
        labels["request_code"] = _name(RequestCode, request_code)
        if response_code is not None:
            labels["response_code"] = _name(ResponseCode, response_code)
    return labels


def _counted_as(result: RequestResult) -> RequestResult:
    request_code, response_code, suspended, outcome = result
    if response_code is not None:
        response_code = _known(ResponseCode, response_code)
    return _known(RequestCode, request_code), response_code, suspended, outcome


def _known(codes: type[RequestCode] | type[ResponseCode], code: int) -> int:
    try:
        codes(code)
    except ValueError:
        return _UNKNOWN
    return code


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    """Returns the name of a code as stock's labels have it."""
    return "unknown" if code == _UNKNOWN else codes(code).name.lower()
