"""The errors with which a request over a connection can fail; each names the address. And wrong
keys of TLS."""

from twisted.internet import error


class RemotingError(Exception):
    """Base: something between us and `address` went wrong."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, reason)
        self.address = address
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.address}: {self.reason}"


class ConnectError(RemotingError, error.ConnectError):
    """No connection could be made."""

    __str__ = RemotingError.__str__

    def __init__(self, address: str, reason: str) -> None:
        RemotingError.__init__(self, address, reason)


class ConnectionLost(RemotingError, error.ConnectionLost):
    """The connection went away before the answer came; the request may have been carried out."""

    __str__ = RemotingError.__str__

    def __init__(self, address: str, reason: str) -> None:
        RemotingError.__init__(self, address, reason)


class RequestTimeout(RemotingError):
    """No answer in time; the request may have been carried out."""

    def __init__(self, address: str, code: int, timeout: float) -> None:
        super().__init__(address, f"no answer to request {code} within {timeout:.3g} s")
        self.code = code
        self.timeout = timeout


class TlsConfigError(ValueError):
    """TLS keys that contradict each other or name files that cannot be used."""
