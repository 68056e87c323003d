"""gRPC's health service: whether the server, or one of its services, serves."""

from __future__ import annotations

from collections.abc import Callable, Collection

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from rocketmq_tw.proxy.grpc.interfaces import (
    SMALL_REQUEST,
    GrpcError,
    GrpcStatus,
    ICall,
    Methods,
    ServerStream,
    Unary,
)
from rocketmq_tw.proxy.proto.health_pb2 import HealthCheckRequest, HealthCheckResponse
from rocketmq_tw.runtime.listeners import Listeners

_SERVICE = "/grpc.health.v1.Health"
#: How often those that watch a server that is not ready look again.
_LOOK_SECONDS = 1.0
_SERVING = HealthCheckResponse.SERVING
_NOT_SERVING = HealthCheckResponse.NOT_SERVING
_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


class HealthService:
    """Answers for the whole server, by the name "", and for each of its services, which serve all
    or none. `not_ready` says why clients cannot be served yet; an empty text once they can, which
    does not change again."""

    def __init__(
        self, clock: IReactorTime, services: Collection[str], not_ready: Callable[[], str]
    ) -> None:
        self._clock = clock
        self._not_ready = not_ready
        self._services = frozenset(["", *services])
        self._serves = True
        self._stopped: Listeners[()] = Listeners("the server stops")

    def stop(self) -> None:
        """Says from now on that the server does not serve any more, and ends the calls of those
        that watch it."""
        self._serves = False
        self._stopped.tell()

    def methods(self) -> Methods:
        """Returns the methods of the service."""
        return {
            f"{_SERVICE}/Check": Unary(HealthCheckRequest, self._check, SMALL_REQUEST),
            f"{_SERVICE}/Watch": ServerStream(HealthCheckRequest, self._watch, SMALL_REQUEST),
        }

    def _check(self, request: HealthCheckRequest, call: ICall) -> HealthCheckResponse:
        if request.service not in self._services:
            raise GrpcError(
                GrpcStatus.NOT_FOUND,
                f"there is no service {request.service[:200]!r}; an empty name is the whole server",
            )
        return HealthCheckResponse(status=self._status())

    def _status(self) -> HealthCheckResponse.ServingStatus:
        return _SERVING if self._serves and not self._not_ready() else _NOT_SERVING

    def _watch(self, request: HealthCheckRequest, call: ICall) -> Deferred[None]:
        """Tells what the status is, and each change, until the client ends the call or the server
        has stopped."""
        over: Deferred[None] = Deferred()

        def end() -> None:
            forget()
            if not over.called:
                over.callback(None)

        def stop() -> None:
            self._tell(request.service, call)
            end()

        forget = self._stopped.add(stop)
        call.on_end(end)
        self._tell(request.service, call)
        if self._not_ready() and request.service in self._services:
            Deferred.fromCoroutine(self._tell_when_ready(request.service, call))
        return over

    async def _tell_when_ready(self, service: str, call: ICall) -> None:
        while self._not_ready():
            await deferLater(self._clock, _LOOK_SECONDS)
            if call.is_over:
                return
        self._tell(service, call)

    def _tell(self, service: str, call: ICall) -> None:
        if service not in self._services:
            call.send(HealthCheckResponse(status=_UNKNOWN))
        else:
            call.send(HealthCheckResponse(status=self._status()))
