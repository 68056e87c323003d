"""The figures that servers tell Prometheus, ours and stock's."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from tests.support.ports import ReservedPort
from tests.support.wait import PeerFailed, wait_until

#: A label that stock's library gives every figure, and figures of the library itself.
_LABEL_OF_LIBRARY, _OF_LIBRARY = "otel_scope_name", ("otel_scope_info", "target_info")


class Figure(NamedTuple):
    """Its type is Prometheus' word for it; a label is a name, or name=value where its values
    count."""

    name: str
    type: str
    labels: frozenset[str]

    def __str__(self) -> str:
        return f"{self.type} {self.name}{sorted(self.labels)}"


def exporter_keys(port: ReservedPort) -> dict[str, str]:
    """What has a server tell its figures at the port."""
    return {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": str(port.number),
        "metricsPromExporterHost": "127.0.0.1",
    }


def figures(port: int, valued: Collection[str] = ()) -> set[Figure]:
    """The figures that a server tells at a port of this machine; `valued` labels are told with
    their values."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    # Stock's library leaves the unit out of the name that it tells a type of.
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    return {
        Figure(
            sample.name,
            types[max(filter(sample.name.startswith, types), key=len)],
            frozenset(
                f"{label}={value}" if label in valued else label
                for label, value in sample.labels.items()
                if label != _LABEL_OF_LIBRARY
            ),
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.startswith(_OF_LIBRARY)
    }


def all_figures(
    look: Callable[[], set[Figure]], names: Collection[str], wanted: Collection[Figure] = ()
) -> set[Figure]:
    """All that were seen in looks, when figures of these names and those `wanted` are among them
    and no new ones come."""
    seen: set[Figure] = set()

    def complete() -> set[Figure]:
        more = look() - seen
        seen.update(more)
        missing = set(names) - {each.name for each in seen}
        missing |= {str(each) for each in set(wanted) - seen}
        if missing or more:
            raise PeerFailed(f"no {sorted(missing)}, new in this look: {sorted(map(str, more))}")
        return seen

    return wait_until(complete, "all figures", interval=2)
