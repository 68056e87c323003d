"""Finds the log that belongs to a store, whose else it may be, and whether what a repair writes is
the store's alone.

A configuration names the log of the store that it is of. Copies are looked at with the same file,
so what it names counts only for the store that it names too.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import attrs
import click

from rocketmq_tw.admin.tool import fail
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFile
from rocketmq_tw.files.owners import give
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.storecheck.layout import Store
from rocketmq_tw.storecheck.long_file import directories


@attrs.frozen
class LogDirectory:
    """Where the log of a store is: `path`, empty for its `commitlog`, also where that is a link.
    `passed_over`: the log that the configuration names, where that is another one. `other_root`: a
    further store that the log may be of, empty without one. `is_named`: --log, or the store's own
    configuration, names the place itself."""

    path: str = ""
    passed_over: str = ""
    other_root: str = ""
    is_named: bool = False


def place_of_log(
    directory: str, config: MessageStoreConfig | None, given: str | None
) -> LogDirectory:
    """Returns where the log of the store in `directory` is, by --log or a configuration. Raises
    `UsageError` where that is not sure."""
    named = "" if config is None else config.store_path_commit_log
    named_root = "" if config is None else config.store_path_root_dir
    own = f"{directory}/commitlog"
    if given is not None:
        if not os.path.isdir(given):
            raise click.UsageError(f"--log: {given} is no directory")
        other_root = named_root if named and _is_same(named, given) else ""
        path = "" if _is_same(given, own) else os.path.abspath(given)
        return LogDirectory(path, other_root=other_root, is_named=True)
    if not named:
        return LogDirectory()
    if _is_same(named, own):
        # A link may lead where nobody expects: it may have been copied with the store.
        is_named = _is_same(directory, named_root) and not os.path.islink(named)
        return LogDirectory(is_named=is_named)
    if _is_below(named, named_root):
        below = os.path.relpath(os.path.realpath(named), os.path.realpath(named_root))
        named_here = os.path.join(directory, below)
        if os.path.isdir(named_here):
            is_own = _is_same(named_here, own)
            return LogDirectory("" if is_own else os.path.abspath(named_here))
    if not _is_same(directory, named_root):
        if os.path.isdir(own) or any(
            name.startswith("dledger-") for name in directories(directory)
        ):
            return LogDirectory(passed_over=named)
        raise click.UsageError(
            f"{directory} has no log of its own, and -c names {named}, which is the log of the"
            f" store {named_root}: --log DIR says where the log is"
        )
    if os.path.isdir(own) and os.listdir(own):
        raise click.UsageError(
            f"-c says that the log is in {named} (storePathCommitLog), and {own} has files too:"
            " --log DIR says which of them is meant"
        )
    return LogDirectory(named, is_named=True)


def owners_of_log(store: Store, place: LogDirectory) -> list[str]:
    """Returns the directories of other stores that the log of `store` may be of: a broker that has
    one of them open may write it."""
    root = os.path.realpath(store.root)
    found = {os.path.dirname(os.path.realpath(store.log_path))}
    if place.other_root:
        found.add(os.path.realpath(place.other_root))
    return sorted(owner for owner in found - {root} if os.path.exists(f"{owner}/lock"))


@contextmanager
def locked(root: str, owners: list[str]) -> Iterator[Callable[[], None]]:
    """Holds the lock of a store, and of others that its log may be of; yields what gives the
    store's own back. Ends the command where a broker or another repair has one."""
    with ExitStack() as others, ExitStack() as own:
        for owner in owners:
            others.callback(_lock(owner, f"the log may be of {owner}, which").close)
        own.callback(_lock(root, root).close)
        yield own.close


@contextmanager
def held(root: str, owners: list[str]) -> Iterator[Callable[[], None]]:
    """Keeps brokers from opening a store, and others that its log may be of, while it is read;
    yields what ends that. Ends the command where a broker or another repair has one."""
    with ExitStack() as all_of_them:
        for each in (*owners, root):
            descriptor = _share(each)
            if descriptor is not None:
                all_of_them.callback(os.close, descriptor)
        yield all_of_them.close


def _share(root: str) -> int | None:
    """Returns the descriptor of a shared lock; None where no broker can have one of its own, as the
    file system cannot be written."""
    try:
        descriptor = _open_lock(f"{root}/lock")
    except OSError as error:
        if error.errno == errno.EROFS:
            return None
        fail(f"{root}/lock cannot be locked: {error.strerror}", error)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        fail(f"{root} is in use by a broker or another repair: stop it", error)
    return descriptor


def _open_lock(path: str) -> int:
    """Opens a file for reading, which is made where it is missing."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_CREAT, 0o644)
        _give_to_broker(path)
        return descriptor


def _give_to_broker(lock: str) -> None:
    """Gives a lock that was made the owner of its store, whose broker has to open it."""
    give(lock, os.stat(os.path.dirname(lock)), rights=False)


def _lock(root: str, what: str) -> IFile:
    path = f"{root}/lock"
    is_new = not os.path.exists(path)
    try:
        lock = PosixFiles().lock(path)
    except BlockingIOError as error:
        fail(f"{what} is in use by a broker or another repair: stop it", error)
    except OSError as error:
        fail(f"{root}/lock cannot be locked: {error.strerror}", error)
    if is_new:
        _give_to_broker(path)
    return lock


def refuse_shared(store: Store, place: LogDirectory) -> None:
    """Ends the command where a repair in place would change files of another place: links lead
    there, or the log's files have a second name."""
    root = os.path.realpath(store.root)
    if not place.is_named and not _is_below(store.log_path, root):
        raise click.UsageError(
            f"the log of {store.root} is a link to {os.path.realpath(store.log_path)}, where"
            " another store may use it: repair a copy (--to), or name it with --log, if no other"
            " does"
        )
    for name in sorted(os.listdir(root)):
        if name != "commitlog":
            _refuse_link(f"{root}/{name}", root, ())
    for kind in ("config", "consumequeue", "consumequeue_ext", "index"):
        for directory, below, names in os.walk(f"{root}/{kind}"):
            paths = [f"{directory}/{name}" for name in (*below, *names)]
            for path in paths:
                _refuse_link(path, root, paths)
    for start in store.log.starts:
        path = store.log.path(start)
        if os.path.islink(path) or os.stat(path).st_nlink > 1:
            _refuse_second_name(path)


def _refuse_link(path: str, root: str, beside: Sequence[str]) -> None:
    """Ends the command where a path below `root` leads out of it, or is a file that has a second
    name, but for those among the paths `beside` it: a broker that is killed as it replaces a table
    leaves such ones."""
    if os.path.islink(path) and not _is_below(path, root):
        raise click.UsageError(
            f"{path} is a link to {os.path.realpath(path)}, where another store may use it:"
            " repair a copy (--to)"
        )
    if not os.path.isfile(path) or (names := os.stat(path).st_nlink) == 1:
        return
    if names > sum(os.path.samefile(path, each) for each in beside):
        _refuse_second_name(path)


def _refuse_second_name(path: str) -> None:
    raise click.UsageError(
        f"{path} is a link, and the file has a second name elsewhere: repair a copy (--to)"
    )


def is_inside(path: str, directory: str) -> bool:
    """Returns whether a path is a directory or below it, over all links."""
    return _is_same(path, directory) or _is_below(path, directory)


def _is_same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _is_below(path: str, directory: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(directory).rstrip("/") + "/")
