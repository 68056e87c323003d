"""Keeps what peers send from steering a terminal or forging a line of the log."""

import re
from typing import Any

from twisted.logger import ILogObserver, eventAsText, globalLogPublisher
from zope.interface import provider

#: Control characters, those that turn the direction of text or end a line, lone surrogates. The
#: log indents lines of one event behind the first, so a newline forges none.
_UNSAFE = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_IN_FIELD = re.compile(f"[\n{_UNSAFE}]")


def escape_log() -> None:
    """Lets all observers of the process's log, now and later, see escaped events; to be called
    before logging begins. Calling it again changes nothing."""
    globalLogPublisher.removeObserver(escape_event)
    globalLogPublisher.addObserver(escape_event)


@provider(ILogObserver)
def escape_event(event: dict[str, Any]) -> None:
    """Writes unsafe characters in the texts of `event`, and newlines in its fields, as Python
    would: ESC becomes `\\x1b`.

    It changes the event itself: it has to be the first observer.
    """
    for name, value in event.items():
        if isinstance(value, str) and not name.startswith("log_") and _IN_FIELD.search(value):
            event[name] = _IN_FIELD.sub(_escaped, value)
    text = eventAsText(event, includeTimestamp=False, includeSystem=False)
    if not _IN_TEXT.search(text):
        return
    # It stands in what is no string, such as an exception, or in a traceback.
    event.pop("log_failure", None)
    event["log_format"] = "{log_escaped}"
    event["log_escaped"] = _IN_TEXT.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
