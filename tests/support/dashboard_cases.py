"""The requests of stock's dashboard 2.1.1 that are compared: one each, in the order in which they
run.

A request has `$name` where a site says the value (`tests/support/dashboard_site.py`). Paths and
parameters as in its source of July 2026.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from string import Template
from typing import Any

import attrs

from tests.support.mqadmin_cases import NEW, NOT_COMPARED_KEYS, Case

Json = dict[str, Any]

#: Of apache/rocketmq-dashboard.
COMMIT = "770822bbc812bfd0c2a94aa0128ab6f59b50d076"


@attrs.frozen
class RestCall(Case):
    """A request of the REST interface: its line is method, path with query, and body as JSON."""

    versions: tuple[str, ...] = (NEW,)
    exact: bool = True

    @property
    def request(self) -> str:
        """Method and path."""
        method, target, *_ = self.line.split(" ", 2)
        return f"{method} {target.partition('?')[0]}"

    @property
    def command(self) -> str:
        return self.request

    def query(self, values: Mapping[str, str]) -> dict[str, str]:
        """What is in the query, with the values of a site."""
        _, _, query = self.line.split(" ", 2)[1].partition("?")
        pairs = (pair.split("=", 1) for pair in query.split("&") if pair)
        return {name: Template(value).substitute(values) for name, value in pairs}

    def body(self, values: Mapping[str, str]) -> Any:
        """What is in the body, with the values of a site; None where there is none."""
        _, _, *body = self.line.split(" ", 2)
        return json.loads(Template(body[0]).substitute(values)) if body else None

    def parameters(self, values: Mapping[str, str]) -> Json:
        """What is in query and body; a list stands under the empty name."""
        body = self.body(values)
        named = body if isinstance(body, dict) else {} if body is None else {"": body}
        return {**self.query(values), **named}


def _query(target: str, parameters: Mapping[str, str]) -> str:
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    return f"{target}?{query}" if query else target


@attrs.frozen
class _Like:
    """Makes requests that are compared in one way."""

    options: Json = attrs.field(factory=dict)

    def get(self, path: str, **query: str) -> RestCall:
        return RestCall(_query(f"GET {path}", query), **self.options)

    def post(self, path: str, **query: str) -> RestCall:
        """One whose parameters are in its query."""
        return RestCall(_query(f"POST {path}", query), **self.options)

    def send(self, path: str, body: object) -> RestCall:
        """One whose parameters are in its body."""
        return RestCall(f"POST {path} {json.dumps(body)}", **self.options)


def _like(**options: Any) -> _Like:
    return _Like(options)


_same = _like()
#: Figures of the moment are masked.
_figures = _like(exact=False)
#: Where a message lies in the log follows from the traces before it.
_places = _like(without='"(commitLogOffset|preparedTransactionOffset)": ')
#: Messages that a group gave up in any order.
_letters = _like(unordered=True, without='"commitLogOffset": ')
#: Stock 5.3.3 lists a connected group under the name of its topic, of which nobody knows a group.
_topic_as_group = partial(_like, unlike="stock tells of a group with the name of the topic")

#: A topic has its messages between these times, in ms since 1970; and none after the latter.
_BEGIN, _END = "0", "4102444800000"


def _topic(name: str, **more: Any) -> Json:
    return {
        "brokerNameList": ["$broker"],
        "topicName": name,
        "writeQueueNums": 1,
        "readQueueNums": 1,
        "perm": 6,
        "order": False,
        **more,
    }


def _group(name: str, **more: Any) -> Json:
    config = {"groupName": name, "retryQueueNums": 1, "retryMaxTimes": 3, **more}
    return {"clusterNameList": ["$cluster"], "subscriptionGroupConfig": config}


def _reset(group: str, **more: Any) -> Json:
    return {"consumerGroupList": [group], "topic": "$topic", "resetTime": -1, "force": True} | more


def _page(topic: str) -> Json:
    page = {"pageNum": 1, "pageSize": 20, "taskId": ""}
    return {"topic": topic, "begin": int(_BEGIN), "end": int(_END), **page}


def _dead(message: str, **more: str) -> Json:
    return {
        "topicName": "%DLQ%$dead",
        "consumerGroup": "$dead",
        "msgId": message,
        **more,
    }


_TOPIC_AS_GROUP = (
    "-}",
    '-"topic-a": {',
    '-"diffTotal": 4',
    '-"lastTimestamp": 0',
    '-"queueStatInfoList": [',
    "-{",
    '-"brokerName": "broker-a"',
    '-"brokerOffset": 2',
    '-"clientInfo": null',
    '-"consumerOffset": 0',
    '-"lastTimestamp": 0',
    '-"queueId": 0',
    "-}",
    "-{",
    '-"brokerName": "broker-a"',
    '-"brokerOffset": 2',
    '-"clientInfo": null',
    '-"consumerOffset": 0',
    '-"lastTimestamp": 0',
    '-"queueId": 1',
    "-}",
    "-]",
    '-"topic": "topic-a"',
)
_TRACK = (
    "-}",
    "-{",
    '-"consumerGroup": "topic-a"',
    '-"exceptionDesc": "org.apache.rocketmq.client.exception.MQClientException: CODE: 17'
    " DESC: REMARK",
    '-"trackType": "UNKNOWN"',
)

_NO_ID = "00000000000000000000000000000000"

CASES: list[RestCall] = [
    # cluster
    _like(
        exact=False,
        unlike="ours tells of four values more",
        # It is another one on each machine.
        without='"pythonVersion": ',
        differs=(
            '+"getTransferedTps": N',
            '+"halfMessagesWaiting": "N"',
            '+"storageFailure": ""',
        ),
    ).get("/cluster/list.query"),
    _like(more_is_fine=True, without=NOT_COMPARED_KEYS).get(
        "/cluster/brokerConfig.query", brokerAddr="$address"
    ),
    # topics
    _same.get("/topic/list.query"),
    _same.get("/topic/list.query", skipSysProcess="true"),
    _same.get("/topic/list.query", skipSysProcess="true", skipRetryAndDlq="true"),
    _same.get("/topic/list.queryTopicType"),
    _same.get("/topic/stats.query", topic="$topic"),
    _same.get("/topic/stats.query", topic="%DLQ%$dead"),
    _same.get("/topic/stats.query", topic="missing"),
    _same.get("/topic/route.query", topic="$topic"),
    _same.get("/topic/route.query", topic="missing"),
    _topic_as_group(unordered=True, differs=('-"topic-a"',)).get(
        "/topic/queryTopicConsumerInfo.query", topic="$topic"
    ),
    _same.get("/topic/queryTopicConsumerInfo.query", topic="missing"),
    _topic_as_group(differs=_TOPIC_AS_GROUP).get(
        "/topic/queryConsumerByTopic.query", topic="$topic"
    ),
    _same.get("/topic/queryConsumerByTopic.query", topic="missing"),
    _same.get("/topic/examineTopicConfig.query", topic="$topic"),
    _same.get("/topic/examineTopicConfig.query", topic="missing"),
    _same.send("/topic/createOrUpdate.do", _topic("made")),
    _same.send("/topic/createOrUpdate.do", _topic("made", readQueueNums=4, perm=4)),
    _same.send("/topic/createOrUpdate.do", _topic("open")),
    _same.send("/topic/createOrUpdate.do", _topic("fifo", messageType="FIFO", order=True)),
    _same.send("/topic/createOrUpdate.do", _topic("decided", messageType="TRANSACTION")),
    _same.send("/topic/createOrUpdate.do", _topic("odd", messageType="WRONG")),
    _same.send("/topic/createOrUpdate.do", _topic("bad name")),
    _same.get("/topic/examineTopicConfig.query", topic="made"),
    _same.get("/topic/examineTopicConfig.query", topic="fifo"),
    _same.get("/topic/list.queryTopicType"),
    # groups
    _figures.get("/consumer/groupList.query"),
    _figures.get("/consumer/groupList.query", skipSysGroup="true", address="$address"),
    _figures.get("/consumer/group.refresh.all"),
    _figures.get("/consumer/group.refresh", consumerGroup="$group"),
    _figures.get("/consumer/group.refresh", consumerGroup="missing", address="$address"),
    _figures.get("/consumer/group.query", consumerGroup="$group"),
    _figures.get("/consumer/group.query", consumerGroup="away-group", address="$address"),
    _figures.get("/consumer/group.query", consumerGroup="missing"),
    _same.get("/consumer/examineSubscriptionGroupConfig.query", consumerGroup="$group"),
    _same.get("/consumer/examineSubscriptionGroupConfig.query", consumerGroup="missing"),
    _same.get(
        "/consumer/examineSubscriptionGroupConfig.query", consumerGroup="%SYS%TOOLS_CONSUMER"
    ),
    _same.get("/consumer/fetchBrokerNameList.query", consumerGroup="$group"),
    _same.get("/consumer/fetchBrokerNameList.query", consumerGroup="missing"),
    _same.get("/consumer/queryTopicByConsumer.query", consumerGroup="$group", address="$address"),
    _same.get("/consumer/queryTopicByConsumer.query", consumerGroup="missing", address="$address"),
    _same.get("/consumer/consumerConnection.query", consumerGroup="$group", address="$address"),
    _same.get("/consumer/consumerConnection.query", consumerGroup="missing", address="$address"),
    _figures.get(
        "/consumer/consumerRunningInfo.query",
        consumerGroup="$group",
        clientId="$client",
        jstack="false",
    ),
    _figures.get(
        "/consumer/consumerRunningInfo.query",
        consumerGroup="$group",
        clientId="other",
        jstack="false",
    ),
    _same.send("/consumer/createOrUpdate.do", _group("made-group")),
    _same.send("/consumer/createOrUpdate.do", _group("made-group", consumeMessageOrderly=True)),
    _same.get("/consumer/examineSubscriptionGroupConfig.query", consumerGroup="made-group"),
    _same.send("/consumer/resetOffset.do", _reset("$group")),
    _same.send("/consumer/resetOffset.do", _reset("$group", resetTime=0)),
    _same.send("/consumer/resetOffset.do", _reset("away-group", resetTime=0)),
    _same.send("/consumer/resetOffset.do", _reset("missing")),
    _same.send("/consumer/resetOffset.do", _reset("$group", topic="missing")),
    _same.send("/consumer/skipAccumulate.do", _reset("$group")),
    _same.send("/consumer/skipAccumulate.do", _reset("away-group")),
    _same.send(
        "/consumer/deleteSubGroup.do", {"groupName": "made-group", "brokerNameList": ["$broker"]}
    ),
    _same.send(
        "/consumer/deleteSubGroup.do", {"groupName": "missing", "brokerNameList": ["$broker"]}
    ),
    _same.get("/consumer/fetchBrokerNameList.query", consumerGroup="made-group"),
    # producers
    _same.get("/producer/producerConnection.query", producerGroup="$producers", topic="$topic"),
    _same.get("/producer/producerConnection.query", producerGroup="missing", topic="$topic"),
    # messages
    _topic_as_group(differs=_TRACK).get(
        "/message/viewMessage.query", topic="$topic", msgId="$unique_id"
    ),
    _same.get("/message/viewMessage.query", topic="$topic", msgId=_NO_ID),
    _same.get("/message/viewMessage.query", topic="missing", msgId="$unique_id"),
    _same.get("/message/queryMessageByTopicAndKey.query", topic="$topic", key="key-1"),
    _same.get("/message/queryMessageByTopicAndKey.query", topic="$topic", key="missing"),
    _same.get("/message/queryMessageByTopicAndKey.query", topic="missing", key="key-1"),
    _same.get("/message/queryMessageByTopic.query", topic="$topic", begin=_BEGIN, end=_END),
    _same.get("/message/queryMessageByTopic.query", topic="$topic", begin=_END, end=_END),
    _same.get("/message/queryMessageByTopic.query", topic="missing", begin=_BEGIN, end=_END),
    _same.send("/message/queryMessagePageByTopic.query", _page("$topic")),
    _same.send("/message/queryMessagePageByTopic.query", _page("missing")),
    _figures.post(
        "/message/consumeMessageDirectly.do",
        topic="$topic",
        consumerGroup="$group",
        msgId="$unique_id",
        clientId="$client",
    ),
    _figures.post(
        "/message/consumeMessageDirectly.do",
        topic="$topic",
        consumerGroup="$group",
        msgId="$unique_id",
    ),
    _figures.post(
        "/message/consumeMessageDirectly.do",
        topic="$topic",
        consumerGroup="away-group",
        msgId="$unique_id",
    ),
    # traces
    _same.get("/messageTrace/viewMessage.query", topic="$topic", msgId="$unique_id"),
    _same.get("/messageTrace/viewMessage.query", topic="$topic", msgId=_NO_ID),
    _figures.get("/messageTrace/viewMessageTraceDetail.query", msgId="$unique_id"),
    _same.get("/messageTrace/viewMessageTraceDetail.query", msgId=_NO_ID),
    _figures.get("/messageTrace/viewMessageTraceGraph.query", msgId="$unique_id"),
    _same.get(
        "/messageTrace/viewMessageTraceGraph.query", msgId="$unique_id", traceTopic="missing"
    ),
    # dead letters
    _letters.send("/dlqMessage/queryDlqMessageByConsumerGroup.query", _page("%DLQ%$dead")),
    _same.send("/dlqMessage/queryDlqMessageByConsumerGroup.query", _page("%DLQ%away-group")),
    _same.get("/dlqMessage/exportDlqMessage.do", consumerGroup="$dead", msgId="$unique_id"),
    _same.get("/dlqMessage/exportDlqMessage.do", consumerGroup="$dead", msgId=_NO_ID),
    _same.send("/dlqMessage/batchExportDlqMessage.do", [_dead("$unique_id"), _dead(_NO_ID)]),
    _same.send("/dlqMessage/batchResendDlqMessage.do", [_dead("$unique_id")]),
    _same.send("/dlqMessage/batchResendDlqMessage.do", [_dead(_NO_ID)]),
    # its curves
    _figures.get("/dashboard/broker.query", date="$today"),
    _figures.get("/dashboard/topic.query", date="$today"),
    _figures.get("/dashboard/topic.query", date="$today", topicName="$topic"),
    _figures.get("/dashboard/topicCurrent.query"),
    # what changes the topics that the others ask about
    _same.send(
        "/topic/sendTopicMessage.do",
        {"topic": "open", "key": "key-s", "tag": "tag-s", "messageBody": "sent"},
    ),
    # Nobody may send to it.
    _same.send(
        "/topic/sendTopicMessage.do",
        {"topic": "made", "key": "key-s", "tag": "tag-s", "messageBody": "sent"},
    ),
    _same.send(
        "/topic/sendTopicMessage.do",
        {"topic": "fifo", "key": "", "tag": "", "messageBody": "sent", "traceEnabled": True},
    ),
    _same.send(
        "/topic/sendTopicMessage.do",
        {"topic": "decided", "key": "k", "tag": "t", "messageBody": "sent", "traceEnabled": True},
    ),
    _same.send(
        "/topic/sendTopicMessage.do",
        {"topic": "missing", "key": "k", "tag": "t", "messageBody": "sent"},
    ),
    _places.get("/message/queryMessageByTopicAndKey.query", topic="decided", key="k"),
    _same.post("/topic/deleteTopic.do", topic="made", clusterName="$cluster"),
    _same.post("/topic/deleteTopic.do", topic="fifo"),
    _same.post("/topic/deleteTopic.do", topic="missing"),
    _same.post("/topic/deleteTopicByBroker.do", topic="decided", brokerName="$broker"),
    _same.post("/topic/deleteTopicByBroker.do", topic="decided", brokerName="missing"),
    _same.get("/topic/route.query", topic="made"),
    _same.get("/topic/route.query", topic="fifo"),
    _same.get("/topic/list.query", skipSysProcess="true"),
]

#: Requests that no case has, and why.
ELSEWHERE = {
    "/acl/": "there are no accounts yet",
    "/login/": "the dashboard's own users",
    "/rocketmq-dashboard/csrf-token": "of the dashboard's own",
    "/monitor/": "a file of the dashboard's own",
    "/ops/": "settings of the dashboard's own",
    "/proxy/": "settings of the dashboard's own",
    "/rocketmq/nsaddr.query": "a setting of the dashboard's own",
    "/test/runTask.do": "sends and receives for ever",
}
