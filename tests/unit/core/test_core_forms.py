"""Forms as values, and as texts."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.core.element_types import element_types
from tilewright.core.errors import InternalError
from tilewright.core.forms import (
    PLAIN,
    Encoding,
    Form,
    blocked,
    channel_block,
    form_texts,
    number_layout,
    own_layout,
    parse_form,
    parse_forms,
    stored_in,
)
from tilewright.core.layouts import ROW_MAJOR, Layout, blocked_layout
from tilewright.graph.arrays import to_logical, to_physical
from tilewright.kernels.registry import implementation
from tilewright.kernels.search_space import knob_space
from tilewright.testing.implementations import made_up_placement, single


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any layout of up to four axes."""
    usual = st.sampled_from([ROW_MAJOR, *map(blocked_layout, (1, 4, 16, 64))])
    if draw(st.booleans()):
        return draw(usual)
    rank = draw(st.integers(1, 4))
    cuts = st.tuples(st.integers(0, rank - 1), st.integers(1, 64))
    order = tuple(draw(st.permutations(range(rank))))
    return Layout(order=order, blocks=tuple(draw(st.lists(cuts, max_size=3))))


@st.composite
def forms(draw: st.DrawFn) -> Form:
    """Any form: of any layout, in any registered type, encoded or not."""
    layout = draw(layouts())
    dtype = draw(st.none() | st.sampled_from([kind.name for kind in element_types()]))
    axes = st.none() | st.integers(0, len(layout.order) - 1 if layout.order else 9)
    encodings = st.none() | st.builds(Encoding, axis=axes)
    return Form(layout, dtype, draw(encodings) if dtype else None)


@given(forms(), forms())
def test_texts_and_forms_are_inverse(one: Form, other: Form) -> None:
    assert parse_form(str(one)) is one
    assert (str(one) == str(other)) == (one is other) == (one == other)
    assert pickle.loads(pickle.dumps(one)) is copy.deepcopy(one) is one
    assert sorted([one, other], key=str) == sorted([one, other])


def test_a_form_in_the_own_type_is_written_as_its_layout() -> None:
    assert (str(PLAIN), str(blocked(16))) == ("plain", "blocked16")
    assert str(Form(Layout(order=(0, 2, 3, 1)))) == "acdb"
    assert form_texts(parse_forms("plain", "blocked8")) == ("plain", "blocked8")


def test_types_and_encodings_are_written_behind_the_layout() -> None:
    assert str(Form(blocked_layout(16), "bfloat16")) == "blocked16:bfloat16"
    assert str(Form(dtype="int8", encoding=Encoding())) == "plain:int8*"
    assert parse_form("plain:int8*1").encoding == Encoding(axis=1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unknown layout ''"),
        ("nhwc", "unknown layout 'nhwc'"),
        ("plain*", "unknown layout"),
        ("plain:", "no element type behind its colon"),
        ("plain:*", "no element type behind its colon"),
        ("plain:half", "unknown element type 'half'"),
        ("plain:int8*x", "'x' is no axis"),
        ("plain:int8*01", "'01' is no axis"),
        ("plain:int8*-1", "'-1' is no axis"),
        ("plain:int8*\u00b2", "is no axis"),
        ("acdb:int8*4", "lacks the axis of its scales"),
    ],
)
def test_what_is_no_form(text: str, reason: str) -> None:
    with pytest.raises(InternalError) as caught:
        parse_form(text)
    assert f"no form {text!r}" in str(caught.value) and reason in str(caught.value)


def test_an_encoding_needs_a_type_and_an_axis() -> None:
    with pytest.raises(InternalError, match="lacks the element type"):
        Form(encoding=Encoding())
    with pytest.raises(InternalError, match="along axis -1"):
        Encoding(axis=-1)


def test_a_form_never_changes() -> None:
    with pytest.raises(AttributeError, match="'dtype' cannot be set"):
        PLAIN.dtype = "int8"
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del PLAIN.dtype


def test_what_follows_from_a_form() -> None:
    half = parse_form("blocked16:bfloat16")
    assert half.physical_shape((1, 32, 4, 4)) == (1, 2, 4, 4, 16)
    assert (half.element("float32"), blocked(16).element("float32")) == ("bfloat16", "float32")
    assert half.size_bytes((1, 32, 4, 4), "float32") == 1024
    assert blocked(16).size_bytes((1, 32, 4, 4), "float32") == 2048


@pytest.mark.parametrize("text", ["plain:bfloat16", "blocked8:int8*", "plain:float32"])
def test_what_knows_the_own_type_alone_refuses_others(text: str) -> None:
    with pytest.raises(InternalError, match="not in the tensor's own element type"):
        own_layout(parse_form(text))


def test_codes_are_no_numbers() -> None:
    halves, codes = parse_form("blocked8:bfloat16"), parse_form("blocked8:int8*")
    assert number_layout(halves) == blocked(8).layout and channel_block(halves) == 8
    assert stored_in(halves, None) == blocked(8) and stored_in(blocked(8), "bfloat16") == halves
    for asked in (number_layout, channel_block):
        with pytest.raises(InternalError, match="has codes"):
            asked(codes)


@pytest.mark.parametrize("text", ["plain:float64", "blocked8:int8*", "plain:float32"])
def test_a_spec_takes_no_type_that_it_neither_offers_nor_converts(text: str) -> None:
    form, on, task = parse_form(text), made_up_placement(), single("relu", (1, 16, 8, 8))
    spec = implementation("injective")
    with pytest.raises(InternalError, match="injective does not take form .* at port 1"):
        knob_space(spec, task, on.target, on.resources, (PLAIN, form))


def test_arrays_are_rounded_to_the_type_of_their_form_and_codes_are_refused() -> None:
    numbers = np.random.default_rng(0).standard_normal((1, 16, 4, 4)).astype(np.float32)
    form = parse_form("blocked8:bfloat16")
    there = to_physical(numbers, form)
    assert there.shape == (1, 2, 4, 4, 8) and there.nbytes == form.size_bytes((1, 16, 4, 4), "")
    back = to_logical(there, form, numbers.shape).astype(np.float32)
    np.testing.assert_allclose(back, numbers, rtol=2**-8)
    for refused in (
        lambda: to_physical(numbers, parse_form("blocked8:int8*")),
        lambda: to_logical(numbers, parse_form("plain:int8*"), numbers.shape),
    ):
        with pytest.raises(InternalError, match="has codes"):
            refused()
