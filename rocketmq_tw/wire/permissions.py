"""The permission bits of a topic and of a broker."""

READ = 4
WRITE = 2
INHERIT = 1


def is_readable(perm: int) -> bool:
    return bool(perm & READ)


def is_writable(perm: int) -> bool:
    return bool(perm & WRITE)


def is_inherited(perm: int) -> bool:
    """Returns whether topics may be created after this one."""
    return bool(perm & INHERIT)


def is_valid(perm: int) -> bool:
    return 0 <= perm <= READ | WRITE | INHERIT
