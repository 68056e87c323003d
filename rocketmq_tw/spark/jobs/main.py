"""`rmqspark`: the command line of the ready jobs."""

import rich_click as click

from rocketmq_tw.spark.jobs.ingest import ingest
from rocketmq_tw.spark.jobs.lag import lag
from rocketmq_tw.spark.jobs.replay import replay
from rocketmq_tw.spark.jobs.stats import stats


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Move messages between RocketMQ and Spark, and look at them."""


for command in (ingest, replay, stats, lag):
    main.add_command(command)
