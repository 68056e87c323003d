"""The checks that the requests to each server pass, until there are accounts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.administrators import AdministratorCheck
from rocketmq_tw.net.cluster_peers import ClusterCheck
from rocketmq_tw.net.interfaces import IPeer, RequestCheck
from rocketmq_tw.wire.command import RemotingCommand


def _nobody(request: RemotingCommand, peer: IPeer) -> bool:
    return False


def request_checks(
    config: NettyServerConfig,
    seconds: Callable[[], float],
    needs_no_administrator: Callable[[RemotingCommand, IPeer], bool] = _nobody,
) -> Sequence[RequestCheck]:
    """Returns the checks by address. `seconds` is the clock's time; `needs_no_administrator` is
    handed to `AdministratorCheck`."""
    return [AdministratorCheck(config, needs_no_administrator), ClusterCheck(config, seconds)]
