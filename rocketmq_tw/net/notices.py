"""Oneway requests that tell news to addresses, of which only the newest matters."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.wire.command import RemotingCommand


class LatestNotices:
    """Sends notices; one to an address takes the place of the one before that still waits for its
    connection. At most `most` wait: anybody may have named any number of addresses. A peer that
    misses a notice has to ask from time to time."""

    log = Logger()

    def __init__(self, client: IRemotingClient, most: int, news: str) -> None:
        """`news` names what is told, in the log."""
        self._client = client
        self._news = news
        self._most = most
        self._on_their_way: dict[str, Deferred[None]] = {}

    def tell(self, address: str, command: RemotingCommand) -> None:
        """Sends `command`, which is oneway."""
        old = self._on_their_way.pop(address, None)
        if old is not None:
            old.cancel()
        if len(self._on_their_way) >= self._most:
            self.log.warn(
                "{address} is not told {news}: {count} others are not reached yet",
                address=address,
                news=self._news,
                count=self._most,
            )
            return
        sending = self._client.send_oneway(address, command)
        self._on_their_way[address] = sending
        sending.addErrback(self._not_told, address).addBoth(self._done, address, sending)

    def _not_told(self, failure: Failure, address: str) -> None:
        if failure.check(CancelledError) is None:
            self.log.warn(
                "{address} is not told {news}: {reason}",
                address=address,
                news=self._news,
                reason=failure.getErrorMessage(),
            )

    def _done(self, _: object, address: str, sending: Deferred[None]) -> None:
        if self._on_their_way.get(address) is sending:
            del self._on_their_way[address]
