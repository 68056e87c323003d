"""The group of all commands. A command's module is imported when it is called: a call of rmqadmin
waits for its own imports only."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import click

from rocketmq_tw.admin.common_options import (
    common_options,
    dry_run_option,
    name_value,
    output_option,
)
from rocketmq_tw.admin.completion import type_text
from rocketmq_tw.admin.families import FAMILIES, REFUSED
from rocketmq_tw.admin.help import HelpContext, draw_help
from rocketmq_tw.admin.light_imports import tls_left_out
from rocketmq_tw.admin.near_names import did_you_mean
from rocketmq_tw.admin.tool import Tool

#: Module to its commands.
MODULES = {module: names for modules in FAMILIES.values() for module, names in modules.items()}
_MODULE_OF = {name: module for module, names in MODULES.items() for name in names}
_REFUSED = [name for names in FAMILIES[REFUSED].values() for name in names]
_LINES = {name: line for names in MODULES.values() for name, line in names.items()}


def load(name: str) -> click.Command | None:
    """Returns a command by its name; None where there is none."""
    module = _MODULE_OF.get(name)
    if module is None:
        return None
    with tls_left_out(of_twisted=False):
        found = vars(import_module(f"rocketmq_tw.admin.{module}"))
    # A module may make its commands out of a table.
    each: object
    for each in (*found.values(), *found.get("COMMANDS", {}).values()):
        if isinstance(each, click.Command) and each.name == name:
            return each
    raise LookupError(f"the module {module} has no command {name}")


class CommandGroup(click.Group):
    """All commands of rmqadmin, shown by family."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(_MODULE_OF)

    def get_help(self, context: click.Context) -> str:
        self.epilog = f"{REFUSED}, each says why when it is called: {', '.join(_REFUSED)}."
        families = {
            family: [name for names in modules.values() for name in names]
            for family, modules in FAMILIES.items()
            if family != REFUSED
        }
        return draw_help(context, families)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Returns the command where it was called already; else its name and its line alone, which
        is what lists of commands show. They leave out what is refused, but help names it."""
        command = super().get_command(context, name)
        if command is None and name in _LINES:
            return click.Command(name=name, short_help=_LINES[name], hidden=name in _REFUSED)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if name not in self.commands:
            command = load(name)
            if command is not None:
                self.add_command(command)
                _extend(command)
            elif not name.startswith("-"):
                hint = did_you_mean(name, _MODULE_OF)
                context.fail(f"No such command {name!r}" + (f": {hint}" if hint else ""))
        if isinstance(self.commands.get(name), click.Group):
            context.ensure_object(Tool).only_once("asks no server")
        return super().resolve_command(context, arguments)


def _extend(command: click.Command) -> None:
    """Adds the options that all commands have, but those that a command has in another sense, and
    help. The commands of groups ask no server: the form of output and plans are for them."""
    if isinstance(command, click.Group):
        _extend_with(command, [output_option(), dry_run_option()])
    else:
        _extend_with(command, common_options(of_group=False))


def _extend_with(command: click.Command, options: Sequence[click.Parameter]) -> None:
    command.context_class = HelpContext
    if isinstance(command, click.Group):
        for member in command.commands.values():
            _extend_with(member, options)
    else:
        for option in command.params:
            type_text(option)
            name_value(option)
        own = {name for option in command.params for name in option.opts}
        command.params += [option for option in options if own.isdisjoint(option.opts)]
