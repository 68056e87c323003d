"""How many files and sockets the process may have open, and what of it connections may take."""

import resource

from twisted.logger import Logger

#: What the store, its checkpoints, replicas and our own connections need at most: a store without
#: descriptors cannot go on to its next file.
RESERVED = 512

log = Logger()


def raise_descriptor_limit() -> None:
    """Raises the soft limit of open files to the hard one, as a JVM does at its start: the usual
    soft limit of 1024 is for programs that use `select`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.info("the limit of open files stays at {soft}: {error}", soft=soft, error=error)


def room_for_connections() -> int:
    """The connections that leave the rest of the process its descriptors: all but `RESERVED`, or
    half of them where there are few."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _NO_LIMIT
    return limit - min(RESERVED, limit // 2)


def room_for_files() -> int:
    """The files that a store may keep open: where the limit is low, a half of what connections
    leave, so that checkpoints, replicas and the store's other files have the rest."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST_FILES
    return min(_MOST_FILES, max(_FEWEST_FILES, (limit - room_for_connections()) // 2))


#: What a store makes use of, and what it needs at least.
_MOST_FILES, _FEWEST_FILES = 256, 8
_NO_LIMIT = 1 << 31
