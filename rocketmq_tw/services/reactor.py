"""Chooses the reactor that a server runs on."""

import select
import sys
from typing import Any


def server_reactor() -> Any:
    """Installs and returns the process's reactor: what `twistd --reactor NAME` chose, or else this
    suite's where there is epoll, or Twisted's default. To be called before anything imports
    `twisted.internet.reactor`, as `makeService` is by twistd."""
    if "twisted.internet.reactor" not in sys.modules and hasattr(select, "epoll"):
        from rocketmq_tw.net.reactor import install

        install()
    from twisted.internet import reactor

    return reactor
