"""Which reactor a server runs on."""

import select
import sys
from typing import Any


def server_reactor() -> Any:
    """Installs the process's reactor: the one of `twistd --reactor NAME` if any was chosen, this
    suite's where there is epoll, Twisted's choice elsewhere. To be called before anything imports
    `twisted.internet.reactor`, as `makeService` is by twistd."""
    if "twisted.internet.reactor" not in sys.modules and hasattr(select, "epoll"):
        from rocketmq_tw.net.reactor import install

        install()
    from twisted.internet import reactor

    return reactor
