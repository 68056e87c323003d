"""Errors of bytes that are no command, and of requests that are refused."""

from rocketmq_tw.wire.codes import ResponseCode


class WireError(ValueError):
    """Bytes that are no remoting frame, command or body; the connection cannot go on."""


class RequestError(Exception):
    """A request that is answered with an error code and a remark; the connection goes on."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"{code} {remark}")
        self.code = code
        self.remark = remark


class HeaderError(RequestError):
    """A header field that is missing or not of its type; SYSTEM_ERROR as stock answers it."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


class BodyError(RequestError, WireError):
    """A body that is not what its request says; SYSTEM_ERROR, the connection goes on."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


class TableError(BodyError):
    """A table, mostly of a file, that is not what it should be; nobody asked with it."""

    def __str__(self) -> str:
        return self.remark
