"""Tells whether messages that wait for replicas find as many as they are to wait for.

Rules: docs/replication.md, "What is promised".
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from rocketmq_tw.broker.role.health import GRACE_SECONDS
from rocketmq_tw.runtime.named_log import named

log = Logger()


class EnoughReplicas:
    """Looks now and then, and logs once where such messages are refused, and once where that is
    over: each sender hears of it, and nobody else would."""

    def __init__(self, refusal: Callable[[], str], log_name: str = "") -> None:
        """`refusal` is that of `IReplicator`."""
        self._refusal = refusal
        self._logger = named(log, log_name)
        self._since: float | None = None
        #: Why they are refused, for some seconds already: slaves that only connect again are no
        #: trouble. Empty while they are not.
        self.trouble = ""

    def end_role(self) -> None:
        """Forgets what was seen, without a word: what a master refused says nothing of its next
        role, in which it may refuse nothing as it takes nothing."""
        self._since, self.trouble = None, ""

    def look(self, now: float) -> None:
        """To be called each second or so; `now` is in seconds."""
        refusal, was_well = self._refusal(), not self.trouble
        if not refusal:
            self._since, self.trouble = None, ""
            if not was_well:
                self._logger.info(
                    "there are enough replicas again: messages that wait for them are taken"
                )
            return
        if self._since is None:
            self._since = now
        if now - self._since >= GRACE_SECONDS:
            self.trouble = refusal
            if was_well:
                self._logger.error(
                    "messages that wait for replicas are refused: {why}", why=refusal
                )
