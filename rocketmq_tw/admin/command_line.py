"""`rmqadmin COMMAND`: the group, the options that every command has, and how failures are told."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from rocketmq_tw.admin.commands import CommandGroup
from rocketmq_tw.admin.common_options import common_options
from rocketmq_tw.admin.output import let_write_everything, plain
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.interrupted import INTERRUPTED

#: Raised where a group is called without a command; click before 8.2 shows help without it.
_SHOWS_HELP: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


def _complain(message: str) -> None:
    click.echo(f"rmqadmin: {plain(' '.join(message.split()))}", err=True)


def _show_version(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"rmqadmin {version('rocketmq_tw')}")
        context.exit()


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


cli.params.extend(common_options(of_group=True))
cli.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version.",
    )
)


def run(arguments: Sequence[str] | None, tool: Tool | None) -> NoReturn:
    """Runs a command (of the process's arguments where none is given) and exits: a failure is told
    in one line on stderr and has status 1, a wrong call 2."""
    let_write_everything()
    if sys.stdout is None:
        # It is closed (>&-), and what is printed would go nowhere without a word.
        _complain("the output is closed: name a file, or /dev/null, for it; nothing is done")
        sys.exit(1)
    try:
        # A number where a command ends with a status of its own.
        ended = cli.main(arguments, "rmqadmin", obj=tool, standalone_mode=False)
        status = ended if isinstance(ended, int) else 0
    except _SHOWS_HELP as error:
        click.echo(error.message)
        status = error.exit_code
    except click.UsageError as error:
        command = "rmqadmin" if error.ctx is None else error.ctx.command_path
        _complain(f"{error.format_message()} ({command} -h shows the options)")
        status = error.exit_code
    except click.ClickException as error:
        _complain(error.format_message())
        status = error.exit_code
    except click.Abort as error:
        interrupted = isinstance(error.__context__, KeyboardInterrupt)
        _complain("stopped" if interrupted else "stopped, nothing is changed")
        status = INTERRUPTED if interrupted else 1
    except OSError as error:
        # A full disk behind the output, as a rule.
        reason = error.strerror or str(error)
        if error.filename is None:
            reason += "; what the command does may be done all the same"
        _complain(f"{error.filename or 'the output'}: {reason}")
        status = 1
    sys.exit(status)
