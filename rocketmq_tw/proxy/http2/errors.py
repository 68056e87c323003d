"""What is wrong with a connection, and with which code it ends."""

from __future__ import annotations

from h2.errors import ErrorCodes


class Http2Error(Exception):
    """The other end broke a rule of HTTP/2 or a limit: the connection ends with `code`."""

    def __init__(self, code: ErrorCodes, message: str) -> None:
        super().__init__(message)
        self.code = code
