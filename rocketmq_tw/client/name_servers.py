"""Name servers, some of which may be down, and the routes that they give."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rocketmq_tw.client.errors import BrokerError, ClientError, NoRouteError
from rocketmq_tw.client.name_server_commands import read_route, route_command
from rocketmq_tw.net.address import name_server_addresses
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.shared_results import JoinedResults
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import WireError

#: Seconds between two looks at the routes in use.
ROUTE_INTERVAL = 30.0
REQUEST_TIMEOUT = 3.0
#: Topics without a route that are asked for again and again; of more, the ones asked for first are
#: forgotten.
MAX_MISSING = 10_000


class NameServers:
    """Asks one name server, and the next where that one does not answer; `ValueError` for what
    is no address."""

    def __init__(self, remoting: IRemotingClient, addresses: str | Sequence[str]) -> None:
        self.addresses = name_server_addresses(addresses)
        self._remoting = remoting
        self._current = 0

    def ask(self, make: Callable[[], RemotingCommand]) -> Deferred[tuple[str, RemotingCommand]]:
        """Fires with the address that answered and its answer; fails with `NoRouteError` that lists
        why none did. `make` gives the request, anew for each try."""
        return Deferred.fromCoroutine(self._ask(make))

    def route(self, topic: str) -> Deferred[TopicRouteData | None]:
        """Fires with the route of a topic; None where it has none."""
        return Deferred.fromCoroutine(self._route(topic))

    def pass_over(self, address: str) -> None:
        """Asks the one behind `address` first from now on."""
        self._current = (self.addresses.index(address) + 1) % len(self.addresses)

    async def _ask(self, make: Callable[[], RemotingCommand]) -> tuple[str, RemotingCommand]:
        reasons = []
        for step in range(len(self.addresses)):
            index = (self._current + step) % len(self.addresses)
            address = self.addresses[index]
            try:
                response = await self._remoting.request(address, make(), REQUEST_TIMEOUT)
            except RemotingError as error:
                reasons.append(str(error))
            else:
                self._current = index
                return address, response
        raise NoRouteError("no name server answers: " + "; ".join(reasons))

    async def _route(self, topic: str) -> TopicRouteData | None:
        for _ in self.addresses[1:]:
            try:
                return await self._next_route(topic)
            except (BrokerError, WireError):
                # Another one may have it.
                continue
        return await self._next_route(topic)

    async def _next_route(self, topic: str) -> TopicRouteData | None:
        """Returns the route as a name server has it; one that answers with an error is passed over
        from now on."""
        address, response = await self.ask(lambda: route_command(topic))
        try:
            return read_route(address, response)
        except (BrokerError, WireError):
            self.pass_over(address)
            raise


class Routes:
    """The routes in use, asked for once, and from `start` on looked at again every 30 seconds.

    A route that name servers have no more stays in use, since one that starts knows none at first:
    for `keep` seconds, in which it is what a refresh gives; without `keep` until it is forgotten.
    Of more than `most` routes the one that was asked for longest ago is forgotten.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        names: NameServers,
        *,
        keep: float | None = None,
        most: int | None = None,
    ) -> None:
        self._names = names
        self._reactor = reactor
        self._keep = keep
        self._most = most
        #: Topic with a route -> since when name servers have none.
        self._gone: dict[str, float] = {}
        #: With `most` in the order in which they were asked for.
        self._routes: dict[str, TopicRouteData] = {}
        #: Topic with a route -> when that came.
        self._came: dict[str, float] = {}
        #: Topics that nobody knew when asked, in order; they may come to be.
        self._missing: dict[str, None] = {}
        self._asking = JoinedResults[str, TopicRouteData | None]()
        #: Topics that were forgotten while they are asked for.
        self._forgotten: set[str] = set()
        self._changed: Listeners[str, TopicRouteData] = Listeners("a route changed")
        self._refresh = PeriodicCall(reactor, "asking for routes", ROUTE_INTERVAL, self.refresh_all)

    def start(self) -> None:
        """Asks for the routes in use every `ROUTE_INTERVAL` seconds from now on."""
        self._refresh.start()

    def stop(self) -> None:
        """Asks for routes by itself no more."""
        self._refresh.stop()

    def on_change(self, callback: Callable[[str, TopicRouteData], None]) -> Callable[[], None]:
        """Calls `callback(topic, route)` whenever a route came that differs from the one before;
        what is returned ends that."""
        return self._changed.add(callback)

    def known(self) -> dict[str, TopicRouteData]:
        """Returns topic to route, of all that are known."""
        return self._routes

    def get(self, topic: str, *, max_age: float | None = None) -> Deferred[TopicRouteData | None]:
        """Fires with the route, from memory where it is there, and came less than `max_age` seconds
        ago, if that is given."""
        route = self._routes.get(topic)
        if route is None:
            return self.refresh(topic)
        if max_age is not None and self._reactor.seconds() - self._came[topic] >= max_age:
            return self.refresh(topic)
        self._use(topic)
        return succeed(route)

    def refresh(self, topic: str) -> Deferred[TopicRouteData | None]:
        """Fires with the route as a name server has it now; those who ask at once share the
        request."""
        self._forgotten.discard(topic)
        return self._asking.get(
            topic, lambda: self._names.route(topic).addBoth(self._answered, topic)
        )

    def put(self, topic: str, route: TopicRouteData) -> None:
        """Takes a route that came another way."""
        known = self._routes.get(topic)
        self._routes[topic], self._came[topic] = route, self._reactor.seconds()
        self._use(topic)
        if known != route:
            self._changed.tell(topic, route)

    def outdate(self, topic: str) -> None:
        """Takes the route of a topic for older than any age."""
        if topic in self._came:
            self._came[topic] = -inf

    def forget(self, topic: str) -> None:
        """Asks for the route of a topic no more."""
        self._drop(topic)
        if topic in self._asking:
            self._forgotten.add(topic)

    def _use(self, topic: str) -> None:
        if self._most is not None:
            self._routes[topic] = self._routes.pop(topic)
            if len(self._routes) > self._most:
                self._drop(next(iter(self._routes)))

    def _drop(self, topic: str) -> None:
        for known in (self._routes, self._came, self._gone, self._missing):
            known.pop(topic, None)

    async def refresh_all(self) -> None:
        """Asks for all routes in use, and for topics that nobody knew; what fails is logged."""
        for topic in [*self._routes, *self._missing]:
            if topic not in self._routes and topic not in self._missing:
                # It was forgotten meanwhile.
                continue
            try:
                await self.refresh(topic)
            except (ClientError, WireError) as error:
                # What is known stays in use: brokers may well be there.
                self.log.warn("the route of {topic}: {error}", topic=topic, error=error)

    def _answered(self, result: Any, topic: str) -> Any:
        if topic in self._forgotten:
            self._forgotten.remove(topic)
        elif isinstance(result, TopicRouteData):
            self._missing.pop(topic, None)
            self._gone.pop(topic, None)
            self.put(topic, result)
        elif result is None and topic not in self._routes:
            self._missing[topic] = None
            if len(self._missing) > MAX_MISSING:
                del self._missing[next(iter(self._missing))]
        elif result is None and self._keep is not None:
            return self._kept(topic, self._keep)
        return result

    def _kept(self, topic: str, keep: float) -> TopicRouteData | None:
        """Returns the route of a topic that name servers do not have; forgets it after `keep`
        seconds."""
        now = self._reactor.seconds()
        if now - self._gone.setdefault(topic, now) < keep:
            return self._routes[topic]
        self._drop(topic)
        return None
