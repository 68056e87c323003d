"""A name server and a broker of one kind, with what the requests of `dashboard_cases` ask about."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.dashboard_cases import Json, RestCall
from tests.support.java_client import Dashboard
from tests.support.mqadmin_cases import Case
from tests.support.mqadmin_site import GROUP, MESSAGES, TOPIC, Site
from tests.support.wait import wait_until

DEAD = "dead-group"
#: What clients tell of a message that one group reads and traces.
TRACED = {"Pub", "SubBefore", "SubAfter"}

_COMMA = re.compile(",$", re.MULTILINE)


class DashboardSite(Site):
    """The site of mqadmin's calls, with dead letters and a dashboard."""

    _dashboard: Dashboard

    @contextmanager
    def running(self) -> Iterator[DashboardSite]:
        """Starts it all and ends it again."""
        with super().running(), ExitStack() as ends:
            java, namesrv = self._java, self._values["namesrv"]
            ends.enter_context(
                java.consumer(
                    namesrv, DEAD, {TOPIC: "*"}, failTimes=1, maxReconsumeTimes=0, trace=True
                )
            )
            puller = ends.enter_context(java.puller(namesrv))
            puller.wait_drained(f"%DLQ%{DEAD}", MESSAGES)
            self._values |= {"dead": DEAD, "today": time.strftime("%Y-%m-%d")}
            self._dashboard = ends.enter_context(java.dashboard(namesrv))
            wait_until(self._is_complete, "traces and offsets of all members", interval=0.5)
            yield self

    def _is_complete(self) -> bool:
        """Whether all has come that clients tell of a while after it was."""
        traces = self._data("GET /messageTrace/viewMessageTraceDetail.query?msgId=$unique_id")
        return {trace["traceType"] for trace in traces} == TRACED and all(
            self._has_committed(group) for group in (GROUP, DEAD)
        )

    def _has_committed(self, group: str) -> bool:
        topics = self._data(
            f"GET /consumer/queryTopicByConsumer.query?consumerGroup={group}&address=$address"
        )
        left = {topic["topic"]: topic["diffTotal"] for topic in topics}
        return left == {TOPIC: 0, f"%RETRY%{group}": 0}

    def _data(self, line: str) -> list[Json]:
        data: list[Json] = self._told(RestCall(line))["data"]
        return data

    def run(self, case: Case) -> str:
        """The body of the dashboard's answer, without commas behind lines, of which the last of a
        list has none; or what mqadmin prints."""
        if not isinstance(case, RestCall):
            return super().run(case)
        text = json.dumps(self._told(case), indent=1, sort_keys=True)
        return _COMMA.sub("", text)

    def _told(self, call: RestCall) -> Json:
        return self._dashboard.answer(call.request, call.parameters(self._values))
