"""Two networks beside each other, and kernels that were tuned beside something, as tables."""

from __future__ import annotations

from typing import Any

from tilewright.core.neighbours import BesideResult, VersionsResult
from tilewright.report import shown
from tilewright.report.tables import Column, Heading, Table, facts_table, record_of

_MOST_CALLS = 10

CALLS_BESIDE = Heading(
    title="Calls beside it, those that lose most",
    columns=(
        Column(field="name", label="call"),
        Column(field="alone_s", label="alone", show=shown.seconds, number=True),
        Column(field="beside_s", label="beside", show=shown.seconds, number=True),
        Column(
            field="slowdown",
            label="times as long",
            number=True,
            show_record=lambda call: f"{call['beside_s'] / call['alone_s']:.2f}",
        ),
    ),
)


def beside_tables(beside: BesideResult) -> tuple[Table, Table]:
    """Two networks beside each other, and the calls of the first that suffer most."""
    both = (
        ("alone", beside.alone_s, beside.partner_alone_s),
        ("beside", beside.beside_s, beside.partner_beside_s),
    )
    facts: list[tuple[str, Any, str]] = [
        (
            f"{when}: network, {beside.partner}",
            [own_s, other_s],
            f"{shown.seconds(own_s)}, {shown.seconds(other_s)}",
        )
        for when, own_s, other_s in both
    ]
    slow = [beside.slowdown, beside.partner_slowdown]
    facts += [
        (
            "times as long",
            slow,
            f"{slow[0]:.2f}, {slow[1]:.2f} (rounds differ by {beside.spread:.2f})",
        ),
        ("joint throughput over in turn", beside.joint_gain, f"{beside.joint_gain:.2f}"),
    ]
    worst = sorted(beside.calls, key=lambda call: call.alone_s - call.beside_s)[:_MOST_CALLS]
    return facts_table(f"Beside {beside.partner}", facts), CALLS_BESIDE.of(worst)


_VERSIONS = (
    Column(field="task", label="task"),
    Column(field="count", label="calls", number=True),
    Column(field="implementation", label="version"),
    Column(field="settings", label="settings", show=shown.pairs),
    Column(field="best", label="best of these", show=", ".join),
    Column(field="alone_s", label="alone", show=shown.seconds, number=True),
    Column(field="one_core_s", label="on one core", show=shown.seconds, number=True),
    Column(field="beside_s", label="beside", show=shown.seconds, number=True),
    Column(field="moved_bytes", label="moved", show=shown.size, number=True),
)


def versions_table(found: VersionsResult) -> Table:
    """The versions of each task's kernel that are best for something."""
    return Table(
        title=f"Versions of kernels beside {found.partner}",
        columns=_VERSIONS,
        records=tuple(
            {"task": each.task, "key": each.key, "count": each.count, **record_of(version)}
            for each in found.tasks
            for version in each.versions
        ),
    )


def versions_summary(found: VersionsResult) -> Table:
    """What was measured, and the sums of all tasks beside the partner."""
    known = [each for each in found.tasks if each.gain is not None]
    surely = [each for each in known if each.gain_low is not None and each.gain_low > 1.0]
    facts: list[tuple[str, Any, str]] = [
        (
            "threads, and those of the partner",
            [found.threads, found.partner_threads],
            f"{found.threads}, {found.partner_threads}",
        ),
        ("tasks with a better version beside", len(surely), f"{len(surely)} of {len(known)}"),
        *(
            (
                f"{each.task}: gain beside",
                each.gain,
                shown.speedup(each.gain, each.gain_low, each.gain_high),
            )
            for each in sorted(surely, key=lambda each: -(each.gain or 0.0))[:_MOST_CALLS]
        ),
        (
            "measured, failed",
            [found.measurements, found.failures],
            f"{found.measurements}, {found.failures}",
        ),
    ]
    return facts_table(f"Beside {found.partner}", facts)


def versions_notes(found: VersionsResult) -> tuple[str, ...]:
    """What could not be timed, and where times are kept."""
    late = f"Not measured: {', '.join(found.unmeasured)}." if found.unmeasured else ""
    kept = f"Times beside {found.partner} are kept under {found.device_class}."
    return tuple(each for each in (late, kept) if each)
