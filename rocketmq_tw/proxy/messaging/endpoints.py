"""Finds the addresses at which clients reach a proxy, as routes tell them."""

from __future__ import annotations

from ipaddress import ip_address

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.address import split_address
from rocketmq_tw.proxy.grpc.interfaces import ICall
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import Address, AddressScheme, Code, Endpoints

#: Addresses of one request: each queue of the answer names all of them.
MAX_ADDRESSES = 32
#: Characters of a host.
_MAX_HOST = 255


def endpoints_for(asked: Endpoints, call: ICall, config: ProxyConfig) -> Endpoints:
    """Returns what routes name as the place of every queue: the advertised address where there is
    one, otherwise where the client says that it asked, otherwise where its call came in.

    Raises `StatusError` for addresses that no client can reach.
    """
    if config.advertised_address:
        return _endpoints(*split_address(config.advertised_address))
    if not asked.addresses:
        return _endpoints(*_called_at(call))
    if len(asked.addresses) > MAX_ADDRESSES:
        raise StatusError(
            Code.ILLEGAL_ACCESS_POINT,
            f"{len(asked.addresses)} addresses in the endpoints: name at most {MAX_ADDRESSES}",
        )
    found = Endpoints(scheme=asked.scheme or _scheme(asked.addresses[0].host))
    for address in asked.addresses:
        port = address.port if config.use_endpoint_port_from_request else config.grpc_server_port
        if not 0 < len(address.host) <= _MAX_HOST or not 0 < port < 65536:
            raise StatusError(
                Code.ILLEGAL_ACCESS_POINT,
                f"the endpoint {address.host[:_MAX_HOST]}:{port} has no host or no port: give both",
            )
        found.addresses.add(host=address.host, port=port)
    return found


def _called_at(call: ICall) -> tuple[str, int]:
    try:
        return split_address(call.authority)
    except ValueError:
        return split_address(call.local_address)


def _endpoints(host: str, port: int) -> Endpoints:
    return Endpoints(scheme=_scheme(host), addresses=[Address(host=host, port=port)])


def _scheme(host: str) -> AddressScheme:
    try:
        version = ip_address(host).version
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv4 if version == 4 else AddressScheme.IPv6
