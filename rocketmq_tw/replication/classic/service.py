"""The master's side of classic HA."""

from __future__ import annotations

from rocketmq_tw.replication.classic.master_link import ClassicMasterLink
from rocketmq_tw.replication.classic.requirement import in_sync, required
from rocketmq_tw.replication.links.service import HAService


class ClassicHAService(HAService[ClassicMasterLink]):
    """Slaves count while they are near the log's end; nobody knows who they are."""

    def new_link(self) -> ClassicMasterLink:
        """See `HAService`."""
        return ClassicMasterLink(self._log.read, **self._link_settings())

    def _required(self) -> int | None:
        settings = self._settings
        requirement = required(
            in_sync(self._acknowledged(), self._log.end_offset, settings.max_gap),
            in_sync_replicas=settings.in_sync_replicas,
            min_in_sync_replicas=settings.min_in_sync_replicas,
            automatic=settings.automatic,
        )
        if requirement.replicas <= 1:
            return 1
        return requirement.replicas if requirement.met else None

    def _reached(self, replicas: int) -> int:
        offsets = sorted(self._acknowledged(), reverse=True)
        return offsets[replicas - 2] if replicas <= len(offsets) + 1 else -1

    def _is_in_sync(self, link: ClassicMasterLink) -> bool:
        return in_sync([link.acknowledged], self._log.end_offset, self._settings.max_gap) > 1

    def _acknowledged(self) -> list[int]:
        return [slave.link.acknowledged for slave in self.slaves]
