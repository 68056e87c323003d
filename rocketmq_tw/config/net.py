"""Stock's NettyServerConfig and NettyClientConfig, as far as they have an effect here.

The keys of stock that size thread pools, buffers and selectors have none: one reactor serves all.
"""

from msgspec import field

from rocketmq_tw.config.base import Config


class NettyServerConfig(Config):
    """A listening port and its limits. Sizes are bytes."""

    bind_address: str = "0.0.0.0"
    #: 0: a port of the kernel's choice. Each server replaces it with its own default.
    listen_port: int = 0
    server_channel_max_idle_time_seconds: int = 120
    server_socket_backlog: int = 1024
    enable_shutdown_gracefully: bool = False
    shutdown_wait_time_seconds: int = 30

    # Ours: stock has no such limits, or has them as system properties.
    frame_max_length: int = 16 * 1024 * 1024
    max_connections: int = 16384
    #: What all connections together may hold: incomplete frames, requests being carried out and
    #: replies that were not taken.
    max_bytes_in_flight: int = 512 * 1024 * 1024
    #: What one connection may leave unread, and for how many seconds, before it is closed.
    max_unread_bytes: int = 64 * 1024 * 1024
    max_unread_seconds: int = 60


class NettyClientConfig(Config):
    """Connections that we make."""

    connect_timeout_millis: int = 3000
    client_channel_max_idle_time_seconds: int = 120
    use_tls: bool = field(default=False, name="useTLS")


class TlsConfig(Config):
    """What stock takes from system properties or from the file that `tls.config.file` names."""

    #: disabled, permissive (plaintext and TLS on one port) or enforcing.
    server_mode: str = field(default="permissive", name="tls.server.mode")
    #: A certificate made at the start in place of files: it encrypts, and proves nothing.
    test_mode_enable: bool = field(default=True, name="tls.test.mode.enable")
    #: none, optional or require.
    server_need_client_auth: str = field(default="none", name="tls.server.need.client.auth")
    server_key_path: str = field(default="", name="tls.server.keyPath")
    server_key_password: str = field(default="", name="tls.server.keyPassword")
    server_cert_path: str = field(default="", name="tls.server.certPath")
    server_auth_client: bool = field(default=False, name="tls.server.authClient")
    server_trust_cert_path: str = field(default="", name="tls.server.trustCertPath")
    client_key_path: str = field(default="", name="tls.client.keyPath")
    client_key_password: str = field(default="", name="tls.client.keyPassword")
    client_cert_path: str = field(default="", name="tls.client.certPath")
    client_auth_server: bool = field(default=False, name="tls.client.authServer")
    client_trust_cert_path: str = field(default="", name="tls.client.trustCertPath")
