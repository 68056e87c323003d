"""The options that may stand before or behind every command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import click
from click.core import ParameterSource

from rocketmq_tw.admin.settings import FORMS, Settings
from rocketmq_tw.admin.tool import Tool

Callback = Callable[[click.Context, click.Parameter, Any], None]


def _setting(field: str) -> Callback:
    """Makes the callback of an option that is a setting. A command's own option wins over the
    group's, which stands before it."""

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        _check_not_empty(option, value)
        if not value:
            return
        if field in ("tls_file", "credentials_file"):
            Settings(**{field: value}).access()
        tool = context.ensure_object(Tool)
        assert option.name is not None
        if context.get_parameter_source(option.name) is ParameterSource.ENVIRONMENT:
            tool.environment = attrs.evolve(tool.environment, **{field: value})
        else:
            tool.given = attrs.evolve(tool.given, **{field: value})

    return keep


def _attribute(name: str) -> Callback:
    """Makes the callback of an option that a `Tool` has an attribute for."""

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        _check_not_empty(option, value)
        if value:
            setattr(context.ensure_object(Tool), name, value)

    return keep


def _check_not_empty(option: click.Parameter, value: Any) -> None:
    """Raises `UsageError` for an empty text: nothing else is taken in place of what was meant, such
    as a variable of a script that is not set. An empty environment variable counts as none."""
    if isinstance(value, str) and not value.strip():
        raise click.UsageError(f"{option.opts[0]} is empty: give {option.metavar} or leave it out")


def name_value(option: click.Parameter) -> None:
    """Gives what the option takes the name by which a value that is none is told."""
    if isinstance(option.type, click.IntRange):
        option.type.name = "whole number"


#: How the option of each field of `Settings` is declared.
_SETTINGS: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    "name_servers": (
        ["-n", "--namesrvAddr"],
        {"metavar": "HOST:PORT;...", "help": "The name servers."},
    ),
    "output": (
        ["--output"],
        {
            "type": click.Choice(FORMS),
            "help": "Tables (the default), tables with all there is, one line of JSON, or YAML.",
        },
    ),
    "use_tls": (
        ["--tls"],
        {
            "is_flag": True,
            "default": None,
            "help": "Speak TLS, without a look at who answers.",
        },
    ),
    "tls_file": (
        ["--tls-config"],
        {
            "metavar": "FILE",
            "help": "Speak TLS as the tls.client keys of this .properties file say.",
        },
    ),
    "credentials_file": (
        ["--credentials"],
        {
            "metavar": "FILE",
            "help": "Sign requests with the accessKey and secretKey of this file of YAML.",
        },
    ),
}


def setting_option(field: str, **more: Any) -> click.Option:
    """Makes the option of a field of `Settings`, of that name; `more` is as of `click.Option`."""
    flags, declared = _SETTINGS[field]
    return click.Option([*flags, field], **declared, **more)


def _common_setting(field: str, variable: str | None = None) -> click.Option:
    """Makes the option of a field which is for the call, whatever its command is."""
    return setting_option(
        field,
        envvar=variable,
        show_envvar=variable is not None,
        expose_value=False,
        callback=_setting(field),
    )


def output_option() -> click.Parameter:
    """Makes the option for the form of output."""
    return _common_setting("output")


def dry_run_option() -> click.Parameter:
    """Makes the option for a plan of the changes."""
    return click.Option(
        ["--dry-run"],
        is_flag=True,
        expose_value=False,
        callback=_attribute("dry_run"),
        help="Change no server and no file: show what would be sent or written.",
    )


def common_options(*, of_group: bool) -> list[click.Parameter]:
    """Makes the options, of the group or of a command; environment variables count once."""

    def variable(name: str) -> str | None:
        return name if of_group else None

    options: list[click.Parameter] = [
        _common_setting("name_servers", variable("NAMESRV_ADDR")),
        click.Option(
            ["--context"],
            metavar="NAME",
            envvar=variable("RMQADMIN_CONTEXT"),
            show_envvar=True,
            expose_value=False,
            callback=_attribute("context"),
            help="Take what is not given from this context (rmqadmin context).",
        ),
        output_option(),
        _common_setting("use_tls", variable("TLS_ENABLE")),
        _common_setting("tls_file", variable("TLS_CONFIG_FILE")),
        _common_setting("credentials_file", variable("RMQADMIN_CREDENTIALS")),
        dry_run_option(),
        click.Option(
            ["--watch"],
            type=click.IntRange(min=1),
            metavar="SECONDS",
            expose_value=False,
            callback=_attribute("watch"),
            help="Show it again and again, until Ctrl-C; not for what changes something.",
        ),
    ]
    for option in options:
        name_value(option)
    return options
