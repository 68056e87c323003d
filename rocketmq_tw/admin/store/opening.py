"""How commands get at a store: its directory, its configuration, its lock, and their progress."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import rich_click as click

from rocketmq_tw.admin.tool import fail
from rocketmq_tw.config.load import load
from rocketmq_tw.config.properties import ConfigError, read_properties
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.storecheck.layout import NoStoreError, Sizes, Store

directory_argument = click.argument("directory", metavar="DIR", type=click.Path())
config_option = click.option(
    "-c", "--configFile", "config_file", metavar="FILE", type=click.Path(),
    help="The broker's .properties file. Without it files have stock's sizes, or show theirs.",
)  # fmt: skip


def open_store(directory: str, config_file: str | None) -> tuple[Store, MessageStoreConfig | None]:
    """Returns the store in a directory, and the configuration that was given. Ends the command
    where there is none."""
    config = None if config_file is None else _read_config(config_file)
    try:
        if config is None:
            return Store(directory, Sizes()), None
        return Store(directory, _sizes(config), config.store_path_commit_log), config
    except NoStoreError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        fail(f"{directory} cannot be read: {error}", error)


def _read_config(path: str) -> MessageStoreConfig:
    try:
        with open(path, encoding="latin-1") as file:
            settings = read_properties(file.read(), path)
        return load((MessageStoreConfig,), settings, os.path.expanduser("~"))[MessageStoreConfig]
    except OSError as error:
        raise click.UsageError(f"-c: {path}: {error.strerror}") from error
    except ConfigError as error:
        raise click.UsageError(f"-c: {error}") from error


def _sizes(config: MessageStoreConfig) -> Sizes:
    return Sizes(
        log=config.mapped_file_size_commit_log,
        queue=config.mapped_file_size_consume_queue,
        extension=config.mapped_file_size_consume_queue_ext,
        index_slots=config.max_hash_slot_num,
        index_entries=config.max_index_num,
    )


def refuse_if_open(store: Store) -> None:
    """Ends the command where a living broker has the store open."""
    try:
        descriptor = os.open(f"{store.root}/lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        fail(f"{store.root} is in use by a broker: stop it, or take a copy of the directory", error)
    finally:
        os.close(descriptor)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], object]]:
    """Shows how far the work is, on stderr where that is a terminal; yields what is told of the
    bytes that are done."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    length = max(total, 1)
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
        # What was passed over, as zeros, is done too.
        bar.update(length - bar.pos)
