"""The layout of a store's directory, as stock has it, and the files that say whose it is.

`lock` is held by the process that has the store open; `abort` is there from the first change until
the store is closed, so an unclean stop leaves it behind.
"""

from __future__ import annotations

import os

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.place import OpenedAt


class StorePaths:
    """The paths below a store's root."""

    def __init__(self, config: MessageStoreConfig) -> None:
        self.root = _expand(config.store_path_root_dir)
        self.commit_log = _expand(config.store_path_commit_log) or f"{self.root}/commitlog"
        self.consume_queue = f"{self.root}/consumequeue"
        self.queue_extensions = f"{self.root}/consumequeue_ext"
        self.index = f"{self.root}/index"
        self.config = f"{self.root}/config"
        self.checkpoint = f"{self.root}/checkpoint"
        self.broker_identity = (
            _expand(config.store_path_broker_identity) or f"{self.root}/brokerIdentity"
        )
        self.epochs = _expand(config.store_path_epoch_file) or f"{self.root}/epochFileCheckpoint"
        #: Of a member of a DLedger group, and of its log.
        self.dledger = f"{self.root}/dledger-{config.dledger_self_id}"
        self.dledger_data = _expand(config.store_path_dledger_commit_log) or f"{self.dledger}/data"
        self.deleted_topics = f"{self.root}/deletedtopics"
        self.deleted_queues = f"{self.root}/deletedqueues"
        self.abort = f"{self.root}/abort"
        self.lock = f"{self.root}/lock"


def dledger_members(files: IFiles, root: str) -> list[str]:
    """Returns the directories of members of DLedger groups in a store's root."""
    return [f"{root}/{name}" for name in files.list(root) if name.startswith("dledger-")]


def _expand(path: str) -> str:
    return path.replace("${user.home}", os.path.expanduser("~")).rstrip("/")


class Ownership:
    """One opening of the store below `paths.root`, by this process."""

    def __init__(self, files: IFiles, paths: StorePaths) -> None:
        self._files = files
        self._paths = paths
        self._lock: IFile | None = None

    @property
    def is_taken(self) -> bool:
        """Between `take` and `release`."""
        return self._lock is not None

    def take(self) -> None:
        """Locks the store, making its directory where it is new; raises `StoreError` where another
        process has it."""
        paths = self._paths
        self._files.make_dirs(paths.root)
        try:
            self._lock = self._files.lock(paths.lock)
        except BlockingIOError as error:
            raise StoreError(
                f"{paths.root} is in use by another broker: stop it, or set storePathRootDir"
            ) from error
        try:
            self._lock.pwrite(b"lock", 0)
        except OSError:
            self.release()
            raise

    def places(self) -> list[OpenedAt]:
        """Returns the lock, by which to see that the directory is the one that was locked."""
        paths = self._paths
        return [] if self._lock is None else [OpenedAt(self._lock, paths.lock, beside=paths.abort)]

    def release(self) -> None:
        """Gives the lock back, if it was taken."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def was_closed(self) -> bool:
        """Whether the last owner closed the store; asked before `mark_open`."""
        return not self._files.exists(self._paths.abort)

    def mark_open(self) -> None:
        """Leaves `abort` behind, with the process id, until `mark_closed`; durable."""
        abort = self._files.open(self._paths.abort, create=True)
        abort.truncate(0)
        abort.pwrite(str(os.getpid()).encode(), 0)
        abort.fsync()
        abort.close()
        self._files.sync_dir(self._paths.root)

    def mark_closed(self) -> None:
        """Takes `abort` away; durable."""
        self._files.remove(self._paths.abort)
        self._files.sync_dir(self._paths.root)
