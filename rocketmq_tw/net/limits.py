"""Bounds the connections of a server: their number, their memory, and their share of time.

Connections that ask much are served one after the other, so that those that ask little need not
wait: a round of the reactor serves what came on all connections, up to 64 KiB of each, and a
thousand that send without end would keep all others and all timers waiting for seconds. Once a
round takes long, each connection has a few of its requests carried out; the rest waits, and nothing
more is read from the connection, until others had their few.
"""

from collections.abc import Callable, Hashable, Sized
from functools import partial
from typing import Any, Protocol

from twisted.logger import Logger

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.descriptors import room_for_connections
from rocketmq_tw.net.outbox import Outboxes
from rocketmq_tw.net.stalls import StallLog
from rocketmq_tw.runtime.fairness import FairQueue
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.turns import turns_of

#: Seconds between two looks at idle and stuck connections.
SWEEP_INTERVAL = 5.0
#: Seconds after which a round of the reactor takes long, and that requests which wait take of each
#: round.
LONG_ROUND = 0.02
#: Requests of a connection that are carried out however long the round takes.
SHARE = 4


class Budget:
    """The bytes that all connections of a server hold together, and how many they may.

    Once it is used up, connections that hold little go on: half of the limit is divided in equal
    shares among the connections that are open, whatever the others hold.
    """

    def __init__(self, limit: int, sharers: Sized) -> None:
        self.limit = limit
        self.used = 0
        self._sharers = sharers

    def refuses(self, held: int) -> bool:
        """Returns whether the limit is passed and a connection that holds so many bytes has to give
        way."""
        return self.used > self.limit and held * 2 * len(self._sharers) > self.limit


class WatchedConnection(Protocol):
    """A connection that ends itself where it takes too long."""

    def check(self, now: float) -> None:
        """`now` is the clock's time in seconds."""


class ConnectionTable:
    """All open connections of a server: how many there may be, and a regular look at each."""

    log = Logger()

    def __init__(self, clock: Any, config: NettyServerConfig) -> None:
        self._clock = clock
        self._config = config
        self._room = room_for_connections()
        self._is_told = False
        self._open: set[WatchedConnection] = set()
        self._refusing = False
        idle = config.server_channel_max_idle_time_seconds
        self._sweep = PeriodicCall(
            clock,
            "looking at the connections",
            min(SWEEP_INTERVAL, max(0.1, idle / 4)),
            self._check_all,
        )

    def __len__(self) -> int:
        return len(self._open)

    @property
    def limit(self) -> int:
        """The connections that there may be: `maxConnections`, or fewer where the process may open
        too few files."""
        return min(self._config.max_connections, self._room)

    def tell_limit(self) -> None:
        """Logs, once, how many connections there may be."""
        if self._is_told:
            return
        self._is_told = True
        # Fewer than configured is news, the configured number is none.
        log = self.log.warn if self._room < self._config.max_connections else self.log.debug
        log(
            "at most {limit} connections are taken (maxConnections {wanted}, and the limit of open"
            " files leaves room for {room})",
            limit=self.limit,
            wanted=self._config.max_connections,
            room=self._room,
        )

    def has_room(self, peer: str) -> bool:
        """Returns whether one more connection, of `peer`, may be taken; logs the first that may
        not."""
        if len(self._open) < self.limit:
            self._refusing = False
            return True
        if not self._refusing:
            self._refusing = True
            self.log.warn(
                "refusing {peer} and others: {limit} connections are open (maxConnections, or the"
                " limit of open files)",
                peer=peer,
                limit=self.limit,
            )
        return False

    def add(self, connection: WatchedConnection) -> None:
        """Counts and watches a connection."""
        self._open.add(connection)
        self._sweep.start()

    def discard(self, connection: WatchedConnection) -> None:
        """Forgets a connection that is gone."""
        self._open.discard(connection)
        if not self._open:
            self._sweep.stop()

    def _check_all(self) -> None:
        now = self._clock.seconds()
        for connection in list(self._open):
            connection.check(now)


class WaitingConnection(Hashable, Protocol):
    """A connection with requests that were read and not carried out."""

    last_received: float

    def go_on(self) -> None:
        """Carries out some of them, and waits again where there are more."""


class RequestScheduler:
    """Schedules the requests of one server's connections; only on a reactor that knows its turns
    does a connection ever wait. `gather` carries out what writes to many peers."""

    def __init__(self, clock: Any, gather: Callable[..., None]) -> None:
        self._clock = clock
        self._reactor_turns = turns_of(clock)
        self._waiting: FairQueue[WaitingConnection] = FairQueue(
            clock, self._has_time, self._begin_turn, around=gather
        )
        self._turn_ends = 0.0

    def is_late(self) -> bool:
        """Returns whether only a few requests of a connection may be carried out now."""
        return bool(self._waiting) or self.is_round_over()

    def is_round_over(self) -> bool:
        """Returns whether what is served now has waited for as long as a round may take."""
        return self._reactor_turns.waited() >= LONG_ROUND

    def wait(self, connection: WaitingConnection) -> None:
        """Has `connection` go on behind all that wait."""
        self._waiting.add(connection, partial(self._go_on, connection))

    def _begin_turn(self) -> None:
        self._turn_ends = self._clock.seconds() + LONG_ROUND

    def _has_time(self) -> bool:
        return bool(self._clock.seconds() < self._turn_ends)

    def _go_on(self, connection: WaitingConnection) -> None:
        # So long at least its requests have waited.
        waited = self._clock.seconds() - connection.last_received
        self._reactor_turns.serve_late(waited, connection.go_on)


class ServerResources:
    """Holds what a server gives to each of its connections: configuration, limits, outboxes,
    scheduler."""

    def __init__(self, clock: Any, config: NettyServerConfig) -> None:
        self.clock = clock
        self.config = config
        self.connections = ConnectionTable(clock, config)
        self.budget = Budget(config.max_bytes_in_flight, self.connections)
        self.outboxes = Outboxes(clock)
        self.scheduler = RequestScheduler(clock, self.outboxes.gather)
        self.stalls = StallLog(clock.seconds)
