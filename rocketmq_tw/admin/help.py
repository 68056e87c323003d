"""Help, as rich_click draws it. Commands are click's own: to load rich_click takes a tenth of the
time of a short command, most of which show no help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

#: What a command is made with, beside its name.
_FIELDS = (
    "callback", "params", "help", "epilog", "short_help", "options_metavar", "add_help_option",
    "no_args_is_help", "hidden", "deprecated",
)  # fmt: skip
_GROUP_FIELDS = ("invoke_without_command", "subcommand_metavar", "chain")

#: Title to the names of the commands below it.
Families = Mapping[str, list[str]]


class HelpContext(click.Context):
    """The context of a command whose help is drawn."""

    def get_help(self) -> str:
        return draw_help(self)


def draw_help(context: click.Context, families: Families | None = None) -> str:
    """Returns the help of the command of a context; that of a group shows its commands by family,
    where those are given."""
    from rich_click import RichContext, rich_click

    if families is not None:
        rich_click.COMMAND_GROUPS[context.command_path] = [
            {"name": title, "commands": names} for title, names in families.items()
        ]
    command = _drawn(context.command, context)
    with RichContext(
        command,
        parent=context.parent,
        info_name=context.info_name,
        **command.context_settings,
    ) as drawing:
        return command.get_help(drawing)


def _drawn(command: click.Command, context: click.Context) -> Any:
    """Makes a command of rich_click out of one of click's."""
    from rich_click import RichCommand, RichGroup

    kind: Any = RichCommand
    values = {name: getattr(command, name) for name in _FIELDS}
    if isinstance(command, click.Group):
        kind = RichGroup
        values |= {name: getattr(command, name) for name in _GROUP_FIELDS}
        values["commands"] = {
            name: command.get_command(context, name) for name in command.list_commands(context)
        }
    return kind(command.name, context_settings=command.context_settings, **values)
