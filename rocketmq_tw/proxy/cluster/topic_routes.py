"""Routes of the topics that clients use; what they use no more is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from math import inf
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.name_servers import NameServers, Routes
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.brokers import ABSENT_SECONDS
from rocketmq_tw.proxy.cluster.known_brokers import KEEP_SECONDS
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError, WireError

#: Seconds between two looks for topics that nobody used.
_LOOK_SECONDS = 10.0
#: Characters of a topic that is remembered as absent: those of servers and clients are shorter.
_LONGEST_NAME = 512


class TopicRoutes:
    """Gives routes out from memory, where name servers are asked for them again and again."""

    def __init__(self, clock: IReactorTime, config: ProxyConfig, names: NameServers) -> None:
        self._clock = clock
        self._config = config
        self._routes = Routes(clock, names, keep=KEEP_SECONDS)
        #: Topic -> when it was asked for last; the longest ago is first.
        self._used: dict[str, float] = {}
        #: Topic -> when name servers had no route of it; the longest ago is first.
        self._absent: dict[str, float] = {}
        self._forgetting = PeriodicCall(
            clock, "forgetting unused routes", _LOOK_SECONDS, self._forget_unused
        )

    def start(self) -> None:
        """Refreshes the routes in use from now on."""
        self._routes.start()
        self._forgetting.start()

    def stop(self) -> None:
        """Refreshes routes no more."""
        self._routes.stop()
        self._forgetting.stop()

    def on_change(self, callback: Callable[[str, TopicRouteData], None]) -> None:
        """Calls `callback(topic, route)` for each route that came and is another one."""
        self._routes.on_change(callback)

    def get(
        self, topic: str, absent_seconds: float = ABSENT_SECONDS
    ) -> Deferred[TopicRouteData | None]:
        """Fires with a route, as `IBrokers.route` says; `absent_seconds` are `ABSENT_SECONDS` at
        most."""
        absent_since = self._absent.get(topic, -inf)
        if self._clock.seconds() - absent_since < absent_seconds:
            return succeed(None)
        self._use(topic)
        return self._routes.get(topic).addCallbacks(self._found, _refuse, callbackArgs=(topic,))

    def known(self, topic: str) -> TopicRouteData | None:
        """Returns a route that is in memory, and has it stay there; None without one."""
        route = self._routes.known().get(topic)
        if route is not None:
            self._use(topic)
        return route

    def refresh(self, topic: str) -> Deferred[TopicRouteData | None]:
        """Fires with the route as name servers have it now."""
        self._use(topic)
        return self._routes.refresh(topic).addCallbacks(self._found, _refuse, callbackArgs=(topic,))

    def _found(self, route: TopicRouteData | None, topic: str) -> TopicRouteData | None:
        self._absent.pop(topic, None)
        if route is None:
            self._forget(topic)
            if len(topic) <= _LONGEST_NAME:
                self._absent[topic] = self._clock.seconds()
            if len(self._absent) > self._config.topic_route_service_cache_max_num:
                del self._absent[next(iter(self._absent))]
        return route

    def _use(self, topic: str) -> None:
        self._used.pop(topic, None)
        self._used[topic] = self._clock.seconds()
        if len(self._used) > self._config.topic_route_service_cache_max_num:
            self._forget(next(iter(self._used)))

    def _forget_unused(self) -> None:
        oldest = self._clock.seconds() - self._config.topic_route_service_cache_expired_seconds
        for topic, at in list(self._used.items()):
            if at >= oldest:
                break
            self._forget(topic)
        fresh = self._clock.seconds() - ABSENT_SECONDS
        for topic in list(takewhile(lambda topic: self._absent[topic] <= fresh, self._absent)):
            del self._absent[topic]

    def _forget(self, topic: str) -> None:
        self._used.pop(topic, None)
        self._routes.forget(topic)


def _refuse(failure: Failure) -> Any:
    failure.trap(ClientError, WireError)
    raise RequestError(ResponseCode.SYSTEM_ERROR, f"no route: {failure.getErrorMessage()}")
