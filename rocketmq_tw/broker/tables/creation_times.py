"""Measures how long it took to make or change topics and groups, as stock 5.3.3's histograms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.metrics.instruments import Histogram, Metric, truth
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand

#: Upper bounds of the buckets, in milliseconds, as in stock.
_BOUNDS = (10, 100, 1000, 3000, 5000)
_OF_TOPICS = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
)
_OF_GROUPS = (
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
)


class _Kind(NamedTuple):
    succeeded: bool
    #: Whether it is a system's topic; None of a group.
    is_system: bool | None


class CreationTimes:
    """Measures the handlers that make topics and groups, until each has its answer."""

    def __init__(self, clock: IReactorTime, is_system: Callable[[str], bool]) -> None:
        self._clock = clock
        self._is_system = is_system
        self._topics = _times("rocketmq_topic_create_execution_time")
        self._groups = _times("rocketmq_consumer_group_create_execution_time")

    def metrics(self) -> Iterator[Metric]:
        """Yields both histograms, in milliseconds, by how it ended."""
        yield from self._topics.metrics()
        yield from self._groups.metrics()

    def measuring(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Returns `handlers`, of which those that make topics and groups are measured."""
        return {code: self._measuring(code, handler) for code, handler in handlers.items()}

    def _measuring(self, code: int, handler: Handler) -> Handler:
        if code in _OF_TOPICS:
            times = self._topics
        elif code in _OF_GROUPS:
            times = self._groups
        else:
            return handler

        def measured(request: RemotingCommand, peer: IPeer) -> Any:
            began = self._clock.seconds()
            topic = request.ext_fields.get("topic", "") if times is self._topics else None

            def ended(result: Any, *, succeeded: bool = True) -> Any:
                is_system = None if topic is None else self._is_system(topic)
                took_ms = (self._clock.seconds() - began) * 1000
                times.record(_Kind(succeeded, is_system), took_ms)
                return result

            try:
                result = handler(request, peer)
            except Exception:
                ended(None, succeeded=False)
                raise
            if not isinstance(result, Deferred):
                return ended(result)
            return result.addCallbacks(ended, ended, errbackKeywords={"succeeded": False})

        return measured


def _times(name: str) -> Histogram[_Kind]:
    return Histogram(name, _BOUNDS, _labels_of, unit="milliseconds")


def _labels_of(kind: _Kind | None) -> Mapping[str, str]:
    if kind is None:
        return {}
    labels = {"invocation_status": "success" if kind.succeeded else "failure"}
    if kind.is_system is not None:
        labels["is_system"] = truth(kind.is_system)
    return labels
