"""A file's synced image holds what `fsync` made durable, and a directory entry is durable once
`sync_dir` ran on its directory: the strictest reading of POSIX, but that what moved between two
directories is durable in both once it is in one. `crash()` gives a new file system with only that;
with a seed, a random subset of the unsynced writes (torn at sector boundaries) and of the unsynced
names is kept too, since a disk may write any of them early.
"""

import errno
import hashlib
import posixpath
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from zope.interface import implementer

from rocketmq_tw.files.interface import DiskUsage, IFile, IFiles, NoFileError

_SECTOR = 512
_PAGE = 4096
_NOTHING = bytes(_PAGE)


class _Image:
    """Bytes of a file; pages that were never written read as zeros and take no memory, as in the
    large files of fixed size that stores are made of."""

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}
        self.size = 0

    @property
    def used(self) -> int:
        """Bytes of the pages that were written."""
        return len(self._pages) * _PAGE

    def copy(self) -> "_Image":
        copied = _Image()
        copied._pages = {number: page[:] for number, page in self._pages.items()}
        copied.size = self.size
        return copied

    def digest(self) -> bytes:
        """Returns a hash of what `read` gives."""
        found = hashlib.blake2b(b"%d" % self.size, digest_size=16)
        for number in sorted(self._pages):
            if self._pages[number] != _NOTHING:
                found.update(b"%d" % number)
                found.update(self._pages[number])
        return found.digest()

    def read(self, size: int, offset: int) -> bytes:
        end = offset + max(min(size, self.size - offset), 0)
        first, last = offset // _PAGE, (end - 1) // _PAGE
        if first == last:
            page, start = self._pages.get(first), first * _PAGE
            return bytes(end - offset if page is None else page[offset - start : end - start])
        found = bytearray(end - offset)
        for number in self._written(first, last):
            start = number * _PAGE
            part = self._pages[number][max(offset - start, 0) : end - start]
            at = max(start - offset, 0)
            found[at : at + len(part)] = part
        return bytes(found)

    def _written(self, first: int, last: int) -> Iterator[int]:
        """Yields the numbers of the pages from `first` to `last` that were written."""
        pages, span = self._pages, range(first, last + 1)
        if len(pages) < len(span):
            return (number for number in pages if number in span)
        return (number for number in span if number in pages)

    def has_data(self, offset: int) -> bool:
        """Returns whether anything but zeros is at `offset` or behind."""
        first, start = divmod(offset, _PAGE)
        return any(
            any(page[start:] if number == first else page)
            for number, page in self._pages.items()
            if number >= first
        )

    def write(self, data: bytes, offset: int) -> None:
        self.size = max(self.size, offset + len(data))
        view = memoryview(data)
        while view:
            number, start = divmod(offset, _PAGE)
            part = view[: _PAGE - start]
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = bytearray(_PAGE)
            page[start : start + len(part)] = part
            offset += len(part)
            view = view[len(part) :]

    def truncate(self, size: int) -> None:
        last, used = divmod(size, _PAGE)
        for number in [number for number in self._pages if number > last]:
            del self._pages[number]
        if last in self._pages:
            self._pages[last][used:] = bytes(_PAGE - used)
        self.size = size


#: A write (bytes) or a truncation (None) at an offset.
_Change = tuple[bytes | None, int]


class _Node:
    def __init__(self, synced: _Image | None = None, modified_ms: int = 0) -> None:
        self.modified_ms = modified_ms
        self.synced = synced or _Image()
        self.current = self.synced.copy()
        self.unsynced: list[_Change] = []
        self.locked = False

    def change(self, data: bytes | None, offset: int) -> None:
        _apply(self.current, data, offset)
        self.unsynced.append((data, offset))

    def sync(self) -> None:
        for data, offset in self.unsynced:
            _apply(self.synced, data, offset)
        self.unsynced.clear()

    def lose_unsynced(self) -> None:
        self.unsynced = [change for change in self.unsynced if change[0] is None]

    def after_crash(self, chance: random.Random | None) -> "_Node":
        image = self.synced.copy()
        for data, offset in self.unsynced if chance else ():
            assert chance is not None
            fate = chance.random()
            if fate < 0.5:
                continue
            if data is not None and fate < 0.75:
                kept = chance.randrange(len(data) + 1)
                # A sector is written whole or not at all.
                kept -= (offset + kept) % _SECTOR
                data = data[: max(kept, 0)]
                if not data:
                    continue
            _apply(image, data, offset)
        return _Node(image, self.modified_ms)


def _apply(image: _Image, data: bytes | None, offset: int) -> None:
    if data is None:
        image.truncate(offset)
    else:
        image.write(data, offset)


