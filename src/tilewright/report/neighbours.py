"""Two networks beside each other, as tables."""

from __future__ import annotations

from typing import Any

from tilewright.core.neighbours import BesideResult
from tilewright.report import shown
from tilewright.report.tables import Column, Heading, Table, facts_table

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
