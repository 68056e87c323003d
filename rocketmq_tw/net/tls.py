"""TLS as stock has it: a server's three modes. In mode permissive plaintext and TLS share a port
(`first_bytes.py`)."""

from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory

from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.net.errors import TlsConfigError
from rocketmq_tw.net.tls_contexts import TlsContext, server_context

HANDSHAKE_BYTE = 0x16


class ServerTls:
    """Whether and how a server speaks TLS, as `tls.server.mode` says."""

    log = Logger()

    def __init__(self, config: TlsConfig) -> None:
        if config.server_mode not in ("disabled", "permissive", "enforcing"):
            raise TlsConfigError(
                f"tls.server.mode is {config.server_mode!r}; give disabled, permissive or enforcing"
            )
        self._mode = config.server_mode
        self._context: TlsContext | None = None
        self._offered: list[bytes] = []
        if self._mode != "disabled":
            self._context = server_context(config, self._offered)
        elif config.server_auth_client or config.server_need_client_auth == "require":
            raise TlsConfigError(
                "tls.server.mode is disabled, so no client is checked: set it to enforcing, or"
                " tls.server.authClient to false and tls.server.need.client.auth to none"
            )
        if self._mode == "permissive" and config.server_auth_client:
            self.log.warn(
                "tls.server.mode is permissive: clients that speak plaintext are let in without a"
                " certificate, whatever tls.server.authClient says; enforcing keeps them out"
            )

    @property
    def is_on(self) -> bool:
        """Whether TLS is spoken at all."""
        return self._context is not None

    @property
    def is_enforced(self) -> bool:
        """Whether nothing else is spoken."""
        return self._mode == "enforcing"

    def offer(self, protocol: bytes) -> None:
        """Names `protocol`, such as h2, to clients that ask what is spoken within TLS (ALPN)."""
        if protocol not in self._offered:
            self._offered.append(protocol)

    def secure(self, protocol: Any, clock: IReactorTime) -> Any:
        """Returns what takes TLS for `protocol`, with the certificate of the moment. What is
        written in one turn of `clock` is encrypted in one piece."""
        assert self._context is not None
        wrapped = Factory.forProtocol(lambda: protocol)
        factory = TLSMemoryBIOFactory(self._context.options(), False, wrapped, clock)
        factory.noisy = False
        return factory.buildProtocol(None)
