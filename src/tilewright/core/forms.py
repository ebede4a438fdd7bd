"""Forms of tensors in memory: a layout, an element type and an encoding, as one value.

    row by row, in the tensor's own type         PLAIN                        `plain`
    channels in blocks of 16, in its own type    blocked(16)                  `blocked16`
    the same in bfloat16                         Form(layout, "bfloat16")     `blocked16:bfloat16`
    codes of eight bits, one scale for all       Form(…, "int8", Encoding())  `plain:int8*`
    the same, a scale for each place of axis 1   Form(…, Encoding(axis=1))    `plain:int8*1`

A form in the tensor's own element type is written as its layout alone (see `layouts`); another type
follows a colon, and an affine encoding is a star with the axis that its scales belong to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import NoReturn, final

from tilewright.core.element_types import element_type
from tilewright.core.errors import InternalError
from tilewright.core.layouts import ROW_MAJOR, Layout, blocked_layout, parse_layout

_AXIS = re.compile(r"0|[1-9][0-9]{0,2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """Numbers as affine codes: number = scale × (code - zero point).

    There is one pair of scale and zero point for the whole tensor, or one for each place along
    `axis`. Their values are constants of a plan, no part of the form.
    """

    axis: int | None = None

    def __post_init__(self) -> None:
        if self.axis is not None and self.axis < 0:
            raise InternalError(f"an encoding along axis {self.axis} is none")

    def __str__(self) -> str:
        return "*" if self.axis is None else f"*{self.axis}"


@final
class Form:
    """How a tensor lies in memory; a value that never changes.

    `dtype` is the element type, None for the tensor's own. `encoding` says what codes of that type
    mean, None where elements are the numbers themselves; codes name their type. `text` is what
    `parse_form` reads. Equal forms are one object, so that comparing and hashing them costs
    nothing; they are sorted by their texts. Raises InternalError for an unknown type, and for an
    encoding without a type or along an axis that the layout lacks.
    """

    __slots__ = ("layout", "dtype", "encoding", "text")
    layout: Layout
    dtype: str | None
    encoding: Encoding | None
    text: str

    def __new__(
        cls,
        layout: Layout = ROW_MAJOR,
        dtype: str | None = None,
        encoding: Encoding | None = None,
    ) -> Form:
        return _KNOWN.get((layout, dtype, encoding)) or _new_form(layout, dtype, encoding)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a form is a value: {name!r} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a form is a value: {name!r} cannot be deleted")

    def __reduce__(self) -> tuple[object, ...]:
        return parse_form, (self.text,)

    def __str__(self) -> str:
        return self.text

    def __lt__(self, other: Form) -> bool:
        return self.text < other.text

    def __repr__(self) -> str:
        return f"parse_form({self.text!r})"

    def element(self, own: str) -> str:
        """The element type in memory of a tensor whose own type is `own`."""
        return self.dtype or own

    def physical_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape in memory of a tensor of a logical shape."""
        return self.layout.physical_shape(shape)

    def size_bytes(self, shape: Sequence[int], own: str) -> int:
        """Bytes of memory of a tensor of a logical shape whose own type is `own`."""
        return prod(self.physical_shape(shape)) * element_type(self.element(own)).bytes


_KNOWN: dict[tuple[Layout, str | None, Encoding | None], Form] = {}
"""Each form that was made; one that two threads make at once is kept once."""


def _new_form(layout: Layout, dtype: str | None, encoding: Encoding | None) -> Form:
    text = str(layout) if dtype is None else f"{layout}:{element_type(dtype).name}"
    if encoding is not None:
        if dtype is None:
            raise InternalError(f"{text}{encoding} lacks the element type of its codes")
        if layout.order and encoding.axis is not None and encoding.axis >= len(layout.order):
            raise InternalError(f"{text}{encoding} lacks the axis of its scales")
        text = f"{text}{encoding}"
    made = object.__new__(Form)
    for name, value in zip(Form.__slots__, (layout, dtype, encoding, text), strict=True):
        object.__setattr__(made, name, value)
    return _KNOWN.setdefault((layout, dtype, encoding), made)


PLAIN = Form()
"""Row by row, whatever the shape, in the tensor's own type."""

CHANNELS_LAST = Form(Layout(order=(0, 2, 3, 1)))
"""Images with their channels, axis 1, innermost: NHWC."""

IMAGE_LAYOUTS = {"NCHW": PLAIN, "NHWC": CHANNELS_LAST}
"""How people write where the channels of images lie."""


@lru_cache(maxsize=4096)
def blocked(size: int) -> Form:
    """Channels, axis 1, in blocks of `size` lanes, in the tensor's own type."""
    return Form(blocked_layout(size))


@lru_cache(maxsize=4096)
def parse_form(text: str) -> Form:
    """The form that is written so; raises InternalError that names what is wrong."""
    layout, typed, rest = text.partition(":")
    dtype, starred, axis = rest.partition("*")
    if typed and not dtype:
        raise InternalError(f"no form {text!r}: there is no element type behind its colon")
    if axis and not _AXIS.fullmatch(axis):
        raise InternalError(f"no form {text!r}: {axis!r} is no axis")
    encoding = Encoding(axis=int(axis) if axis else None) if starred else None
    try:
        return Form(parse_layout(layout), dtype or None, encoding)
    except InternalError as error:
        raise InternalError(f"no form {text!r}: {error}") from None


def parse_forms(*texts: str) -> tuple[Form, ...]:
    """The forms of several ports, in their order."""
    return tuple(parse_form(text) for text in texts)


def form_texts(forms: Iterable[Form]) -> tuple[str, ...]:
    """How forms are written, in their order; `parse_forms` reads them."""
    return tuple([form.text for form in forms])


def own_layout(form: Form) -> Layout:
    """The layout of a form in the tensor's own type.

    Kernels that know no other ask here; raises InternalError for another type or an encoding.
    """
    if form.dtype is not None:
        raise InternalError(f"form {form} is not in the tensor's own element type")
    return form.layout


def number_layout(form: Form) -> Layout:
    """The layout of a form whose elements are numbers, of whatever type: kernels that convert them
    as they read and write ask here. Raises InternalError for codes."""
    if form.encoding is not None:
        raise InternalError(f"form {form} has codes; these are no numbers")
    return form.layout


@lru_cache(maxsize=4096)
def stored_in(form: Form, dtype: str | None) -> Form:
    """The same layout in another element type, None for the tensor's own."""
    return Form(form.layout, dtype, form.encoding)


@lru_cache(maxsize=4096)
def in_channel_blocks(form: Form) -> bool:
    """Whether `channel_block` answers: plain or in blocks of channels, and no codes."""
    layout = form.layout
    return form.encoding is None and (layout.channel_block > 0 or layout.is_row_major)


@lru_cache(maxsize=4096)
def channel_block(form: Form) -> int:
    """Lanes per block of channels; 0 for `plain`.

    Raises InternalError for any other layout, and for codes.
    """
    layout = number_layout(form)
    if not layout.channel_block and not layout.is_row_major:
        raise InternalError(f"layout {layout} is neither plain nor in blocks of channels")
    return layout.channel_block
