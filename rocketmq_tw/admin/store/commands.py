"""The group `rmqadmin store`."""

from __future__ import annotations

import click

from rocketmq_tw.admin.store.check import check
from rocketmq_tw.admin.store.dump import dump
from rocketmq_tw.admin.store.repair import repair
from rocketmq_tw.admin.store.stats import stats


@click.group("store")
def store() -> None:
    """Checks, repairs and shows the files of a store; no server is asked."""


for _command in (check, repair, dump, stats):
    store.add_command(_command)
