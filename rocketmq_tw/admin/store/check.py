"""`rmqadmin store check`: what is wrong with a store."""

from __future__ import annotations

from typing import Any

import attrs
import rich_click as click

from rocketmq_tw.admin.output import Report, local_time, number_of
from rocketmq_tw.admin.store.opening import (
    config_option,
    directory_argument,
    log_option,
    open_store,
    progress,
    reading,
    refuse_if_open,
)
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.storecheck.check import Summary, check_store
from rocketmq_tw.storecheck.findings import Finding, Findings
from rocketmq_tw.storecheck.layout import Store

#: Findings that are shown; the others are counted.
_MOST = 1000


@attrs.frozen
class Checked:
    """What a check found in the store at `root`; `told` has the findings that are shown, `log` the
    path of the log."""

    root: str
    log: str
    summary: Summary
    findings: Findings
    told: list[Finding]

    @property
    def lines(self) -> list[str]:
        """Each finding in a line, then a line about all."""
        count = self.findings.count
        lines = self.finding_lines(_MOST)
        summary = self.summary
        what = (
            f"{number_of(summary.records, 'record')} from {summary.log_start} to"
            f" {summary.log_end}, {number_of(summary.queues, 'queue')},"
            f" {number_of(summary.index_entries, 'index entry', 'index entries')}"
        )
        if summary.newest:
            what += f", stored {local_time(summary.oldest)} to {local_time(summary.newest)}"
        lines.append(what)
        if summary.passed_over:
            lines.append(f"not looked at: queues of {', '.join(summary.passed_over)} (BatchCQ)")
        if not count:
            lines.append("nothing is wrong")
            return lines
        for remedy, number in sorted(self.findings.remedies.items(), key=lambda one: one[0].value):
            lines.append(f"{number} x {remedy.value}: {remedy.advice}")
        return lines

    def finding_lines(self, most: int) -> list[str]:
        """Returns up to so many findings, each in a line, then how many more there are."""
        lines = [finding.line for finding in self.told[:most]]
        more = self.findings.count - len(lines)
        return [*lines, f"and {more} more"] if more else lines

    @property
    def data(self) -> dict[str, Any]:
        """The result for JSON and YAML."""
        summary = self.summary
        return {
            "store": self.root,
            "log": self.log,
            "logStart": summary.log_start,
            "logEnd": summary.log_end,
            "records": summary.records,
            "queues": summary.queues,
            "indexEntries": summary.index_entries,
            "timerEntries": summary.timer_entries,
            "oldestTimestamp": summary.oldest or None,
            "newestTimestamp": summary.newest or None,
            "damagedAt": summary.damaged_at,
            "recordsBehindDamage": summary.behind,
            "closed": summary.clean,
            "passedOver": summary.passed_over,
            "findingsTotal": self.findings.count,
            "findings": [
                {
                    "kind": finding.kind,
                    "file": finding.file,
                    "offset": finding.offset,
                    "text": finding.text,
                    "remedy": finding.remedy.value,
                }
                for finding in self.told
            ],
        }


def look_through(store: Store) -> Checked:
    """Checks a store, with a progress bar at a terminal. Ends the command where it cannot be
    read."""
    told: list[Finding] = []

    def tell(finding: Finding) -> None:
        if len(told) < _MOST:
            told.append(finding)

    with reading(store), progress("reading the log", store.data_size) as advance:
        summary, findings = check_store(store, tell, advance)
    return Checked(store.root, store.log_path, summary, findings, told)


@click.command("check")
@directory_argument
@config_option
@log_option
@click.pass_obj
def check(tool: Tool, directory: str, config_file: str | None, log: str | None) -> None:
    """Compares log, queues, index and all else of the store in DIR with each other.

    Each finding is a line with file, byte, and what mends it in brackets. The exit status is 1
    where something is wrong. Nothing is written."""
    opened = open_store(directory, config_file, log)
    refuse_if_open(opened)
    checked = look_through(opened.store)
    # It holds no lock, which would keep a broker from starting: then what changed is no damage.
    refuse_if_open(opened)
    tool.show(Report(checked.data, lines=[opened.log_line, *checked.lines]))
    if checked.findings.count:
        raise SystemExit(1)
