"""Which Python runs the server, as logs and reports name it."""

from __future__ import annotations

import platform
import sys
import sysconfig

#: What distributions install here is built with profiles, though not by this option of configure.
_OF_DISTRIBUTION = "/usr"


def python_version() -> str:
    """Returns the version, and says where the build lacks optimizations: servers take some sixth
    more CPU with it (docs/performance.md)."""
    text = platform.python_version()
    return text if is_optimized() else f"{text} (built without --enable-optimizations)"


def is_optimized() -> bool:
    """Returns whether this Python was built with profiles, as far as it says so."""
    options = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    return sys.base_prefix == _OF_DISTRIBUTION or "--enable-optimizations" in options
