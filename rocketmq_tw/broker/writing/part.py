"""The log and the one way into it, as a part of the broker."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.assembly.truncation import Truncation
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.append_times import MINUTE_SECONDS
from rocketmq_tw.broker.writing.cleaning import Cleaning
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.broker.writing.enough_replicas import EnoughReplicas
from rocketmq_tw.broker.writing.flush import Flusher
from rocketmq_tw.broker.writing.group_log import end_older_log, group_settings, make_group_log
from rocketmq_tw.broker.writing.health_checks import LOOK_SECONDS, HealthChecks
from rocketmq_tw.broker.writing.incoming import CountedSink, Incoming
from rocketmq_tw.broker.writing.log_end import LogEnd
from rocketmq_tw.broker.writing.queue_kinds import check_files, check_topics
from rocketmq_tw.broker.writing.redirects import Redirects, Stage, reject_transactions
from rocketmq_tw.broker.writing.sink import LocalLog, SinkOfRole
from rocketmq_tw.files.interface import DiskUsage
from rocketmq_tw.message.properties import TRAN_MSG
from rocketmq_tw.message.types import DELAY_TYPE
from rocketmq_tw.metrics.instruments import Metric, gauge
from rocketmq_tw.net.descriptors import room_for_files
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.recovery import RecoveryReport
from rocketmq_tw.wire.bodies.base import decode_table
from rocketmq_tw.wire.bodies.topics import TopicConfigTable

#: Stock's labels of a store's figures.
STORAGE = {"storage_type": "local", "storage_medium": "disk"}

log = Logger()


class Writing(Part):
    """Opens and closes the store, writes it, makes it durable, and removes what is past its
    retention."""

    def __init__(self, host: Host, role: RoleHolder) -> None:
        self._host = host
        self._loaded = False
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        config, reactor = host.store_config, host.reactor
        #: The store's log where a DLedger group keeps it.
        self.group_log = make_group_log(host) if config.enable_dledger_commit_log else None
        self.store = MessageStore(
            config,
            host.files,
            host.now_ms,
            memory_bytes=memory,
            log=self.group_log,
            confirmed_only=host.config.enable_controller_mode,
            open_files=room_for_files(),
            is_copy=lambda: not role.is_master,
            warn=lambda text: log.warn("{text}", text=text),
        )
        self.flusher = Flusher(self.store, config, reactor, host.in_thread, host.in_slices)
        self.dispatcher = Dispatcher(self.store, reactor)
        self.cleaning = Cleaning(self.store, host.now_ms, host.in_thread, host.in_slices)
        self.commit = Commit(
            self.store,
            config,
            reactor,
            self.flusher,
            self.dispatcher,
            role,
            gather=host.listener.gather,
        )
        self._checks = HealthChecks(
            host,
            role,
            self.store,
            self.commit,
            self.flusher,
            self.dispatcher,
            self.group_log,
        )
        self.health = self._checks.health
        self._enough_replicas = EnoughReplicas(self.commit.refusal_for_replicas, host.log_name)
        #: For all messages that the broker makes itself.
        self.sink = SinkOfRole(role, {Role.MASTER: LocalLog(self.commit)})
        self.incoming = Incoming()
        #: For delayed and timed messages that are delivered.
        self.delivery_sink = CountedSink(self.sink, role, self.incoming, DELAY_TYPE)
        self.redirects = Redirects()
        self.redirects.by_property(Stage.REJECTION, (TRAN_MSG,), reject_transactions(host.config))
        log_end = LogEnd(
            self.store,
            self.commit,
            self.dispatcher,
            self.flusher,
            host.in_slices,
            host.in_thread,
        )
        self.truncation = Truncation(log_end, host.in_slices, host.log_name)
        self.truncation.after_cut.add(role.cut)
        #: Whether the store was closed by the last stop, not by a kill.
        self.was_stopped = False

    @inlineCallbacks
    def start(self) -> Generator[Deferred[Any], Any, None]:
        if self.group_log is not None:
            group_settings(self._host.config, self._host.store_config)
        yield self._host.in_thread(self._check_kinds)
        if self.group_log is not None:
            yield self._host.in_thread(lambda: end_older_log(self._host))
        recovered = yield self._host.in_thread(self._load)
        self._loaded = True
        self.was_stopped = recovered.clean
        if self.group_log is not None:
            self.store.dispatch_limit = self.group_log.committed_offset
        if not recovered.clean:
            log.info(
                "recovery after a stop that was not clean: {records} messages were read from offset"
                " {start} of the log to its end at {end}",
                records=recovered.records,
                start=recovered.start_offset,
                end=recovered.end_offset,
            )
        for note in recovered.notes:
            log.warn("recovery: {note}", note=note)
        yield self._checks.start()
        self.flusher.start()

    def _load(self) -> RecoveryReport:
        """Raises `OSError` where the directory of the tables is none, as a link that leads nowhere:
        all of them would be taken for missing."""
        recovered = self.store.load()
        self.store.files.make_dirs(self.store.paths.config)
        return recovered

    def _check_kinds(self) -> None:
        """Raises `StoreError` for kinds of queues that this broker has not, before anything is
        changed: what is dispatched here would be in other queues."""
        table = self._host.table_file("topics").read(
            lambda data: decode_table(TopicConfigTable, data)
        )
        if table is not None:
            check_topics(table.topic_config_table.values())
        check_files(self._host.files, self.store.paths.root)

    def enter(self, state: RoleState) -> Deferred[None] | None:
        return self.truncation.end_at_whole_record() if state.role.writes_log else None

    def leave(self, state: RoleState) -> Deferred[None] | None:
        self._enough_replicas.end_role()
        return None if state.role is Role.ACTING_MASTER else self.commit.make_durable()

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], Any, None]:
        yield self._checks.stop()
        if self._loaded:
            yield self.truncation.over()
            yield self.commit.stop()
        yield self._host.in_thread(self.store.close)

    def periodic(self) -> Iterable[Periodic]:
        seconds = self._host.store_config.clean_resource_interval / 1000
        yield Periodic("the retention", seconds, self.cleaning.run)
        yield Periodic("the look at the disk", LOOK_SECONDS, self._checks.check)
        yield Periodic("the look at the replicas", LOOK_SECONDS, self._look_at_replicas)
        yield Periodic("timing appends", MINUTE_SECONDS, self.commit.times.begin_minute)

    def _look_at_replicas(self) -> None:
        self._enough_replicas.look(self._host.reactor.seconds())

    def runtime_info(self) -> Mapping[str, str]:
        store = self.store
        # Measured every cleanResourceInterval: a disk that hangs must not hold up the answer.
        disk, rest = store.retention.disks
        ratio = _ratio(disk)
        times = self.commit.times
        return {
            "commitLogDiskRatio": ratio,
            # Once more for each directory of the log, of which there is one.
            f"commitLogDiskRatio_{store.log_directory}": ratio,
            "consumeQueueDiskRatio": _ratio(rest),
            "commitLogDirCapacity": (
                f"Total : {_with_unit(disk.total)}, Free : {_with_unit(disk.total - disk.used)}."
            ),
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(store.end_offset),
            "remainHowManyDataToFlush": _with_unit(store.end_offset - store.flushed_offset),
            "dispatchBehindBytes": str(store.written_offset - store.dispatched_offset),
            "earliestMessageTimeStamp": str(store.oldest_store_time()),
            # Ours: why messages cannot be stored, empty while they can.
            "storageFailure": self.health.cannot_write or self._enough_replicas.trouble,
            "putMessageEntireTimeMax": str(times.longest_ms),
            "putMessageFailedTimes": str(times.failed),
            "putMessageDistributeTime": times.distribution(),
            "putLatency99": times.percentile(0.99),
            "putLatency999": times.percentile(0.999),
        }

    def metrics(self) -> Iterable[Metric]:
        store = self.store
        size = store.end_offset - store.min_physical_offset
        yield gauge("rocketmq_storage_size", size, STORAGE, "bytes")
        unflushed = store.end_offset - store.flushed_offset
        yield gauge("rocketmq_storage_flush_behind", unflushed, STORAGE, "bytes")
        behind = store.written_offset - store.dispatched_offset
        yield gauge("rocketmq_storage_dispatch_behind", behind, STORAGE, "bytes")
        oldest = store.oldest_store_time()
        if oldest > 0:
            kept_ms = max(self._host.now_ms() - oldest, 0)
            yield gauge("rocketmq_storage_message_reserve_time", kept_ms, STORAGE, "milliseconds")
        yield gauge("rocketmq_storage_writable", int(not self.health.cannot_write))
        yield gauge("rocketmq_replicas_enough", int(not self._enough_replicas.trouble))


def _with_unit(size: int) -> str:
    """Bytes with a binary unit, as `1.5 MiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.1f} {unit}" if unit != "B" else f"{size} B"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _ratio(disk: DiskUsage) -> str:
    """Returns the share of the disk that is in use, as stock writes it; -1 where that is not
    known."""
    return f"{disk.used / disk.total:.4f}" if disk.total else "-1"
