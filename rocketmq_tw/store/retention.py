"""What may go: commit-log files by age and by how full the disk is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import Enum

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import DiskUsage

_HOUR = 3_600_000


class Pressure(Enum):
    """How full the disk is; each includes what the ones before it mean."""

    NONE = 0
    #: Expired files go at any hour.
    RECLAIM = 1
    #: The oldest files go even before they expire.
    FORCE = 2
    #: And nothing more is stored.
    FULL = 3


def disk_pressure(config: MessageStoreConfig, usage: DiskUsage) -> Pressure:
    """The pressure that stock's three ratios see; like stock, the upper two are kept in bounds."""
    percent = 100 * usage.used / usage.total if usage.total > 0 else 0
    if percent > min(max(config.disk_space_warning_level_ratio, 35), 90):
        return Pressure.FULL
    if percent > min(max(config.disk_space_clean_forcibly_ratio, 30), 85):
        return Pressure.FORCE
    if percent > config.disk_max_used_space_ratio:
        return Pressure.RECLAIM
    return Pressure.NONE


def worst_pressure(config: MessageStoreConfig, disks: Iterable[DiskUsage]) -> Pressure:
    """That of the fullest disk: nothing can be stored where any of them is full."""
    return max((disk_pressure(config, disk) for disk in disks), key=lambda found: found.value)


def is_delete_hour(delete_when: str, now_ms: int) -> bool:
    """Whether the local hour is one of `deleteWhen`, as in `04` or `04;16`."""
    hour = datetime.fromtimestamp(now_ms / 1000).hour
    return any(word.strip().isdigit() and int(word) == hour for word in delete_when.split(";"))


def files_to_remove(
    config: MessageStoreConfig,
    last_writes: list[int],
    pressure: Pressure,
    now_ms: int,
    *,
    at_any_hour: bool = False,
) -> int:
    """How many of the oldest files go; `last_writes` has the time of the last write to each file
    that may go, oldest first."""
    forced = config.clean_file_forcibly_enable and pressure.value >= Pressure.FORCE.value
    is_time = at_any_hour or is_delete_hour(config.delete_when, now_ms)
    if pressure is Pressure.NONE and not is_time:
        return 0
    expired = 0
    for moment in last_writes[: config.delete_file_batch_max]:
        if not forced and now_ms - moment < config.file_reserved_time * _HOUR:
            break
        expired += 1
    return expired
