"""Looks through a store for a command, and tells what was found."""

from __future__ import annotations

from typing import Any

import attrs

from rocketmq_tw.admin.output import local_time, number_of
from rocketmq_tw.admin.store.opening import progress, reading
from rocketmq_tw.storecheck.check import Summary, check_store
from rocketmq_tw.storecheck.findings import Finding, Findings, Remedy
from rocketmq_tw.storecheck.layout import Store

#: Findings that are shown; the others are counted.
_MOST = 1000


@attrs.frozen
class Checked:
    """What a check found in the store at `root`; `told` has the findings that are shown, `log` the
    path of the log. `refusal` says why a repair would not mend for now what it can; empty where it
    would, or where nobody asked."""

    root: str
    log: str
    summary: Summary
    findings: Findings
    told: list[Finding]
    refusal: str = ""

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
            is_refused = remedy is Remedy.REPAIR and self.refusal
            but = f", and refuses to for now: {self.refusal}" if is_refused else ""
            lines.append(f"{number} x {remedy.value}: {remedy.advice}{but}")
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
            "repairRefused": self.refusal or None,
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
