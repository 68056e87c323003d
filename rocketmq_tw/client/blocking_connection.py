"""A connection of the blocking client: a request, then its answer, on one socket."""

import socket
import ssl
import time

from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.config.net import WANTS_TLS
from rocketmq_tw.net.address import split_address
from rocketmq_tw.wire.command import RemotingCommand, decode_command, encode_command
from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.frame import DEFAULT_FRAME_LIMIT, Frame


class ConnectionFailed(ClientError):
    """No connection, or it broke or fell silent: `address` says where. What was sent may have
    been carried out."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address


class BlockingConnection:
    """One socket; closed for good after the first error. Raises `ConnectionFailed` where it cannot
    connect within `connect_timeout` seconds."""

    def __init__(
        self, address: str, connect_timeout: float, tls: ssl.SSLContext | None = None
    ) -> None:
        self.address = address
        self._unheard = tls is None
        host, port = split_address(address)
        try:
            self._socket = socket.create_connection((host, port), connect_timeout)
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if tls is not None:
                    self._socket = tls.wrap_socket(self._socket, server_hostname=host)
            except BaseException:
                self._socket.close()
                raise
        except OSError as error:
            raise ConnectionFailed(address, f"cannot connect: {error}") from error

    def request(self, command: RemotingCommand, timeout: float) -> RemotingCommand:
        """Returns the answer; raises `ConnectionFailed` where none comes within `timeout`
        seconds."""
        deadline = time.monotonic() + timeout
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(encode_command(command))
            while True:
                response = self._receive(deadline)
                # What else comes is a notice of the broker, which means nothing to us.
                if response.is_response and response.opaque == command.opaque:
                    return response
        except (OSError, WireError) as error:
            self.close()
            reason = str(error) or type(error).__name__
            if self._unheard and isinstance(error, ConnectionError):
                reason = f"{reason}. {WANTS_TLS}"
            raise ConnectionFailed(self.address, f"request {command.code}: {reason}") from error

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def _receive(self, deadline: float) -> RemotingCommand:
        length = int.from_bytes(self._read(4, deadline), "big", signed=True)
        if not 4 <= length <= DEFAULT_FRAME_LIMIT - 4:
            raise WireError(f"a frame length of {length}")
        data = self._read(length, deadline)
        header_end = 4 + int.from_bytes(data[1:4], "big")
        if header_end > length:
            raise WireError(f"a header of {header_end - 4} bytes in a frame of {length}")
        return decode_command(Frame(data[0], data[4:header_end], data[header_end:]))

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray(size)
        view, position = memoryview(data), 0
        while position < size:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError("no answer in time")
            self._socket.settimeout(remaining)
            received = self._socket.recv_into(view[position:])
            if not received:
                raise ConnectionError("the connection was closed")
            self._unheard = False
            position += received
        return bytes(data)
