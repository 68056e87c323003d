"""Controller mode, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.election.controllers import GroupControllers
from rocketmq_tw.broker.election.enrolment import Enrolment
from rocketmq_tw.broker.election.following import ControllerFollower
from rocketmq_tw.broker.election.identity import IdentityFiles
from rocketmq_tw.broker.election.master_requests import MasterRequests
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.candidacy import Candidacy
from rocketmq_tw.broker.role.holder import RoleChanges, RoleHolder
from rocketmq_tw.broker.role.state import Role, check_controllers_named
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.controller import NotifyBrokerRoleChangedRequestHeader

#: Seconds between two looks at the name of the controllers; as stock's.
CONTROLLER_LOOK_UP_SECONDS = 120.0


class ElectedRole(Part):
    """Gives the broker the role that its controllers say, with enableControllerMode."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        addresses: Addresses,
        changes: RoleChanges,
        writing: Writing,
        replicas: Replicas,
    ) -> None:
        self._host = host
        self._config = host.config
        self._role = role
        self._addresses = addresses
        self._changes = changes
        self._health = writing.health
        self._switching = replicas.switching
        self._candidacy: Candidacy | None = None
        self._controllers: GroupControllers | None = None
        self.follower: ControllerFollower | None = None

    def start(self) -> Deferred[object] | None:
        config, host = self._config, self._host
        if not config.enable_controller_mode:
            return None
        check_controllers_named(config)
        files = IdentityFiles(
            host.files,
            StorePaths(host.store_config).broker_identity,
            config.broker_cluster_name,
            config.broker_name,
        )
        self._candidacy = Candidacy(host.reactor, self._health, self._role, host.log_name)
        self._controllers = controllers = GroupControllers(host, self._candidacy)
        self.follower = ControllerFollower(
            host,
            controllers,
            Enrolment(files, controllers.client, host.in_thread, host.now_ms),
            self._addresses,
            self._role,
            self._changes,
            self._switching,
        )
        requests = MasterRequests(controllers, self.follower, self._role, self._switching)
        self._switching.controller = requests.calls()
        # What is another broker's is refused before anything is opened.
        return host.in_thread(files.identity)

    def opened(self) -> None:
        if self.follower is not None:
            assert self._controllers is not None
            follower = self.follower
            self._controllers.look_up().addCallback(lambda _: follower.start())

    def stop(self) -> None:
        if self.follower is not None:
            self.follower.stop()
        if self._candidacy is not None:
            self._candidacy.stop()

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return {RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._role_changed}

    def periodic(self) -> Iterable[Periodic]:
        config, follower, controllers = self._config, self.follower, self._controllers
        if follower is None or controllers is None:
            return
        poll = config.sync_broker_metadata_period / 1000
        yield Periodic("asking for the role", poll, follower.poll, may_hang=True)
        yield Periodic(
            "the heartbeat", lambda: config.broker_heartbeat_interval / 1000, follower.beat
        )
        leader = config.sync_controller_metadata_period / 1000
        # A request that needs the leader says that there is none.
        yield Periodic(
            "asking who leads",
            leader,
            lambda: controllers.client.find_leader().addErrback(lambda _: None),
            may_hang=True,
        )
        yield Periodic(
            "the controllers' name", CONTROLLER_LOOK_UP_SECONDS, controllers.look_up, may_hang=True
        )

    def metrics(self) -> Iterable[Metric]:
        return () if self._candidacy is None else self._candidacy.metrics()

    def _role_changed(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        if self.follower is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "this broker has no controller: enableControllerMode"
            )
        said = request.header(NotifyBrokerRoleChangedRequestHeader)
        self.follower.told(said.master_epoch or 0)
        return request.response()
