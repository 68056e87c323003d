"""What a campaign does to servers: the three ways in which one is gone for a while."""

from __future__ import annotations

from enum import StrEnum

from tests.support.processes import ServerProcess


class Outage(StrEnum):
    """How a server is gone: others see a closed connection, or only silence."""

    KILL = "kill -9"
    PAUSE = "SIGSTOP"
    CUT = "cut link"

    def begin(self, server: ServerProcess) -> None:
        """The server is gone; `CUT` is for one with a host of its own."""
        if self is Outage.KILL:
            server.kill()
        elif self is Outage.PAUSE:
            server.pause()
        else:
            server.cut()

    def end(self, server: ServerProcess) -> None:
        """It is back; a killed one starts and need not be ready yet."""
        if self is Outage.KILL:
            server.launch()
        elif self is Outage.PAUSE:
            server.resume()
        else:
            server.mend()
