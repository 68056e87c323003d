"""The keys for what a server writes into its log, and how much of it is kept: keys of ours."""

from typing import Annotated

from rocketmq_tw.config.base import Config, Format, Positive
from rocketmq_tw.config.values import choice

DEBUG, INFO, WARN, ERROR = "debug", "info", "warn", "error"


class LogConfig(Config, frozen=True):
    """The log of a server. The two keys about files are for one that is written to files; where it
    goes to standard output or syslog, who reads it keeps it."""

    #: The least important lines that are written. debug: what Twisted says of itself too.
    log_level: Annotated[str, Format(choice(DEBUG, INFO, WARN, ERROR))] = INFO
    #: Bytes after which another file is begun.
    log_file_size: Positive = 64 * 1024 * 1024
    #: How many older files are kept.
    log_files_kept: Positive = 10
