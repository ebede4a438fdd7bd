"""What a hash changes with, and what not."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from helpers.fakes.measuring import PLACEMENT
from helpers.fakes.prepared_network import prepared, two_convolutions
from tilewright.deploy import hashes


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"text")
    assert hashes.file_sha256(tmp_path / "f") == hashlib.sha256(b"text").hexdigest()


def test_an_object_with_its_own_hash() -> None:
    made = hashes.sealed({"a": 1, "sha256": {"file": "x"}}, "own")
    assert made["a"] == 1 and set(made["sha256"]) == {"file", "own"}
    assert hashes.sealed(made, "own") == made, "of all the rest"
    assert hashes.is_sealed(made, "own")
    assert not hashes.is_sealed({**made, "a": 2}, "own")
    assert not hashes.is_sealed(made, "another")
    assert not hashes.is_sealed({"a": 1}, "own") and not hashes.is_sealed({"sha256": 3}, "own")


def test_weights_by_name_type_shape_and_value() -> None:
    ones = np.ones((2, 3), np.float32)
    found = hashes.weights_digest({"a": ones, "b": ones})
    assert len(found) == 32
    assert hashes.weights_digest({"b": ones.copy(), "a": ones}) == found, "in any order"
    for other in (
        {"a": ones},
        {"a": ones, "c": ones},
        {"a": ones, "b": 2 * ones},
        {"a": ones, "b": ones.T},
        {"a": ones, "b": ones.view(np.int32)},
    ):
        assert hashes.weights_digest(other) != found


def test_a_compiled_network() -> None:
    network = prepared(two_convolutions())
    found = hashes.artifact_fingerprint(network, network.plan, PLACEMENT, "weights")
    assert hashes.artifact_fingerprint(network, network.plan, PLACEMENT, "weights") == found
    assert hashes.artifact_fingerprint(network, network.plan, PLACEMENT, "others") != found
    more = replace(PLACEMENT, resources=replace(PLACEMENT.resources, threads=3))
    assert hashes.artifact_fingerprint(network, network.plan, more, "weights") != found
