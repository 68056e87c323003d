"""Finds out whether a living broker has to make room for another member of its group that asks for
its id.

In a DLedger group the new master takes the id 0, and name servers know nothing of elections. The
former one gives the id up by itself where it can, a moment earlier or later. So the other one waits
for that, and gets the id at once where the holder does not answer any more.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketmq_tw.namesrv.brokers import LiveBroker
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.shared_results import JoinedResults
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds that a broker has to answer.
_ANSWER_SECONDS = 2.0
#: Seconds for which one waits for the other to give its id up; it waits 24 for its answer.
PATIENCE_SECONDS = 10.0
#: Seconds between two looks.
_PAUSE_SECONDS = 1.0


class IdConflicts:
    """Settles who gets an id of a group, by asking the one that has it."""

    log = Logger()

    def __init__(self, clock: Any, forget: Callable[[LiveBroker], object]) -> None:
        """`forget` forgets a broker that does not answer."""
        self._clock = clock
        self._forget = forget
        #: Whether the other end of a connection answers: it is asked once for all who wait for it.
        self._asked = JoinedResults[IPeer, bool]()

    @inlineCallbacks
    def settle(
        self, asking: IPeer, address: str, holder: Callable[[], LiveBroker | None]
    ) -> Generator[Deferred[Any], Any, None]:
        """Fires once `holder`, looked for anew each time, has given way to `address`, or will
        not."""
        end = self._clock.seconds() + PATIENCE_SECONDS
        while asking.connected:
            live = holder()
            if live is None:
                return
            answers = yield self._asked.get(live.owner, partial(self._answers, live.owner))
            if not answers and holder() is live:
                self.log.warn(
                    "broker {name} at {holder} does not answer, and {address} of its group asks for"
                    " its id: removed",
                    name=live.broker_name,
                    holder=live.key.address,
                    address=address,
                )
                self._forget(live)
                continue
            if self._clock.seconds() >= end:
                return
            yield deferLater(self._clock, _PAUSE_SECONDS)

    def _answers(self, owner: IPeer) -> Deferred[bool]:
        """Fires with whether the other end of a connection answers, whatever it says."""
        # Brokers do not know this request from a name server, and say so.
        question = RemotingCommand.request(RequestCode.BROKER_HEARTBEAT)
        asking = owner.request(question, _ANSWER_SECONDS)
        asking.addTimeout(_ANSWER_SECONDS, self._clock)
        return asking.addCallbacks(lambda _: True, lambda _: False)
