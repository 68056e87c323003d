"""Counts for monitoring, with stock 5.3.3's names and labels: a controller's requests, its appends
to the log of the group, and elections."""

from collections.abc import Callable, Iterator
from enum import Enum

from rocketmq_tw.metrics.instruments import Counters, Histogram, Metric
from rocketmq_tw.wire.codes import RequestCode, ResponseCode

#: Upper bounds of the buckets, in microseconds, as in stock.
_LATENCY_BOUNDS = tuple(n * 10**power for power in range(7) for n in (1, 3, 5))
_LATENCY_BOUNDS += (10**7,)

#: What stock calls how an election ended; others were none.
_RESULTS: dict[int, str] = {
    ResponseCode.SUCCESS: "new_master_elected",
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST: "keep_current_master",
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE: "no_master_elected",
    ResponseCode.CONTROLLER_ELECT_MASTER_FAILED: "no_master_elected",
}


class Status(Enum):
    """How a request or an append ended, in stock's words."""

    SUCCESS = "success"
    FAILED = "failed"
    TIMEOUT = "timeout"


class ControllerCounts:
    """Counts since the controller's start. Figures of a group of brokers end with it: `is_group`
    tells whether one of that name is there."""

    def __init__(self, is_group: Callable[[str], bool]) -> None:
        self._is_group = is_group
        self._requests: Counters[tuple[int, Status]] = Counters("request_total", _of_request)
        self._request_latency: Histogram[int] = Histogram(
            "request_latency", _LATENCY_BOUNDS, _of_code, unit="microseconds"
        )
        self._appends: Counters[Status] = Counters("dledger_op_total", _of_append)
        self._append_latency: Histogram[Status] = Histogram(
            "dledger_op_latency", _LATENCY_BOUNDS, _of_append, unit="microseconds"
        )
        self._elections: Counters[tuple[str, str, str]] = Counters("election_total", _of_election)

    def request(self, code: int, status: Status, seconds: float) -> None:
        """Counts a request that has a handler and took so long; of those that succeeded, which a
        refusal does too, the time."""
        self._requests.add((code, status))
        if status is Status.SUCCESS:
            self._request_latency.record(code, seconds * 1e6)

    def append(self, status: Status, seconds: float) -> None:
        """Counts what was appended together, and of what was applied the time until then."""
        self._appends.add(status)
        if status is Status.SUCCESS:
            self._append_latency.record(status, seconds * 1e6)

    def election(self, cluster: str, broker_set: str, code: int) -> None:
        """Counts an election in a group by the code of its decision; another one is no election's
        outcome."""
        result = _RESULTS.get(code)
        if result is not None:
            self._elections.add((cluster, broker_set, result))

    def metrics(self) -> Iterator[Metric]:
        """Yields what was counted, of the groups that are there."""
        self._elections.forget_where(lambda key: not self._is_group(key[1]))
        yield from self._requests.metrics()
        yield from self._request_latency.metrics()
        yield from self._appends.metrics()
        yield from self._append_latency.metrics()
        yield from self._elections.metrics()


def _of_code(code: int | None) -> dict[str, str]:
    if code is None:
        return {}
    # Stock's names: those of the codes, and all with the prefix.
    return {"request_type": "CONTROLLER_" + RequestCode(code).name.removeprefix("CONTROLLER_")}


def _of_request(key: tuple[int, Status] | None) -> dict[str, str]:
    return {} if key is None else _of_code(key[0]) | {"request_handle_status": key[1].value}


def _of_append(status: Status | None) -> dict[str, str]:
    operation = {"dledger_operation": "append"}
    return operation if status is None else operation | {"dLedger_operation_status": status.value}


def _of_election(key: tuple[str, str, str] | None) -> dict[str, str]:
    return (
        {}
        if key is None
        else dict(zip(("cluster", "broker_set", "election_result"), key, strict=True))
    )
