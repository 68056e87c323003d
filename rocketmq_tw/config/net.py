"""Stock's NettyServerConfig and NettyClientConfig, as far as they have an effect here.

The keys of stock that size thread pools, buffers and selectors have none: one reactor serves all.
"""

from typing import Annotated

from rocketmq_tw.config.base import (
    Config,
    Format,
    HostName,
    LocalPath,
    NetworkList,
    NonNegative,
    Port,
    Positive,
    PositiveLong,
    Range,
    Secret,
)
from rocketmq_tw.config.values import INT, LONG, choice
from rocketmq_tw.structs import field

#: Behind the reason why a plain connection ended, where nothing had been received over it.
WANTS_TLS = (
    "It had answered nothing: a server that takes TLS only (tls.server.mode=enforcing) does so;"
    " useTLS=true of a broker, --tls of rmqadmin and tls= of clients speak it"
)
#: Behind the reason why a connection ended before TLS had begun on it.
SPEAKS_NO_TLS = (
    "TLS had not begun: a server that speaks none (tls.server.mode=disabled) does so, and is asked"
    " without useTLS=true, --tls or tls="
)


#: Suites of TLS 1.2 that encrypt and authenticate in one, as OpenSSL names them; those with CBC
#: have been broken again and again. TLS 1.3 has no others.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20"


class NettyServerConfig(Config, frozen=True):
    """A listening port and its limits. Sizes are bytes."""

    bind_address: HostName = "0.0.0.0"
    #: 0: a port of the kernel's choice. Each server replaces it with its own default.
    listen_port: Port = 0
    server_channel_max_idle_time_seconds: Positive = 120
    server_socket_backlog: Positive = 1024
    enable_shutdown_gracefully: bool = False
    shutdown_wait_time_seconds: NonNegative = 30

    # Ours: stock has no such key.
    #: From where administrators are heard, beside this machine.
    admin_addresses: NetworkList = ""
    #: From where brokers of the cluster are heard, beside this machine; empty: from everywhere.
    cluster_addresses: NetworkList = ""
    #: The load balancers that tell whose connections they pass on (HAProxy's header).
    ha_proxy_addresses: NetworkList = ""

    # Ours: stock has no such limits, or has them as system properties.
    frame_max_length: Annotated[int, Range(1024, INT[1])] = 16 * 1024 * 1024
    max_connections: PositiveLong = 16384
    #: What all connections together may hold: incomplete frames, requests being carried out and
    #: replies that were not taken.
    max_bytes_in_flight: Annotated[int, Range(1 << 20, LONG[1])] = 512 * 1024 * 1024
    #: What one connection may leave unread, and for how many seconds, before it is closed.
    max_unread_bytes: PositiveLong = 64 * 1024 * 1024
    max_unread_seconds: PositiveLong = 60


class NettyClientConfig(Config, frozen=True):
    """Connections that this process opens to other servers."""

    connect_timeout_millis: Positive = 3000
    client_channel_max_idle_time_seconds: Positive = 120
    use_tls: bool = field(default=False, name="useTLS")


class TlsConfig(Config, frozen=True):
    """What stock takes from system properties or from the file that `tls.config.file` names."""

    #: disabled, permissive (plaintext and TLS on one port) or enforcing.
    server_mode: Annotated[str, Format(choice("disabled", "permissive", "enforcing"))] = field(
        default="permissive", name="tls.server.mode"
    )
    #: A certificate made at the start in place of files: it encrypts, and proves nothing.
    test_mode_enable: bool = field(default=True, name="tls.test.mode.enable")
    #: none, optional or require.
    server_need_client_auth: Annotated[str, Format(choice("none", "optional", "require"))] = field(
        default="none", name="tls.server.need.client.auth"
    )
    server_key_path: LocalPath = field(default="", name="tls.server.keyPath")
    server_key_password: Secret = field(default="", name="tls.server.keyPassword")
    server_cert_path: LocalPath = field(default="", name="tls.server.certPath")
    server_auth_client: bool = field(default=False, name="tls.server.authClient")
    server_trust_cert_path: LocalPath = field(default="", name="tls.server.trustCertPath")
    client_key_path: LocalPath = field(default="", name="tls.client.keyPath")
    client_key_password: Secret = field(default="", name="tls.client.keyPassword")
    client_cert_path: LocalPath = field(default="", name="tls.client.certPath")
    client_auth_server: bool = field(default=False, name="tls.client.authServer")
    client_trust_cert_path: LocalPath = field(default="", name="tls.client.trustCertPath")

    @property
    def unused_by_client(self) -> str | None:
        """Says which files a client is given and does not use, as stock's clients do not, and what
        to change; None where it uses all."""
        missing = ["tls.client.authServer=true"] * (not self.client_auth_server)
        missing += ["tls.test.mode.enable=false"] * self.test_mode_enable
        if self.client_trust_cert_path and missing:
            return (
                f"tls.client.trustCertPath {self.client_trust_cert_path} alone checks nobody, so"
                f" any server is trusted: set {' and '.join(missing)}"
            )
        if self.client_cert_path and self.test_mode_enable:
            return (
                f"tls.client.certPath {self.client_cert_path} is shown to no server: set"
                " tls.test.mode.enable=false"
            )
        return None
