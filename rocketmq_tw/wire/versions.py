"""The ordinals by which clients and servers announce their version."""

from __future__ import annotations

#: From 4.0.0 on each release has two ordinals, its snapshot's before its own, ten releases make a
#: minor version and ten of those a major one.
_FIRST_REGULAR = 212
_FIRST_MAJOR = 4
#: What stock 5.3.3 knows; it has one name for all above.
_HIGHER = 612


def version_name(ordinal: int) -> str:
    """The name that stock shows, such as `V5_3_3`; releases before 4.0.0 are not told apart."""
    if ordinal < _FIRST_REGULAR:
        return "older than V4_0_0"
    if ordinal >= _HIGHER:
        return "HIGHER_VERSION"
    release, is_release = divmod(ordinal - _FIRST_REGULAR, 2)
    major, minor = divmod(release // 10, 10)
    name = f"V{_FIRST_MAJOR + major}_{minor}_{release % 10}"
    return name if is_release else f"{name}_SNAPSHOT"
