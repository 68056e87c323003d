"""Requests 11 and 361: a consumer pulls from a queue, and may be held where it has nothing yet."""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.handlers import answer_later
from rocketmq_tw.broker.filters.compile_budget import CompileBudget
from rocketmq_tw.broker.reading.held_pulls import HeldPulls
from rocketmq_tw.broker.reading.logic_pull import LogicPulls
from rocketmq_tw.broker.reading.pull_checks import PullChecks, PullForbidden
from rocketmq_tw.broker.reading.pull_reads import PullAnswer, PullReads
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.interface import MessageFilter
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pull import PULL_SUSPEND, PullMessageRequestHeader


class PullRequests:
    """Serves pulls in stages: resolve the queue, authorise, filter, read, answer or hold.

    A pull of a logic queue goes through the same stages as one of a physical queue: the first stage
    turns it into that, and the last one turns its answer back (`logic_pull.py`).
    """

    def __init__(
        self,
        logic_pulls: LogicPulls,
        checks: PullChecks,
        reads: PullReads,
        held: HeldPulls,
        budget: CompileBudget,
    ) -> None:
        self._logic_pulls = logic_pulls
        self._checks = checks
        self._reads = reads
        self._held = held
        self._pull = budget.retrying(self.pull)
        self._resume = budget.retrying(partial(self.pull, is_first=False))

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {RequestCode.PULL_MESSAGE: self._pull, RequestCode.LITE_PULL_MESSAGE: self._pull}

    def pull(
        self, request: RemotingCommand, peer: IPeer, is_first: bool = True
    ) -> RemotingCommand | Deferred[RemotingCommand] | None:
        """Returns the answer, or what fires with it; None where the pull is held and answered
        later. One that was held, and comes not for the first time, commits no offset and is not
        held again."""
        try:
            answer = self._answer(request, peer, is_first)
        except PullForbidden as error:
            response = request.response(error.code, error.remark)
            response.ext_fields["forbiddenType"] = str(error.forbidden_type)
            return response
        # Not by isinstance of Deferred, which costs more than all the checks of a pull.
        if isinstance(answer, PullAnswer):
            return _response(request, answer)
        return None if answer is None else answer.addCallback(partial(_response, request))

    def _answer(
        self, request: RemotingCommand, peer: IPeer, is_first: bool
    ) -> PullAnswer | Deferred[PullAnswer] | None:
        """Goes through the stages; returns None where the pull is held."""
        header = request.header(PullMessageRequestHeader)
        if self._reads.is_unserved:
            return self._reads.send_to_master(header)
        logic = self._logic_pulls.resolve(header)
        if logic is not None:
            if not logic.is_here:
                return Deferred.fromCoroutine(self._logic_pulls.ask(logic))
            header = logic.header
        group, topic = self._checks.authorise(request.code, header)
        wanted = self._checks.filter(header, group, peer)
        committer = peer.address if is_first else None
        answer = self._reads.read(header, wanted, group, topic, committer)
        if logic is not None:
            answer = logic.translate(answer)
        may_hold = is_first and answer.code is ResponseCode.PULL_NOT_FOUND
        if may_hold and self._hold(request, header, wanted, peer):
            return None
        self._reads.count(header, answer)
        return answer

    def _hold(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        wanted: MessageFilter,
        peer: IPeer,
    ) -> bool:
        """Returns whether the pull is held: it may be, and there is room."""
        if not header.sys_flag & PULL_SUSPEND:
            return False
        # Nothing of the body is read, and it would be kept as long as the request.
        request.body = b""
        request.suspended = self._held.hold(
            (header.topic, header.queue_id),
            header.queue_offset,
            wanted,
            header.suspend_timeout_millis,
            peer,
            lambda: answer_later(self._resume, request, peer),
        )
        return request.suspended


def _response(request: RemotingCommand, answer: PullAnswer) -> RemotingCommand:
    return request.response(answer.code, answer.remark, header=answer.header, body=answer.data)
