"""What a configuration says of HA links."""

from __future__ import annotations

import attrs


@attrs.define(kw_only=True)
class HASettings:
    """The HA keys of the store's configuration; times in milliseconds, sizes in bytes."""

    file_size: int
    batch_size: int = 32768
    heartbeat_ms: int = 5000
    housekeeping_ms: int = 20000
    bytes_per_second: int | None = None
    max_gap: int = 256 * 1024 * 1024
    slave_timeout_ms: int = 3000
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    automatic: bool = False
    all_ack: bool = False
    not_caught_up_ms: int = 15000
    check_ms: int = 5000
