"""`rmqadmin COMMAND`: the group, the options that every command has, and how failures are told."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

import rich_click as click

from rocketmq_tw.admin.commands import CommandGroup
from rocketmq_tw.admin.output import plain
from rocketmq_tw.admin.store.commands import store
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.config.load import read_tls_config
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.config.properties import ConfigError


def _complain(message: str) -> None:
    click.echo(f"rmqadmin: {plain(' '.join(message.split()))}", err=True)


def _set_name_servers(context: click.Context, option: click.Parameter, value: str | None) -> None:
    # A command's own -n wins over the group's, which stands before it.
    if value is not None:
        context.ensure_object(Tool).name_servers = value


def _set_output(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Tool).json = value == "json"


def _set_tls(context: click.Context, option: click.Parameter, value: bool) -> None:
    tool = context.ensure_object(Tool)
    if value and tool.tls is None:
        tool.tls = TlsConfig()


def _set_tls_config(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None:
        try:
            context.ensure_object(Tool).tls = read_tls_config(value)
        except ConfigError as error:
            raise click.BadParameter(str(error)) from error


def _output_option() -> click.Parameter:
    return click.Option(
        ["--output"],
        type=click.Choice(["table", "json"]),
        expose_value=False,
        callback=_set_output,
        help="Tables (the default) or one line of JSON.",
    )


def _common_options(*, of_group: bool) -> list[click.Parameter]:
    """Adds the options that may stand before or behind a command; environment variables count
    once."""
    return [
        click.Option(
            ["-n", "--namesrvAddr"],
            metavar="HOST:PORT;...",
            envvar="NAMESRV_ADDR" if of_group else None,
            show_envvar=True,
            expose_value=False,
            callback=_set_name_servers,
            help="The name servers.",
        ),
        _output_option(),
        click.Option(
            ["--tls"],
            envvar="TLS_ENABLE" if of_group else None,
            show_envvar=True,
            is_flag=True,
            expose_value=False,
            callback=_set_tls,
            help="Speak TLS, without a look at who answers.",
        ),
        click.Option(
            ["--tls-config"],
            envvar="TLS_CONFIG_FILE" if of_group else None,
            show_envvar=True,
            metavar="FILE",
            expose_value=False,
            callback=_set_tls_config,
            help="Speak TLS as the tls.client keys of this .properties file say.",
        ),
    ]


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.pass_context
def cli(context: click.Context) -> None:
    """Looks at a RocketMQ cluster and changes it: mqadmin's commands, letters and names."""
    context.ensure_object(Tool)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


cli.params.extend(_common_options(of_group=True))
cli.common_options = partial(_common_options, of_group=False)


def _add_local(group: click.Group) -> None:
    """Gives commands that ask no server the option that they have in common with others."""
    for command in group.commands.values():
        if isinstance(command, click.Group):
            _add_local(command)
        else:
            command.params.append(_output_option())


_add_local(store)
cli.add_command(store)


def main(arguments: Sequence[str] | None = None, tool: Tool | None = None) -> NoReturn:
    """Runs a command (of the command line where none is given) and exits: a failure is told in one
    line on stderr and has status 1, a wrong call 2."""
    status = 0
    try:
        cli.main(arguments, "rmqadmin", obj=tool, standalone_mode=False)
    except click.UsageError as error:
        command = "rmqadmin" if error.ctx is None else error.ctx.command_path
        _complain(f"{error.format_message()} ({command} -h shows the options)")
        status = error.exit_code
    except click.ClickException as error:
        _complain(error.format_message())
        status = error.exit_code
    except click.Abort:
        _complain("stopped, nothing is changed")
        status = 1
    sys.exit(status)
