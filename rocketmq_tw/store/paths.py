"""Where a store keeps what; stock's layout."""

from __future__ import annotations

import os

from rocketmq_tw.config.store import MessageStoreConfig


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
        self.deleted_topics = f"{self.root}/deletedtopics"
        self.deleted_queues = f"{self.root}/deletedqueues"
        self.abort = f"{self.root}/abort"
        self.lock = f"{self.root}/lock"


def _expand(path: str) -> str:
    return path.replace("${user.home}", os.path.expanduser("~")).rstrip("/")
