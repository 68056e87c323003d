"""`rmqadmin context`: settings that are kept by name."""

from __future__ import annotations

import os

import attrs
import rich_click as click

from rocketmq_tw.admin import settings
from rocketmq_tw.admin.options import ask_first, yes_option
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.settings import FORMS, Contexts, Settings
from rocketmq_tw.admin.tool import Tool


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
    rows = [
        {
            "name": name,
            "current": name == contexts.current,
            "nameServers": each.name_servers,
            "tls": each.use_tls,
            "tlsConfig": each.tls_file,
            "credentials": each.credentials_file,
            "output": each.output,
        }
        for name, each in sorted(contexts.by_name.items())
    ]
    tool.show(
        Report(
            {"file": settings.path(), "contexts": rows},
            [Listing(_CONTEXTS, rows)],
            nothing="there is no context: rmqadmin context add NAME -n HOST:PORT makes one",
        )
    )


@context.command("add")
@_name
@click.option(
    "-n", "--namesrvAddr", "name_servers", metavar="HOST:PORT;...", required=True,
    help="The name servers.",
)  # fmt: skip
@click.option("--output", type=click.Choice(FORMS), help="The form of output.")
@click.option("--tls", "use_tls", is_flag=True, default=None, help="Speak TLS.")
@click.option("--tls-config", "tls_file", metavar="FILE", help="The file with keys of TLS.")
@click.option(
    "--credentials", "credentials_file", metavar="FILE",
    help="The file of YAML with accessKey and secretKey.",
)  # fmt: skip
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
    """Makes a context, or gives one other settings; the first one becomes the current one."""
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
    contexts = settings.read()
    by_name = {**contexts.by_name, name: made}
    _write(tool, attrs.evolve(contexts, by_name=by_name, current=contexts.current or name))


@context.command("use")
@_name
@click.pass_obj
def use_context(tool: Tool, name: str) -> None:
    """Makes a context the current one, which every call takes its settings from."""
    contexts = settings.read()
    contexts.named(name)
    _write(tool, attrs.evolve(contexts, current=name))


@context.command("remove")
@_name
@yes_option
@click.pass_obj
def remove_context(tool: Tool, name: str, yes: bool) -> None:
    """Removes a context."""
    contexts = settings.read()
    contexts.named(name)
    ask_first(yes, f"Remove the context {name}?")
    by_name = {each: value for each, value in contexts.by_name.items() if each != name}
    current = None if contexts.current == name else contexts.current
    _write(tool, Contexts(by_name, current))


def _anywhere(file: str | None) -> str | None:
    """Returns a path that holds in other directories, where the context is used too."""
    return None if file is None else os.path.abspath(file)


def _write(tool: Tool, contexts: Contexts) -> None:
    """Writes all contexts; with `--dry-run` shows what would be written."""
    found = {"current": contexts.current, "contexts": sorted(contexts.by_name)}
    current = contexts.current or "none"
    if tool.dry_run:
        names = ", ".join(sorted(contexts.by_name)) or "no contexts"
        lines = [
            f"nothing is changed; {settings.path()} would have {names}, and as the current one"
            f" {current}"
        ]
        tool.show(Report({"dryRun": True, **found}, lines=lines))
        return
    settings.write(contexts)
    tool.show(Report(found, lines=[f"the current context is {current}"]))
