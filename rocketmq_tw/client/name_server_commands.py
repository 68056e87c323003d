"""Requests of clients to name servers, and what their answers say; used by all clients, blocking or
not. A program that needs only these loads no modules about messages."""

from rocketmq_tw.client.answers import read_success
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicList
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import GetRouteInfoRequestHeader


def route_command(topic: str) -> RemotingCommand:
    """Returns request 105, which asks for the route of a topic."""
    header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    return RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)


def read_route(address: str, response: RemotingCommand) -> TopicRouteData | None:
    """Returns the route; None where the name server does not know the topic."""
    if response.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    return read_success(TopicRouteData, address, response)


def topics_command() -> RemotingCommand:
    """Returns request 206, which asks for the names of all topics."""
    return RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


def read_topics(address: str, response: RemotingCommand) -> list[str]:
    """Returns the topics of an answer; raises `BrokerError`."""
    return read_success(TopicList, address, response).topic_list
