"""What files and tables hold of forms is what they held when these were texts of layouts.

The texts and hashes below were written by the version before; rows, exports and artifacts of then
are told from new ones by them.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from helpers.records.written_artifacts import manifest_content
from tilewright.collect.planned import Batch, Planned
from tilewright.core.codec import canonical_json, convert, decode, encode, to_builtins
from tilewright.core.forms import Form, blocked, parse_forms
from tilewright.core.records import (
    Candidate,
    Measurement,
    Protocol,
)
from tilewright.core.targets import threads_alone
from tilewright.deploy.manifest import Manifest
from tilewright.store import rows
from tilewright.store.known_candidates import (
    PlanOfBefore,
    plan_of_before,
    read_shipped,
    shipping_key,
)

FORMS = parse_forms("blocked16", "plain", "acdb")
CANDIDATE = Candidate(
    implementation="conv2d_direct",
    settings=(("lanes", 16), ("order", "rows"), ("unroll", True)),
    forms=FORMS,
)
TEXT = (
    '{"implementation":"conv2d_direct","layouts":["blocked16","plain","acdb"],'
    '"settings":[["lanes",16],["order","rows"],["unroll",true]]}'
)
IN_ORDER = (
    '{"implementation":"conv2d_direct","settings":[["lanes",16],["order","rows"],["unroll",true]],'
    '"layouts":["blocked16","plain","acdb"]}'
)
PLAN_TEXT = '{"layouts":{"x":"blocked32"},"ports":{"conv":["blocked16","plain"]}}'
KEY = "conv2d-1@blocked16,plain,acdb"


def content_of_before(row: rows.Row) -> str:
    """The hash of what a row said before it named resources."""
    return rows.with_content({k: v for k, v in row.items() if k != "resources"})["content"]


def test_a_candidate() -> None:
    assert canonical_json(CANDIDATE) == TEXT
    assert encode(CANDIDATE).decode() == IN_ORDER
    assert decode(TEXT, Candidate) == convert(json.loads(IN_ORDER), Candidate) == CANDIDATE
    assert shipping_key(("conv2d-1", FORMS)) == KEY


def test_a_row_of_measurements() -> None:
    measured = Measurement(
        workload_key="conv2d-1",
        candidate=CANDIDATE,
        device_class="cpu",
        resources=threads_alone(1),
        protocol=Protocol(),
        kernel_hash="k",
        samples_s=(0.5, 0.25),
        build_s=1.0,
    )
    row = rows.row_of(measured)
    assert row["layouts"] == '["blocked16","plain","acdb"]'
    assert content_of_before(row) == "282b6c17d1447d91677af240771b4bf8"


def test_a_plan_of_before() -> None:
    """What databases and manifests of before held of a network that shipped."""
    plan = PlanOfBefore(
        assignment={KEY: CANDIDATE},
        forms={"x": blocked(32)},
        ports={"conv": parse_forms("blocked16", "plain")},
    )
    fields = plan_of_before({KEY: json.loads(TEXT)}, json.loads(PLAN_TEXT))
    assert read_shipped(fields) == plan
    settings = {"lanes": 16, "order": "rows", "unroll": True}
    entry = {"implementation": "conv2d_direct", "settings": settings}
    entry["layouts"] = ["blocked16", "plain", "acdb"]
    content = manifest_content(
        schema_version=2, assignment={KEY: entry}, plan=json.loads(PLAN_TEXT)
    )
    assert convert(content, Manifest).shipped_plan == plan


def test_a_line_of_a_journal() -> None:
    batch = Batch(
        workload_key="w", name="n", forms=FORMS, candidates=(CANDIDATE,), predicted_s=(None,)
    )
    planned = Planned(
        family="conv2d", numbers={"c": 3}, source=("conv2d-1", CANDIDATE), batches=(batch,)
    )
    line = (
        '{"family":"conv2d","numbers":{"c":3},"batches":[{"workload_key":"w","name":"n",'
        f'"layouts":["blocked16","plain","acdb"],"candidates":[{IN_ORDER}],"predicted_s":[null]}}],'
        f'"source":["conv2d-1",{IN_ORDER}]}}'
    )
    assert encode(planned).decode() == line
    assert decode(line, Planned) == planned


@pytest.mark.parametrize(
    ("found", "reason"),
    [(["plain", "half"], "unknown layout 'half'"), ([3], "expected Form, got 3")],
)
def test_what_is_no_form_is_named_with_its_place(found: list[object], reason: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        convert({"layouts": found, "implementation": "i", "settings": []}, Candidate)
    assert reason in str(caught.value) and "$.layouts[" in str(caught.value)


def test_other_values_are_refused() -> None:
    with pytest.raises(TypeError, match="has no place in a file"):
        to_builtins(object())
    with pytest.raises(TypeError, match="has no place in a file"):
        canonical_json([object()])
    assert convert(["plain"], tuple[Form, ...]) == parse_forms("plain")
