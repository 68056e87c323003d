"""Stock's ProxyConfig, as far as it has an effect here, and keys of ours.

Defaults are stock 5.3.3's; `OWN_DEFAULTS` are a proxy's of ours.
"""

from typing import Annotated

from rocketmq_tw.config.base import (
    AddressList,
    Config,
    Format,
    LocalPath,
    NonNegative,
    NonNegativeLong,
    OptionalHost,
    Port,
    Positive,
    PositiveLong,
)
from rocketmq_tw.config.values import (
    DELAY_LEVELS,
    address,
    choice,
    delay_levels,
    named_ports,
    or_nothing,
)
from rocketmq_tw.structs import field

#: Values of `proxyMode`, in any case.
_CLUSTER, LOCAL = "CLUSTER", "LOCAL"
#: Where our proxies depart from stock's: clients go on as they came, and nobody is given a
#: certificate that proves nothing.
OWN_DEFAULTS = {"useEndpointPortFromRequest": "true", "tlsTestModeEnable": "false"}


def _mode(text: str) -> str:
    return str(choice(_CLUSTER, LOCAL)(text.strip().upper()))


class ProxyConfig(Config, frozen=True):
    """What a proxy serves, and how. Times in ms unless the key says seconds, sizes in bytes."""

    # Its name, and where its cluster is.
    namesrv_addr: AddressList = ""
    proxy_mode: Annotated[str, Format(_mode)] = _CLUSTER
    #: Labels of its metrics; the name is the host's where none is given.
    proxy_cluster_name: str = "DefaultCluster"
    proxy_name: str = ""

    # Ports.
    #: 0: a port of the kernel's choice.
    grpc_server_port: Port = 8081
    #: Clients of RocketMQ 4; gRPC is understood there too.
    remoting_listen_port: Port = 8080
    #: The host that classic clients are told in place of the brokers'; empty: where they asked.
    remoting_access_addr: OptionalHost = ""
    grpc_max_inbound_message_size: Positive = 130 * 1024 * 1024
    grpc_client_idle_time_mills: PositiveLong = 120_000
    #: What calls get to end when the proxy stops.
    grpc_shutdown_time_seconds: NonNegativeLong = 30
    #: Whether routes name the port that the client asked at, or `grpcServerPort`.
    use_endpoint_port_from_request: bool = False
    tls_test_mode_enable: bool = True
    tls_key_path: LocalPath = ""
    tls_cert_path: LocalPath = ""

    # What may be sent. 0: no limit.
    max_message_size: NonNegative = 4 * 1024 * 1024
    enable_message_body_empty_check: bool = True
    max_user_property_size: NonNegative = 16 * 1024
    user_property_max_num: NonNegative = 128
    max_message_group_size: NonNegative = 64
    max_delay_time_mills: NonNegativeLong = 24 * 3_600_000
    max_transaction_recovery_second: NonNegativeLong = 3_600
    enable_topic_message_type_check: bool = True
    #: How long it is remembered where a half message stands, from its send or a question about it.
    transaction_data_expire_millis: PositiveLong = 30_000
    use_delay_level: bool = False
    message_delay_level: Annotated[str, Format(delay_levels)] = DELAY_LEVELS

    # What clients are told of sending and receiving.
    grpc_client_producer_max_attempts: Positive = 3
    grpc_client_producer_backoff_initial_millis: NonNegativeLong = 10
    grpc_client_producer_backoff_max_millis: NonNegativeLong = 1_000
    grpc_client_producer_backoff_multiplier: Positive = 2
    grpc_client_consumer_min_long_polling_timeout_millis: NonNegativeLong = 5_000
    grpc_client_consumer_max_long_polling_timeout_millis: PositiveLong = 20_000
    grpc_client_consumer_long_polling_batch_size: Positive = 32
    #: Whether clients send metrics of their own: off, on (to the address) or proxy.
    metric_collector_mode: Annotated[str, Format(choice("off", "on", "proxy"))] = "off"
    metric_collector_address: Annotated[str, Format(or_nothing(address))] = ""

    # Receives.
    default_invisible_time_mills: PositiveLong = 60_000
    min_invisible_time_mills_for_recv: NonNegativeLong = 10_000
    #: 0: no limit.
    max_invisible_time_mills: NonNegativeLong = 12 * 3_600_000
    #: A long poll ends so long before its deadline.
    long_polling_reserve_time_in_millis: NonNegativeLong = 100
    enable_batch_ack: bool = False
    #: How long messages of a client that is gone stay invisible.
    invisible_time_millis_when_clear: PositiveLong = 1_000
    enable_proxy_auto_renew: bool = True
    max_renew_retry_times: Positive = 3
    renew_ahead_time_millis: PositiveLong = 10_000
    renew_max_time_millis: PositiveLong = 3 * 3_600_000
    renew_schedule_period_millis: PositiveLong = 5_000

    # Clients, and requests of brokers to them.
    #: A client without a heartbeat for so long is gone.
    channel_expired_timeout: PositiveLong = 120_000
    #: What a client gets to answer a broker.
    grpc_proxy_relay_request_timeout_in_seconds: PositiveLong = 5

    #: The topic in which proxies tell each other of consumers; empty: they do not. It is created in
    #: the cluster of the second name, or else the third.
    heartbeat_syncer_topic_name: str = "DefaultHeartBeatSyncerTopic"
    heartbeat_syncer_topic_cluster_name: str = ""
    rocket_mq_cluster_name: str = field(default="DefaultCluster", name="rocketMQClusterName")
    #: The host by which proxies tell each other apart; empty: this machine's address.
    local_serve_addr: OptionalHost = ""

    # What is known of topics and groups.
    topic_route_service_cache_expired_seconds: Positive = 300
    topic_route_service_cache_max_num: Positive = 20_000
    topic_config_cache_expired_seconds: Positive = 300
    topic_config_cache_refresh_seconds: Positive = 20
    topic_config_cache_max_num: Positive = 20_000
    subscription_group_config_cache_expired_seconds: Positive = 300
    subscription_group_config_cache_refresh_seconds: Positive = 20
    subscription_group_config_cache_max_num: Positive = 20_000

    # Ours: stock has no such keys.
    #: `host:port` that routes name for all queues; empty: where the client asked.
    advertised_address: Annotated[str, Format(or_nothing(address))] = ""
    #: Whether other proxies of this machine listen on the ports too: the kernel gives each
    #: connection to one of them.
    share_ports: bool = False
    #: Ports at which clients before 5.0 reach the broker of a name, `name:port` with `;` between:
    #: they know brokers by their addresses only.
    remoting_broker_ports: Annotated[str, Format(named_ports)] = ""
    #: Calls that one connection may have open.
    grpc_max_streams: Positive = 1_000
    #: Bytes of the headers of one call.
    grpc_max_metadata_bytes: Positive = 16 * 1024
    #: A connection that is silent so long is asked whether it lives.
    grpc_keepalive_seconds: Positive = 60
    #: Connections to each broker over which clients of one group are registered there: a broker
    #: knows one client of a group for each connection.
    max_connections_per_broker: Positive = 64
