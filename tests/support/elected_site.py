"""A controller, two brokers that it leads and a container of one kind, with what the calls of
`ELECTED_CASES` ask about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.cluster import OURS, make_name_server
from tests.support.container_servers import make_container
from tests.support.controllers import running_controllers
from tests.support.elected_brokers import ElectedBrokers
from tests.support.load import send_until_accepted
from tests.support.mqadmin_cases import Case
from tests.support.mqadmin_site import BROKER, TOPIC, Site
from tests.support.wait import wait_until


class ElectedSite(Site):
    """A master, a slave that has its log, and files of brokers for a container without one."""

    @contextmanager
    def running(self) -> Iterator[ElectedSite]:
        """Starts it all and ends it again."""
        with ExitStack() as ends:
            self._values = self._start(ends)
            # Stock keeps no epoch in which nothing was stored.
            epochs = Case("getBrokerEpoch -b $broker")
            wait_until(lambda: self.run(epochs).count("#Epoch") == 2, "an epoch of each broker")
            yield self

    def _start(self, ends: ExitStack) -> dict[str, str]:
        """Starts as much at once as can be; returns what calls say for each `$name`."""
        kind, home = self._kind, self._home
        names = make_name_server(kind, home / "namesrv")
        ends.callback(names.close)
        names.launch()
        container = make_container(kind, home / "container", names.address)
        ends.callback(container.close)
        container.launch()
        kinds = [OURS if kind == OURS else "stock"]
        controllers = ends.enter_context(running_controllers(home, kinds))
        names.wait_ready()
        group = ends.enter_context(ElectedBrokers(BROKER, home, names, controllers, [kind, kind]))
        container.wait_ready()
        told = group.master
        assert told.address is not None
        send_until_accepted(told.address, TOPIC, b"m")
        (slave,) = told.sync_state_set - {told.broker_id}
        return {
            "namesrv": names.address,
            "controller": controllers.addresses,
            "cluster": group.brokers[0].cluster,
            "broker": BROKER,
            "master_id": str(told.broker_id),
            "slave_id": str(slave),
            "container": container.address,
            "file": container.broker_file("added"),
            "slave_file": container.broker_file("slave", "brokerRole=SLAVE\nbrokerId=0\n"),
            "replicas_file": container.broker_file("few", "totalReplicas=1\ninSyncReplicas=2\n"),
            "folder": str(self._folder),
        }
