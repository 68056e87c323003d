"""Slaves that a master waits for though no name server lists them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

from twisted.logger import Logger

from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.structs import field
from rocketmq_tw.wire.bodies.base import Body, decode_body, encode_body

log = Logger()


class SlaveIds(Body):
    """The file `config/slaves.json` (docs/formats/config-files.md)."""

    slaves: list[int] = field(default_factory=list)


class MissingSlaves(WriteBehindTable):
    """The slaves that name servers listed beside this master last, also over a restart: one of them
    may have acted since, and name servers that were started again do not know it yet.

    Those that are missing are waited for as long as name servers take to forget a broker, the key
    brokerNotActiveTimeoutMillis, from the first answer of a name server on, and for two heartbeats
    more, in which one that was back at the last moment is listed. Where none answers any more, the
    time begins anew.
    """

    def __init__(self, config: BrokerConfig, seconds: Callable[[], float], file: TableFile) -> None:
        super().__init__(file.write)
        self._config = config
        self._seconds = seconds
        self._file = file
        #: The slaves by id.
        self._listed: Set[int] = frozenset()
        self._since: float | None = None

    def load(self) -> None:
        """Takes what the file has; one that cannot be read counts as empty."""
        try:
            known = self._file.read(lambda data: decode_body(SlaveIds, data))
        except Exception:
            log.failure("which slaves this master had cannot be read: it waits for none")
            return
        self._listed = frozenset(() if known is None else known.slaves)

    def listed(self, slaves: Set[int]) -> None:
        """Takes the slaves that name servers list beside this master now."""
        self._since = None
        if slaves != self._listed:
            self._listed = slaves
            self._dirty = True

    def nobody_answers(self) -> None:
        """Notes that no name server answers."""
        self._since = None

    def waited_for(self, listed: Collection[int]) -> Set[int]:
        """Returns those that are missing where name servers answer with `listed`; none once they
        were waited for long enough."""
        missing = self._listed - frozenset(listed)
        if not missing:
            self._since = None
            return missing
        now = self._seconds()
        if self._since is None:
            self._since = now
        config = self._config
        patience_ms = config.broker_not_active_timeout_millis + 2 * config.broker_heartbeat_interval
        return frozenset() if (now - self._since) * 1000 >= patience_ms else missing

    def _encoder(self) -> Callable[[], bytes]:
        body = SlaveIds(slaves=sorted(self._listed))
        return lambda: encode_body(body)
