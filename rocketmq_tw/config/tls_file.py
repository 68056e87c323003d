"""The file with the keys of TLS alone, as stock's `tls.config.file` names one."""

import os

from rocketmq_tw.config.load import load
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.config.properties import ConfigError, read_properties


def read_tls_config(path: str) -> TlsConfig:
    """The keys of TLS in a .properties file, such as the one that stock's `tls.config.file` names.

    Raises `ConfigError` where the file cannot be read, a value is wrong or a key is no such.
    """
    try:
        with open(path, encoding="latin-1") as file:
            text = file.read()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    settings = [setting._replace(must_be_known=True) for setting in read_properties(text, path)]
    return load((TlsConfig,), settings, os.path.expanduser("~"))[TlsConfig]
