"""Elections that a controller begins by itself, where the master of a group is gone."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.controller.core.election import BrokerLife
from rocketmq_tw.controller.core.live_brokers import ReplicaKey
from rocketmq_tw.controller.core.reads import groups_to_reelect
from rocketmq_tw.controller.core.requests import make_election
from rocketmq_tw.controller.decider import Decider
from rocketmq_tw.controller.notifications import RoleNotifier
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.controller import ElectMasterRequestHeader

#: Refusals that another attempt at once would meet as well.
_NOT_NOW = (ResponseCode.CONTROLLER_NOT_LEADER, ResponseCode.SYSTEM_BUSY)
#: Elections under way at once, at most; there may be thousands of groups.
MAX_AT_ONCE = 64


class Elections:
    """Looks at each group whose broker is lost, and from time to time at all of them."""

    log = Logger()

    def __init__(
        self,
        clock: Any,
        decider: Decider,
        life: BrokerLife,
        notifier: RoleNotifier,
        config: ControllerConfig,
    ) -> None:
        self._decider = decider
        self._life = life
        self._notifier = notifier
        self._config = config
        self._under_way: set[str] = set()
        #: Groups in which an election is to begin, in order.
        self._wanted: dict[str, None] = {}
        self._is_beginning = False
        scan = PeriodicCall(
            clock,
            "the look for groups without their master",
            config.scan_inactive_master_interval / 1000,
            self.scan,
        )
        self.start, self.stop = scan.start, scan.stop

    def broker_gone(self, key: ReplicaKey) -> None:
        """Starts an election if the lost broker `key` was the master of its group."""
        group = self._decider.machine.state.group(key.name)
        if group is None or group.cluster != key.cluster or group.sync.master != key.broker_id:
            return
        self._elect(key.name)

    def scan(self) -> None:
        """Elects in all groups that live without their master."""
        if self._decider.leads:
            for name in list(groups_to_reelect(self._decider.machine.state, self._life)):
                self._elect(name)

    def _elect(self, name: str) -> None:
        if name not in self._under_way:
            self._wanted[name] = None
            self._begin()

    def _begin(self) -> None:
        if self._is_beginning:
            return
        self._is_beginning = True
        while self._wanted and len(self._under_way) < MAX_AT_ONCE:
            if not self._decider.leads:
                self._wanted.clear()
                break
            name = next(iter(self._wanted))
            del self._wanted[name]
            self._under_way.add(name)
            electing = Deferred.fromCoroutine(self._try_to_elect(name))
            electing.addErrback(self._failed, name).addBoth(self._done, name)
        self._is_beginning = False

    def _done(self, _: object, name: str) -> None:
        self._under_way.discard(name)
        self._begin()

    async def _try_to_elect(self, name: str) -> None:
        """Tries again where the Raft group did not answer, never where no broker can be elected."""
        request = ElectMasterRequestHeader(broker_name=name)
        for attempt in range(1, self._config.elect_master_max_retry_count + 1):
            try:
                election = make_election(request, self._config)
                decision = await self._decider.elect(name, election)
            except RequestError as error:
                self.log.warn(
                    "attempt {attempt} at an election in group {name} failed: {reason}",
                    name=name,
                    attempt=attempt,
                    reason=error,
                )
                if error.code == ResponseCode.SYSTEM_BUSY:
                    # Nor is there room for any other one now; the next scan finds them all.
                    self._wanted.clear()
                if error.code in _NOT_NOW:
                    return
                continue
            if decision.code != ResponseCode.SUCCESS:
                self.log.warn(
                    "group {name} elects no master: {reason}", name=name, reason=decision.remark
                )
            elif self._config.notify_broker_role_changed:
                self._notifier.elected(decision)
            return

    def _failed(self, failure: Failure, name: str) -> None:
        self.log.failure("an election in group {name} failed", failure, name=name)
