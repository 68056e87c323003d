"""A file system in memory that knows what a power loss would leave of it.

A file's synced image holds what `fsync` made durable, and a directory entry is durable once
`sync_dir` ran on its directory: the strictest reading of POSIX. `crash()` gives a new file system
with only that; with a seed, a random subset of the unsynced writes (torn at sector boundaries)
and of the unsynced names is kept too, since a disk may write any of them early.
"""

import errno
import posixpath
import random
from collections.abc import Sequence

from zope.interface import implementer

from rocketmq_tw.files.interface import DiskUsage, IFile, IFiles

_SECTOR = 512


class _Image:
    """Bytes of a file; what was never written behind `data` reads as zeros up to `size`."""

    def __init__(self, data: bytes | bytearray = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = size

    def copy(self) -> "_Image":
        return _Image(self.data, self.size)

    def read(self, size: int, offset: int) -> bytes:
        size = min(size, self.size - offset)
        if size <= 0:
            return b""
        data = bytes(self.data[offset : offset + size])
        return data + bytes(size - len(data))

    def write(self, data: bytes, offset: int) -> None:
        if offset > len(self.data):
            self.data += bytes(offset - len(self.data))
        self.data[offset : offset + len(data)] = data
        self.size = max(self.size, offset + len(data))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.size = size


#: A write (bytes) or a truncation (None) at an offset.
_Change = tuple[bytes | None, int]


class _Node:
    def __init__(self, synced: _Image | None = None) -> None:
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
        return _Node(image)


def _apply(image: _Image, data: bytes | None, offset: int) -> None:
    if data is None:
        image.truncate(offset)
    else:
        image.write(data, offset)


@implementer(IFile)
class MemoryFile:
    """An open file; the node lives on while it is open, as on POSIX."""

    def __init__(self, node: _Node, *, holds_lock: bool = False) -> None:
        self._node = node
        self._open = True
        self._holds_lock = holds_lock

    def _use(self) -> _Node:
        if not self._open:
            raise OSError(errno.EBADF, "file is closed")
        return self._node

    def pread(self, size: int, offset: int) -> bytes:
        return self._use().current.read(size, offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._use().change(bytes(data), offset)

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> None:
        self._use().change(b"".join(buffers), offset)

    def fsync(self) -> None:
        self._use().sync()

    def truncate(self, size: int) -> None:
        self._use().change(None, size)

    def size(self) -> int:
        return self._use().current.size

    def close(self) -> None:
        if self._open and self._holds_lock:
            self._node.locked = False
        self._open = False


@implementer(IFiles)
class MemoryFiles:
    """See the module's text; `capacity` is what `usage` reports as the total."""

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.capacity = capacity
        self._names: dict[str, _Node] = {}
        self._durable_names: dict[str, _Node] = {}
        self._dirs: set[str] = {"/", "."}
        self._durable_dirs: set[str] = {"/", "."}

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        path = posixpath.normpath(path)
        node = self._names.get(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._check_parent(path)
            node = self._names[path] = _Node()
        return MemoryFile(node)

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.pread(file.size(), 0)

    def exists(self, path: str) -> bool:
        path = posixpath.normpath(path)
        return path in self._names or path in self._dirs

    def list(self, path: str) -> list[str]:
        path = posixpath.normpath(path)
        entries = [*self._names, *self._dirs]
        return sorted(
            posixpath.basename(entry)
            for entry in entries
            if entry != path and posixpath.dirname(entry) == path
        )

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        path = posixpath.normpath(path)
        while path and path not in ("/", "."):
            if path in self._names:
                raise NotADirectoryError(errno.ENOTDIR, "a file is in the way", path)
            self._dirs.add(path)
            if durable:
                self._durable_dirs.add(path)
            path = posixpath.dirname(path)

    def remove(self, path: str) -> None:
        path = posixpath.normpath(path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        del self._names[path]

    def remove_tree(self, path: str) -> None:
        path = posixpath.normpath(path)
        below = path + "/"
        self._names = {n: f for n, f in self._names.items() if not n.startswith(below)}
        self._dirs = {d for d in self._dirs if d != path and not d.startswith(below)}

    def rename(self, source: str, target: str) -> None:
        source, target = posixpath.normpath(source), posixpath.normpath(target)
        if source not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._check_parent(target)
        self._names[target] = self._names.pop(source)

    def sync_dir(self, path: str) -> None:
        path = posixpath.normpath(path)
        if path not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        for durable, current in (
            (self._durable_names, self._names),
            (self._durable_dirs, self._dirs),
        ):
            gone = [n for n in durable if posixpath.dirname(n) == path and n not in current]
            for name in gone:
                _forget(durable, name)
        for name, node in self._names.items():
            if posixpath.dirname(name) == path:
                self._durable_names[name] = node
        self._durable_dirs |= {d for d in self._dirs if posixpath.dirname(d) == path}

    def usage(self, path: str) -> DiskUsage:
        return DiskUsage(self.capacity, sum(len(n.current.data) for n in self._names.values()))

    def lock(self, path: str) -> MemoryFile:
        self.open(path, create=True)
        node = self._names[posixpath.normpath(path)]
        if node.locked:
            raise BlockingIOError(errno.EAGAIN, "locked by another store", path)
        node.locked = True
        return MemoryFile(node, holds_lock=True)

    def kill(self) -> "MemoryFiles":
        """What the next process finds after a kill -9: everything written, no locks."""
        after = MemoryFiles(self.capacity)
        after._dirs, after._durable_dirs = set(self._dirs), set(self._durable_dirs)
        nodes: dict[int, _Node] = {}
        for names, target in (
            (self._names, after._names),
            (self._durable_names, after._durable_names),
        ):
            for name, node in names.items():
                if id(node) not in nodes:
                    copy = nodes[id(node)] = _Node(node.synced.copy())
                    copy.current = node.current.copy()
                    copy.unsynced = list(node.unsynced)
                target[name] = nodes[id(node)]
        return after

    def crash(self, seed: int | None = None) -> "MemoryFiles":
        """What a power loss leaves; with a seed, plus a random part of what was not synced."""
        chance = None if seed is None else random.Random(seed)
        names, dirs = dict(self._durable_names), set(self._durable_dirs)
        if chance:
            for directory in sorted(self._dirs - dirs):
                if chance.random() < 0.5:
                    dirs.add(directory)
            for name in sorted(self._names.keys() | names.keys()):
                if self._names.get(name) is not names.get(name) and chance.random() < 0.5:
                    if name in self._names:
                        names[name] = self._names[name]
                    else:
                        del names[name]
        after = MemoryFiles(self.capacity)
        after._dirs = {d for d in dirs if _reachable(d, dirs)}
        after._durable_dirs = set(after._dirs)
        nodes: dict[int, _Node] = {}
        for name in sorted(names):
            if posixpath.dirname(name) in after._dirs:
                node = names[name]
                if id(node) not in nodes:
                    nodes[id(node)] = node.after_crash(chance)
                after._names[name] = nodes[id(node)]
        after._durable_names = dict(after._names)
        return after

    def _check_parent(self, path: str) -> None:
        parent = posixpath.dirname(path) or "."
        if parent not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, "no such directory", parent)


def _forget(durable: dict[str, _Node] | set[str], name: str) -> None:
    if isinstance(durable, set):
        durable.discard(name)
    else:
        del durable[name]


def _reachable(directory: str, dirs: set[str]) -> bool:
    while directory not in ("/", "."):
        if directory not in dirs:
            return False
        directory = posixpath.dirname(directory) or "."
    return True
