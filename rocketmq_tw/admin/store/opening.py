"""Opens a store for commands: its directory, its configuration, its lock, and their progress."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import click

from rocketmq_tw.admin.options import PathType
from rocketmq_tw.admin.output import is_terminal
from rocketmq_tw.admin.store.places import LogDirectory, owners_of_log, place_of_log
from rocketmq_tw.admin.tool import fail
from rocketmq_tw.config.load import load
from rocketmq_tw.config.properties import ConfigError, read_config_file, read_properties
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.storecheck.layout import NoStoreError, Sizes, Store
from rocketmq_tw.structs import msgspec

directory_argument = click.argument("directory", metavar="DIR", type=PathType())
config_option = click.option(
    "-c", "--configFile", "config_file", metavar="FILE", type=PathType(),
    help="The broker's .properties file. Without it files have stock's sizes, or show theirs.",
)  # fmt: skip
log_option = click.option(
    "--log", "log", metavar="DIR", type=PathType(),
    help="Where the log is, if it is not in the store and -c does not say so.",
)  # fmt: skip


@attrs.frozen
class Opened:
    """A store that a command looks at; `config` is the one that was given, with the paths of this
    store."""

    store: Store
    config: MessageStoreConfig | None
    place: LogDirectory

    @property
    def owners(self) -> list[str]:
        """The directories of other stores that its log may be of."""
        return owners_of_log(self.store, self.place)

    @property
    def log_line(self) -> str:
        """Says which log it is."""
        other = self.place.passed_over
        note = f" (-c names {other}, the log of another store)" if other else ""
        return f"log: {self.store.log_path}{note}"


def open_store(directory: str, config_file: str | None, log: str | None = None) -> Opened:
    """Returns the store in a directory. Ends the command where there is none, or where it is not
    sure which log is its own."""
    directory = directory.rstrip("/") or "/"
    config = None if config_file is None else _read_config(config_file)
    try:
        place = place_of_log(directory, config, log)
        if config is None:
            return Opened(Store(directory, Sizes(), place.path), None, place)
        store = Store(directory, _sizes(config), place.path)
        own = msgspec.structs.replace(
            config, store_path_root_dir=directory, store_path_commit_log=place.path
        )
        return Opened(store, own, place)
    except NoStoreError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        fail(f"{directory} cannot be read: {error}", error)


def _read_config(path: str) -> MessageStoreConfig:
    try:
        settings = read_properties(read_config_file(path), path)
        return load((MessageStoreConfig,), settings, os.path.expanduser("~"))[MessageStoreConfig]
    except ConfigError as error:
        raise click.UsageError(f"-c: {error}") from error


def _sizes(config: MessageStoreConfig) -> Sizes:
    return Sizes(
        log=config.mapped_file_size_commit_log,
        queue=config.mapped_file_size_consume_queue,
        extension=config.mapped_file_size_consume_queue_ext,
        timer_log=config.mapped_file_size_timer_log,
        index_slots=config.max_hash_slot_num,
        index_entries=config.max_index_num,
    )


def refuse_if_open(opened: Opened) -> None:
    """Ends the command where a living broker has the store open, or another one that its log may be
    of."""
    root = opened.store.root
    if _is_locked(root):
        fail(
            f"{root} is in use by a broker or another repair: stop it, or take a copy of the"
            " directory"
        )
    for owner in opened.owners:
        if _is_locked(owner):
            fail(
                f"the log {opened.store.log_path} is in use by the broker of {owner}, or a"
                " repair of that: stop it, or"
                " take a copy of the log and name it with --log"
            )


def _is_locked(root: str) -> bool:
    path = f"{root}/lock"
    try:
        # A pipe would have to be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError as error:
        fail(f"{path} cannot be locked: {error.strerror}", error)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            fail(f"{path} is no file, and one belongs there: move it away")
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def reading(store: Store) -> Iterator[None]:
    """Ends the command where the store cannot be read."""
    try:
        yield
    except OSError as error:
        fail(f"{store.root} cannot be read: {error}", error)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], object]]:
    """Shows how far the work is, on stderr where that is a terminal; yields what is told of the
    bytes that are done."""
    if not is_terminal(sys.stderr):
        yield lambda count: None
        return
    length = max(total, 1)
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update
        # What was passed over, as zeros, is done too.
        bar.update(length - bar.pos)
