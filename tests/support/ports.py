"""Ports that the kernel chose and that stay ours while a server is down.

A reserved port is bound but never listened on. Both Twisted and Java bind with SO_REUSEADDR, so a
server may listen on it, be killed and listen again, while the kernel gives it to nobody else.
"""

import socket

LOOPBACK = "127.0.0.1"
_ATTEMPTS = 200


class ReservedPort:
    """One TCP port; free again after `release`."""

    def __init__(self, port: int = 0) -> None:
        """Reserves `port`, or one of the kernel's choice; raises `OSError` where it is taken."""
        self._socket = socket.socket()
        self._socket.bind(("", port))
        # Only now: with it from the start two test processes could reserve the same port.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.number}"

    def release(self) -> None:
        self._socket.close()


class BrokerPorts:
    """A broker's port with the two that stock derives from it: VIP (- 2) and HA (+ 1)."""

    def __init__(self) -> None:
        for _ in range(_ATTEMPTS):
            taken: list[ReservedPort] = []
            try:
                taken.append(ReservedPort())
                taken.append(ReservedPort(taken[0].number - 2))
                taken.append(ReservedPort(taken[0].number + 1))
            except OSError:
                for port in taken:
                    port.release()
                continue
            self.listen, self.vip, self.ha = taken
            return
        raise OSError(f"no three free ports of a broker in {_ATTEMPTS} attempts")

    def release(self) -> None:
        for port in (self.listen, self.vip, self.ha):
            port.release()
