"""Looks now and then whether the store can be written, by what failed last and by a small file.

Rules: docs/durability.md, "A broker that cannot write".
"""

from __future__ import annotations

import posixpath
from functools import partial
from typing import NamedTuple

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.role.health import Health
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.broker.writing.flush import Flusher
from rocketmq_tw.raft.message_log import RaftLog
from rocketmq_tw.runtime.retries import GrowingPause
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.place import PlaceFound
from rocketmq_tw.store.probing import try_to_open, try_to_write

#: Seconds between two looks at what failed last.
LOOK_SECONDS = 1.0
#: Seconds between two trials of the disk: while all is well, and while something is not.
TRIAL_SECONDS, TRIAL_AGAIN_SECONDS = 10.0, 2.0
#: Seconds after which a trial that has not ended counts as failed.
HANG_SECONDS = 30.0
#: Seconds until a log that could not be written is taken to be writable again, where nobody writes
#: it: the first time, and at most.
FIRST_PATIENCE, LONGEST_PATIENCE = 10.0, 300.0
#: Files that a new master must be able to open on top of those that are open: of its epochs and
#: progress, its HA port, the links of its slaves, the next files of the log and of queues.
SPARE_FILES = 16

log = Logger()


class _Trial(NamedTuple):
    """What a trial of the disk found; both are empty where all is well."""

    #: Why nothing can be written.
    trouble: str = ""
    #: What a new master would lack.
    unready: str = ""


class HealthChecks:
    """Keeps `health` at what was found last."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        store: MessageStore,
        commit: Commit,
        flusher: Flusher,
        dispatcher: Dispatcher,
        group_log: RaftLog | None = None,
    ) -> None:
        self._host = host
        self._logger = host.named(log)
        self._role = role
        self._store = store
        self._commit = commit
        self._flusher = flusher
        self._dispatcher = dispatcher
        self._group_log = group_log
        self.health = Health()
        self._found = _Trial()
        #: When the trial that is under way began, and when the next one is due.
        self._trial_began: float | None = None
        self._next_trial = 0.0
        self._trial: Deferred[None] = succeed(None)
        self._look: Deferred[None] = succeed(None)
        #: How long a log that failed is left alone, and when it was tried again last.
        self._patience = GrowingPause(FIRST_PATIENCE, LONGEST_PATIENCE)
        self._tried_again_at = 0.0
        #: Why it cannot store, or nothing, as the log said last, and when: it has been so since
        #: then, and only that is tried again.
        self._said: tuple[str, float] = ("", 0.0)

    def start(self) -> Deferred[None]:
        """Fires once the store, which is loaded, was looked at for the first time."""
        retention = self._store.retention
        measured = self._host.in_thread(retention.measure).addCallback(retention.take)
        return measured.addCallback(lambda _: self._try_disk())

    def stop(self) -> Deferred[None]:
        """Fires once the disk is not looked at any more; `check` is not called again."""
        return gatherResults([self._trial, self._look]).addCallback(lambda _: None)

    def check(self) -> None:
        """Takes in what failed last, and has the disk tried when that is due."""
        now = self._host.reactor.seconds()
        if self._look.called:
            self._look_at_place()
        if self._trial_began is None and now >= self._next_trial:
            self._trial = self._try_disk()
        self._observe(now)
        self._try_log_again(now)

    def _look_at_place(self) -> None:
        place = self._store.place

        def looked(found: PlaceFound) -> None:
            place.take(found)
            self._observe(self._host.reactor.seconds())

        def failed(failure: Failure) -> None:
            # The trial of the disk says what is wrong with it.
            failure.trap(OSError)

        look = self._host.in_thread(place.prepare())
        look.addCallbacks(looked, failed).addErrback(partial(log.failure, "looking failed"))
        self._look = look

    @property
    def _files_failure(self) -> str:
        if self._store.queue_failure:
            return f"a queue cannot be written: {self._store.queue_failure}"
        return self._flusher.checkpoint_failure

    def _observe(self, now: float) -> None:
        store, hangs = self._store, ""
        if self._trial_began is not None and now - self._trial_began >= HANG_SECONDS:
            hangs = f"the disk of {store.paths.root} does not answer"
        self.health.observe(
            now,
            broken=store.failure or store.gone,
            troubles={
                "disk": self._found.trouble or hangs,
                "log": self._commit.failure,
                "group": "" if self._group_log is None else self._group_log.trouble,
                "sync": self._flusher.failure,
                "queues": self._dispatcher.failure,
                "files": self._files_failure,
            },
            unready=self._found.unready,
            full=store.refusal if store.retention.is_disk_full else "",
        )
        cannot_write = self.health.cannot_write
        if cannot_write != self._said[0]:
            self._said = cannot_write, now
            if cannot_write:
                self._logger.error("this broker cannot store messages: {why}", why=cannot_write)
            else:
                self._logger.info("this broker can store messages again")

    def _try_log_again(self, now: float) -> None:
        """A log that failed for a while counts as well again once the disk takes files: the next
        write tells, which nobody would make otherwise."""
        failure, (said, since) = self._commit.failure, self._said
        if not failure:
            if now - self._tried_again_at > self._patience.next:
                self._patience.worked()
        elif failure == said and not self._found.trouble and now - since >= self._patience.next:
            self._commit.failure = ""
            self._tried_again_at = now
            self._patience.failed()

    def _try_disk(self) -> Deferred[None]:
        reactor, host, store = self._host.reactor, self._host, self._store
        directories = [store.paths.root, store.paths.config]
        if host.config.enable_controller_mode:
            directories.append(posixpath.dirname(store.paths.epochs))
        is_given = host.config.enable_controller_mode or host.store_config.enable_dledger_commit_log
        may_be_elected = is_given and not self._role.is_master
        log_directory, look = store.log_directory, store.place.prepare()

        def is_gone() -> bool:
            try:
                return bool(look().why)
            except OSError:
                return False

        def work() -> _Trial:
            if is_gone():
                # It would make the directories anew, and what is put back needs their place.
                return _Trial()
            trouble = try_to_write(store.files, directories)
            trouble = trouble or try_to_open(store.files, log_directory)
            if trouble or not may_be_elected:
                return _Trial(trouble)
            return _Trial("", try_to_write(host.files, directories[:1], handles=SPARE_FILES))

        def ended(found: _Trial) -> None:
            self._trial_began = None
            self._found = found
            now = reactor.seconds()
            if self._files_failure and not found.trouble:
                # The next one tells whether they can be written again.
                self._flusher.checkpoint_soon()
            self._observe(now)
            is_well = not self.health.cannot_lead
            self._next_trial = now + (TRIAL_SECONDS if is_well else TRIAL_AGAIN_SECONDS)

        def failed(failure: Failure) -> None:
            self._logger.failure("trying the disk failed", failure)
            ended(_Trial(failure.getErrorMessage()))

        self._trial_began = reactor.seconds()
        return host.in_thread(work).addCallbacks(ended, failed)