@implementer(IFile)
class MemoryFile:
    """An open file; the node lives on while it is open, as on POSIX."""

    def __init__(self, node: _Node, files: "MemoryFiles", *, holds_lock: bool = False) -> None:
        self._node = node
        self._files = files
        self._open = True
        self._holds_lock = holds_lock

    def _open_node(self) -> _Node:
        if not self._open:
            raise OSError(errno.EBADF, "file is closed")
        return self._node

    def pread(self, size: int, offset: int) -> bytes:
        return self._open_node().current.read(size, offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._change(bytes(data), offset)

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> None:
        self._change(b"".join(buffers), offset)

    def fsync(self) -> None:
        self._open_node().sync()

    def lose_unsynced(self) -> None:
        """Does what Linux does where pages cannot be written back: they stay readable for this and
        later processes and are clean, so that no later `fsync` writes them; only bytes that are
        written again become durable. A truncation is not lost: it is in the file system's
        journal."""
        self._open_node().lose_unsynced()

    def truncate(self, size: int) -> None:
        self._change(None, size)

    def size(self) -> int:
        return self._open_node().current.size

    def modified_ms(self) -> int:
        return self._open_node().modified_ms

    def is_at(self, path: str) -> bool:
        return self._files.has(path, self._open_node())

    def may_have_data(self, offset: int) -> bool:
        return self._open_node().current.has_data(offset)

    def _change(self, data: bytes | None, offset: int) -> None:
        node = self._open_node()
        node.change(data, offset)
        node.modified_ms = self._files.now_ms()

    def close(self) -> None:
        if self._open and self._holds_lock:
            self._node.locked = False
        self._open = False


class _Dir:
    """A directory: the names it has, and those that a power loss would leave."""

    def __init__(self) -> None:
        self.current: dict[str, _Entry] = {}
        self.durable: dict[str, _Entry] = {}

    def empty(self) -> None:
        """Takes out all that is in it and below."""
        for entry in self.current.values():
            if isinstance(entry, _Dir):
                entry.empty()
        self.current = {}


_Entry = _Dir | _Node


class _Move(NamedTuple):
    """A rename from one directory to another that is durable in neither."""

    source: _Dir
    old_name: str
    target: _Dir
    name: str
    moved: _Entry

    def commit(self) -> None:
        if self.source.durable.get(self.old_name) is self.moved:
            del self.source.durable[self.old_name]
        self.target.durable[self.name] = self.moved


@implementer(IFiles)
class MemoryFiles:
    """See the module's text; `capacity` is what `usage` reports as the total, `now_ms` the clock of
    `modified_ms`."""

    def __init__(
        self,
        capacity: int = 1 << 40,
        root: _Dir | None = None,
        moves: Sequence[_Move] = (),
        *,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self.capacity = capacity
        self.now_ms = now_ms
        self._root = root or _Dir()
        self._moves = list(moves)

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        return MemoryFile(self._file(path, create=create), self)

    def open_aside(self, path: str, target: str) -> MemoryFile:
        return self.open(path, create=True)

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.pread(file.size(), 0)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def has(self, path: str, node: _Node) -> bool:
        """Returns whether `path` is the file that `node` is."""
        return self._find(path) is node

    def real_path(self, path: str) -> str:
        return path

    def list(self, path: str) -> list[str]:
        found = self._find(path)
        return sorted(found.current) if isinstance(found, _Dir) else []

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        directory = self._root
        for name in _names(path):
            below = directory.current.get(name)
            if below is None:
                below = directory.current[name] = _Dir()
                if durable:
                    directory.durable[name] = below
            if not isinstance(below, _Dir):
                raise NotADirectoryError(errno.ENOTDIR, "a file is in the way", path)
            directory = below

    def remove(self, path: str) -> None:
        self._file(path)
        parent, name = self._place(path)
        del parent.current[name]

    def remove_tree(self, path: str) -> None:
        found = self._find(path)
        if found is not None:
            if isinstance(found, _Dir):
                found.empty()
            parent, name = self._place(path)
            del parent.current[name]

    def rename(self, source: str, target: str) -> None:
        moved = self._find(source)
        if moved is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        parent, name = self._place(target)
        there = parent.current.get(name)
        if there is moved:
            # Two names of one file: both stay, as POSIX has it.
            return
        if isinstance(there, _Dir) and there.current:
            raise OSError(errno.ENOTEMPTY, "directory not empty", target)
        former, old_name = self._place(source)
        del former.current[old_name]
        parent.current[name] = moved
        if former is not parent:
            self._moves.append(_Move(former, old_name, parent, name, moved))

    def link(self, path: str, name: str) -> None:
        node = self._file(path)
        directory, below = self._place(name)
        if below in directory.current:
            raise FileExistsError(errno.EEXIST, "it is there", name)
        directory.current[below] = node

    def sync_dir(self, path: str) -> None:
        """Makes the directory's names durable. What moved between it and another one is so on both
        sides at once: file systems with a journal commit a rename as a whole, with all that was
        renamed before it in the same directories."""
        found = self._find(path)
        if not isinstance(found, _Dir):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        touched, left = [found], list[_Move]()
        committed = list[_Move]()
        for move in reversed(self._moves):
            if any(one in (move.source, move.target) for one in touched):
                touched += move.source, move.target
                committed.append(move)
            else:
                left.append(move)
        self._moves = left[::-1]
        for move in reversed(committed):
            move.commit()
        found.durable = dict(found.current)

    def usage(self, path: str) -> DiskUsage:
        return DiskUsage(self.capacity, _used_bytes(self._root))

    def lock(self, path: str) -> MemoryFile:
        node = self._file(path, create=True)
        if node.locked:
            raise BlockingIOError(errno.EAGAIN, "locked by another store", path)
        node.locked = True
        return MemoryFile(node, self, holds_lock=True)

    def kill(self) -> "MemoryFiles":
        """Returns what the next process finds after a kill -9: everything written, no locks."""
        done: dict[int, _Entry] = {}
        root = _copy(self._root, done)
        moves = [
            _Move(_copy(source, done), old_name, _copy(target, done), name, _copy(moved, done))
            for source, old_name, target, name, moved in self._moves
        ]
        return MemoryFiles(self.capacity, root, moves, now_ms=self.now_ms)

    def crash(self, seed: int | None = None) -> "MemoryFiles":
        """Returns what a power loss leaves; with a seed, plus a random part of what was not
        synced."""
        chance = None if seed is None else random.Random(seed)
        return MemoryFiles(self.capacity, _Crash(chance).left_of(self._root), now_ms=self.now_ms)

    def digest(self) -> bytes:
        """Returns a hash of all names and bytes that are read now: what `sync` has made durable
        makes no difference."""
        return _digest(self._root)

    def _find(self, path: str) -> _Entry | None:
        found: _Entry | None = self._root
        for name in _names(path):
            found = found.current.get(name) if isinstance(found, _Dir) else None
        return found

    def _place(self, path: str) -> tuple[_Dir, str]:
        """Returns the directory that has or gets a path, and the name there."""
        parent, _, name = posixpath.normpath(path).rpartition("/")
        directory = self._find(parent)
        if not isinstance(directory, _Dir):
            raise FileNotFoundError(errno.ENOENT, "no such directory", parent)
        return directory, name

    def _file(self, path: str, *, create: bool = False) -> _Node:
        found = self._find(path)
        if isinstance(found, _Node):
            return found
        if found is not None:
            raise NoFileError(errno.EISDIR, "a directory", path)
        if not create:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        directory, name = self._place(path)
        node = directory.current[name] = _Node()
        return node


class _Crash:
    """One power loss. What happened to a directory's name is one change, as file systems with a
    journal have it: one that was moved is at one of both places."""

    def __init__(self, chance: random.Random | None) -> None:
        self._chance = chance
        #: Whether what happened to the name of a directory holds.
        self._holds: dict[int, bool] = {}
        self._done: dict[int, _Entry] = {}

    def left_of(self, directory: _Dir) -> _Dir:
        """Returns the directory as the next process finds it."""
        after = self._done[id(directory)] = _Dir()
        names = sorted(directory.durable.keys() | directory.current.keys())
        for name in names if self._chance else sorted(directory.durable):
            entry = self._entry(directory.durable.get(name), directory.current.get(name))
            if entry is not None:
                after.current[name] = after.durable[name] = self._entry_after_crash(entry)
        return after

    def _entry_after_crash(self, entry: _Entry) -> _Entry:
        known = self._done.get(id(entry))
        if known is None:
            if isinstance(entry, _Dir):
                return self.left_of(entry)
            known = self._done[id(entry)] = entry.after_crash(self._chance)
        return known

    def _entry(self, old: _Entry | None, new: _Entry | None) -> _Entry | None:
        if self._chance is None or old is new:
            return old
        if isinstance(old, _Dir) and not self._moved(old):
            return old
        if isinstance(new, _Dir):
            return new if self._moved(new) else None
        return new if isinstance(old, _Dir) or self._chance.random() < 0.5 else old

    def _moved(self, directory: _Dir) -> bool:
        assert self._chance is not None
        if id(directory) not in self._holds:
            self._holds[id(directory)] = self._chance.random() < 0.5
        return self._holds[id(directory)]


def _names(path: str) -> list[str]:
    return [name for name in posixpath.normpath(path).split("/") if name not in ("", ".")]


def _used_bytes(directory: _Dir) -> int:
    return sum(
        _used_bytes(entry) if isinstance(entry, _Dir) else entry.current.used
        for entry in directory.current.values()
    )


def _digest(directory: _Dir) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for name, entry in sorted(directory.current.items()):
        is_directory = isinstance(entry, _Dir)
        found.update(b"%d%s\0" % (is_directory, name.encode()))
        found.update(_digest(entry) if isinstance(entry, _Dir) else entry.current.digest())
    return found.digest()


def _copy(entry: _Entry, done: dict[int, _Entry]) -> Any:
    """Returns a copy of the tree; `done` has what is copied already, by the identity of the
    original."""
    copied: _Entry | None = done.get(id(entry))
    if copied is None and isinstance(entry, _Node):
        copied = done[id(entry)] = _Node(entry.synced.copy(), entry.modified_ms)
        copied.current = entry.current.copy()
        copied.unsynced = list(entry.unsynced)
    elif copied is None:
        assert isinstance(entry, _Dir)
        copied = done[id(entry)] = _Dir()
        copied.current = {name: _copy(below, done) for name, below in entry.current.items()}
        copied.durable = {name: _copy(below, done) for name, below in entry.durable.items()}
    return copied
