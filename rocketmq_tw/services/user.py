"""The user that twistd is to become."""

from __future__ import annotations

import pwd
from typing import Any


def check_user(twistd: Any) -> None:
    """Ends the program with one line where nobody has the number that `-u` gives; twistd finds
    that, with a traceback, once the server starts. `twistd` are its options.

    A name that nobody has never comes here: twistd reads its own options, and ends with a traceback
    of its own, before it loads any command."""
    number = twistd.get("uid")
    # Behind a change of the root there are other users.
    if number is None or twistd.get("chroot"):
        return
    try:
        pwd.getpwuid(number)
    except KeyError as error:
        raise SystemExit(f"-u {number}: no user has this number: give another one") from error
