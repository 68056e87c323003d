"""Delivers the delay levels in a role that does so: it finds out what a former master has delivered
already, and delivers the rest."""

from __future__ import annotations

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.delay.catch_up import CatchUp
from rocketmq_tw.broker.delay.delivery import DelayDelivery
from rocketmq_tw.broker.delay.levels import DelayLevels
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.runtime.scope import Scope

log = Logger()


class DelayWork:
    """Delivers in stretches: each from `begin` to the next `pause`, or to the end of `scope`, the
    role's. `acts`: the role is that of a slave that acts for its master."""

    def __init__(
        self,
        host: Host,
        writing: Writing,
        levels: DelayLevels,
        offsets: DelayOffsets,
        scope: Scope,
        *,
        acts: bool,
    ) -> None:
        self._host = host
        self._writing = writing
        self._levels = levels
        self._offsets = offsets
        self._scope = scope
        self._acts = acts
        self._stretch = Scope()
        #: That of the last stretch; None until the first one has found out what is delivered.
        self.delivery: DelayDelivery | None = None

    def begin(self) -> None:
        """Begins a stretch, once all of the log is in its queues."""
        stretch = self._stretch = Scope()
        stretch.on_end(self._scope.on_end(stretch.end))
        dispatched = self._writing.dispatcher.when_dispatched(lambda: self._catch_up(stretch))
        stretch.on_end(dispatched)

    def pause(self) -> Deferred[None]:
        """Ends the stretch; fires once nothing of it is under way."""
        self._stretch.end()
        return succeed(None) if self.delivery is None else self.delivery.finished()

    def _catch_up(self, stretch: Scope) -> None:
        """Delivers once the offsets are behind what a former master has delivered."""
        begin = self._offsets.followed_at
        if begin is None:
            self._deliver(stretch)
            return
        catch_up = CatchUp(self._writing.store, self._levels, self._offsets, begin)

        def caught_up(_: object) -> None:
            log.info(
                "the former master has delivered {count} more delayed messages than it told",
                count=catch_up.count,
            )

        def failed(failure: Failure) -> None:
            log.failure(
                "what delayed messages the former master has delivered cannot be found out: the"
                " last of them may come once more",
                failure,
            )

        done = self._host.in_slices(stretch.steps(catch_up.steps()))
        done.addCallbacks(stretch.while_it_lasts(caught_up), failed)
        done.addCallback(lambda _: self._deliver(stretch))

    def _deliver(self, stretch: Scope) -> None:
        if stretch.is_over:
            return
        offsets = self._offsets
        offsets.followed_at = None
        if self._acts:
            # Should it act once more, the master may have delivered behind this place meanwhile.
            offsets.followed_at = self._writing.store.end_offset
            offsets.renew_version()
        self.delivery = DelayDelivery(
            self._writing.store,
            self._writing.delivery_sink,
            self._levels,
            offsets,
            self._host.reactor,
            self._host.now_ms,
            stretch,
        )
