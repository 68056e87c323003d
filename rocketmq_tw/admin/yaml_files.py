"""Files that users write in YAML, or in JSON, which is YAML too."""

from __future__ import annotations

from typing import Any

import click


def read_yaml(path: str, *, as_texts: bool = False) -> Any:
    """Returns what a file has; with `as_texts` numbers and the like stay the texts that they stand
    there as. Raises `UsageError` with the line where it is wrong, and `FileNotFoundError`."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        raise
    except UnicodeError as error:
        raise click.UsageError(f"{path} is no text in UTF-8") from error
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}") from error
    # Known where there is such a file alone: a start waits for its own imports only.
    import yaml

    try:
        return yaml.load(text, yaml.BaseLoader if as_texts else yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise click.UsageError(f"{path}{place}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise click.UsageError(f"{path}: {' '.join(str(error).split())}") from error
    except ValueError as error:
        # A date that is none. On PyPy its error has the words and, behind them, the wrong number.
        raise click.UsageError(f"{path}: {error.args[0]}") from error
