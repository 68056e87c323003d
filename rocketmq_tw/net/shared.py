"""What all connections of a server share: its limits, the look at who is idle, the outboxes."""

from collections.abc import Sized
from typing import Any, Protocol

from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.descriptors import room_for_connections
from rocketmq_tw.net.outbox import Outboxes
from rocketmq_tw.net.request_turns import RequestTurns
from rocketmq_tw.net.stalls import StallLog

#: Seconds between two looks at idle and stuck connections.
SWEEP_INTERVAL = 5.0


class Budget:
    """The bytes that all connections of a server hold together, and how many they may.

    Where it is used up, who holds little goes on: half of the limit, in equal shares, belongs to
    the connections that are open, whatever the others hold.
    """

    def __init__(self, limit: int, sharers: Sized) -> None:
        self.limit = limit
        self.used = 0
        self._sharers = sharers

    def refuses(self, held: int) -> bool:
        """Whether the limit is passed and a connection that holds so many bytes has to give way."""
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
        self._sweep = LoopingCall(self._check_all)
        self._sweep.clock = clock

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
        self.log.info(
            "at most {limit} connections are taken (maxConnections {wanted}, and the limit of open"
            " files leaves room for {room})",
            limit=self.limit,
            wanted=self._config.max_connections,
            room=self._room,
        )

    def has_room(self, peer: str) -> bool:
        """Whether one more connection, of `peer`, may be taken; logs the first that may not."""
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
        if not self._sweep.running:
            idle = self._config.server_channel_max_idle_time_seconds
            self._sweep.start(min(SWEEP_INTERVAL, max(0.1, idle / 4)), now=False)

    def discard(self, connection: WatchedConnection) -> None:
        """Forgets a connection that is gone."""
        self._open.discard(connection)
        if not self._open and self._sweep.running:
            self._sweep.stop()

    def _check_all(self) -> None:
        now = self._clock.seconds()
        for connection in list(self._open):
            connection.check(now)


class Shared:
    """What a server gives to each of its connections."""

    def __init__(self, clock: Any, config: NettyServerConfig) -> None:
        self.clock = clock
        self.config = config
        self.connections = ConnectionTable(clock, config)
        self.budget = Budget(config.max_bytes_in_flight, self.connections)
        self.outboxes = Outboxes()
        self.turns = RequestTurns(clock, self.outboxes.gather)
        self.stalls = StallLog(clock.seconds)
