"""A group that has no leader for longer than an election takes: the server's log tells."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.raft.core.config import NodeConfig
from rocketmq_tw.raft.core.raft_core import RaftCore
from rocketmq_tw.runtime.alarm import Alarm

#: How long there is none until that is told.
LEADERLESS_SECONDS = 10.0


class Leaderless:
    """Watches whether `core` knows of a leader."""

    log = Logger()

    def __init__(self, clock: IReactorTime, config: NodeConfig, core: RaftCore) -> None:
        self._config = config
        self._core = core
        self._alarm = Alarm(clock, self._tell)

    def look(self) -> None:
        """To be called at the start, and after each change of the role or the leader."""
        if self._core.leader_id is not None:
            self._alarm.cancel()
        else:
            self._alarm.set_if_unset(LEADERLESS_SECONDS)

    def stop(self) -> None:
        """Watches no more."""
        self._alarm.cancel()

    def _tell(self) -> None:
        if self._core.leader_id is None:
            self.log.warn(
                "{group}/{member}: no leader for {seconds:.0f} s: more than half of {members} have"
                " to run and to reach each other",
                group=self._config.group,
                member=self._core.config.self_id,
                seconds=LEADERLESS_SECONDS,
                members=";".join(f"{id_}-{at}" for id_, at in self._config.peers.items()),
            )
