"""Functions that are written out as text for each class of many fields: a loop over the fields
would be several times slower."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def written_function(
    lines: Iterable[str], known: dict[str, Any], class_name: str, module: str
) -> Any:
    """Returns the one function that `lines` define. `known` are its globals; it calls itself one of
    the class and module that are named, and tracebacks show the class."""
    own: dict[str, Any] = {}
    exec(compile("\n".join(lines), f"<{class_name}>", "exec"), known, own)
    ((name, function),) = own.items()
    function.__qualname__ = f"{class_name}.{name}"
    function.__module__ = module
    return function
