"""The settings of a client as the proxy answers them: what the client told, with what the
configuration and its group have to say."""

from __future__ import annotations

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.address import split_address
from rocketmq_tw.proxy.messaging.backoff import DEFAULT_DELAYS
from rocketmq_tw.proxy.messaging.messages import MAX_INT, duration_of
from rocketmq_tw.proxy.proto.messages import (
    Address,
    AddressScheme,
    CustomizedBackoff,
    Endpoints,
    ExponentialBackoff,
    Metric,
    RetryPolicy,
    Settings,
)
from rocketmq_tw.wire.bodies.groups import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    SubscriptionGroupConfig,
)

#: Delays that clients are told at most.
_MOST_DELAYS = 1_000


def answered_settings(
    settings: Settings, config: ProxyConfig, group: SubscriptionGroupConfig | None
) -> Settings:
    """Returns what a client is to use. `group` is the configuration of a consumer's group; None
    where no broker has it, and stock's defaults count."""
    answer = Settings()
    answer.CopyFrom(settings)
    if settings.HasField("publishing"):
        answer.backoff_policy.CopyFrom(_backoff_of_sends(config))
        answer.publishing.max_body_size = config.max_message_size
        answer.publishing.validate_message_type = config.enable_topic_message_type_check
    else:
        group = group or SubscriptionGroupConfig()
        answer.backoff_policy.CopyFrom(_backoff_of_retries(group))
        subscription = answer.subscription
        subscription.fifo = bool(group.consume_message_orderly)
        subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
        longest = config.grpc_client_consumer_max_long_polling_timeout_millis
        subscription.long_polling_timeout.CopyFrom(duration_of(longest))
    answer.metric.CopyFrom(_metric(settings, config))
    return answer


def _backoff_of_sends(config: ProxyConfig) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=config.grpc_client_producer_max_attempts,
        exponential_backoff=ExponentialBackoff(
            initial=duration_of(config.grpc_client_producer_backoff_initial_millis),
            max=duration_of(config.grpc_client_producer_backoff_max_millis),
            multiplier=config.grpc_client_producer_backoff_multiplier,
        ),
    )


def _backoff_of_retries(group: SubscriptionGroupConfig) -> RetryPolicy:
    policy = RetryPolicy(max_attempts=min(group.retry_max_times, MAX_INT - 1) + 1)
    kind = group.group_retry_policy
    if kind is not None and kind.type == "EXPONENTIAL":
        growth = kind.exponential_retry_policy or ExponentialRetryPolicy()
        policy.exponential_backoff.CopyFrom(
            ExponentialBackoff(
                initial=duration_of(max(0, growth.initial)),
                max=duration_of(max(0, growth.max)),
                multiplier=growth.multiplier,
            )
        )
        return policy
    delays = (kind and kind.customized_retry_policy) or CustomizedRetryPolicy()
    policy.customized_backoff.CopyFrom(
        CustomizedBackoff(
            next=[
                duration_of(max(0, delay))
                for delay in (delays.next or DEFAULT_DELAYS)[:_MOST_DELAYS]
            ]
        )
    )
    return policy


def _metric(settings: Settings, config: ProxyConfig) -> Metric:
    """Returns where the client sends metrics of its own, if anywhere."""
    if config.metric_collector_mode == "on" and config.metric_collector_address:
        host, port = split_address(config.metric_collector_address)
        # Stock's proxies call every collector's address IPv4; clients take a name for one all the
        # same.
        place = Endpoints(scheme=AddressScheme.IPv4, addresses=[Address(host=host, port=port)])
        return Metric(on=True, endpoints=place)
    if config.metric_collector_mode == "proxy":
        return Metric(on=True, endpoints=settings.access_point)
    return Metric(on=False)
