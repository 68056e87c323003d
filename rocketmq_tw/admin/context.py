"""`rmqadmin context`: settings that are kept by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import attrs
import click

from rocketmq_tw.admin import settings
from rocketmq_tw.admin.common_options import setting_option
from rocketmq_tw.admin.options import ask_first, yes_option
from rocketmq_tw.admin.output import Column, Listing, Report, plain
from rocketmq_tw.admin.settings import Contexts, Settings
from rocketmq_tw.admin.tool import Tool, warn


def _check_name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    if not name.strip():
        raise click.BadParameter("a context has a name")
    return name


_name = click.argument("name", callback=_check_name)
_CONTEXTS = (
    Column("Current", "current", lambda current: "*" if current else ""),
    Column("Name", "name"),
    Column("Name servers", "nameServers"),
    Column("TLS", "tls"),
    Column("TLS file", "tlsConfig"),
    Column("Credentials", "credentials"),
    Column("Output", "output"),
)


@click.group("context")
def context() -> None:
    """Keeps name servers, TLS, credentials and the form of output under names."""


@context.command("list")
@click.pass_obj
def list_contexts(tool: Tool) -> None:
    """Shows all contexts; a star marks the current one."""
    contexts = settings.read()
    rows = [_row(contexts, name) for name in sorted(contexts.entries)]
    for row in rows:
        if row["error"] is not None:
            warn(row["error"])
    tool.show(
        Report(
            {"file": settings.path(), "contexts": rows},
            [Listing(_CONTEXTS, rows)],
            nothing="there is no context: rmqadmin context add NAME -n HOST:PORT makes one",
        )
    )


def _row(contexts: Contexts, name: str) -> dict[str, Any]:
    """Returns the row of a context; a wrong one has only its name and what is wrong with it."""
    found, problem = Settings(), None
    try:
        found = contexts.named(name)
    except click.UsageError as error:
        problem = error.message
    return {
        "name": name,
        "current": name == contexts.current,
        "nameServers": found.name_servers,
        "tls": found.use_tls,
        "tlsConfig": found.tls_file,
        "credentials": found.credentials_file,
        "output": found.output,
        "error": problem,
    }


@context.command(
    "add",
    params=[
        setting_option("name_servers", required=True),
        *map(setting_option, ("output", "use_tls", "tls_file", "credentials_file")),
    ],
)
@_name
@click.pass_obj
def add_context(
    tool: Tool,
    name: str,
    name_servers: str,
    output: str | None,
    use_tls: bool | None,
    tls_file: str | None,
    credentials_file: str | None,
) -> None:
    """Makes a context, or gives one other settings and keeps those that are not given; the first
    one becomes the current one."""
    made = Settings(
        name_servers=name_servers,
        use_tls=use_tls,
        tls_file=_anywhere(tls_file),
        credentials_file=_anywhere(credentials_file),
        output=output,
    )
    made.access()
    try:
        settings.check(made)
    except ValueError as error:
        raise click.UsageError(str(error)) from error

    kept: list[str] = []

    def add(contexts: Contexts) -> Contexts:
        entry = made.to_file()
        try:
            before = contexts.named(name).to_file()
        except click.UsageError:
            # There is none, or a wrong one, which is mended so.
            before = {}
        kept.extend(f"{key} {value}" for key, value in before.items() if key not in entry)
        entries = {**contexts.entries, name: {**before, **entry}}
        return attrs.evolve(contexts, entries=entries, current=contexts.current or name)

    _change(tool, add)
    if kept:
        warn(
            f"the context {plain(name)} keeps what is not given: {', '.join(kept)};"
            " context remove drops all of it"
        )


@context.command("use")
@_name
@click.pass_obj
def use_context(tool: Tool, name: str) -> None:
    """Makes a context the current one, which every call takes its settings from."""

    def use(contexts: Contexts) -> Contexts:
        contexts.named(name)
        return attrs.evolve(contexts, current=name)

    _change(tool, use)


@context.command("remove")
@_name
@yes_option
@click.pass_obj
def remove_context(tool: Tool, name: str, yes: bool) -> None:
    """Removes a context."""
    settings.read().check_name(name)
    ask_first(yes, f"Remove the context {name}?")

    def remove(contexts: Contexts) -> Contexts:
        contexts.check_name(name)
        entries = {each: entry for each, entry in contexts.entries.items() if each != name}
        return Contexts(entries, None if contexts.current == name else contexts.current)

    _change(tool, remove)


def _anywhere(file: str | None) -> str | None:
    """Returns a path that holds in other directories, where the context is used too."""
    return None if file is None else os.path.abspath(file)


def _change(tool: Tool, change: Callable[[Contexts], Contexts]) -> None:
    """Changes the contexts; with `--dry-run` shows what would be written."""
    contexts = change(settings.read()) if tool.dry_run else settings.change_contexts(change)
    found: dict[str, Any] = {"current": contexts.current, "contexts": sorted(contexts.entries)}
    current = contexts.current or "none"
    if tool.dry_run:
        names = ", ".join(sorted(contexts.entries)) or "no contexts"
        lines = [
            f"nothing is changed; {settings.path()} would have {names}, and as the current one"
            f" {current}"
        ]
        found = {"dryRun": True, **found}
    else:
        lines = [f"the current context is {current}"]
    tool.show(Report(found, lines=lines))
