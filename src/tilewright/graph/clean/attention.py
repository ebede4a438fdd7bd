"""Recognising attention, which exporters write as two products around a softmax."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from math import inf, prod
from typing import Any

import numpy as np

from tilewright.graph.clean.edit import Edit, found, only_if, rewrite
from tilewright.graph.network import Node
from tilewright.graph.operators.attention import visible_keys

Shape = tuple[int, ...]

_LOWEST = -1e30
"""Where a score is replaced by less, or has less added to it, nothing is left of it."""
_REACH = 1e20
"""What is added to scores and lies above the negative of this leaves an order among them."""
_LARGEST = float(np.finfo(np.float32).max)
_STEPS = ("reshape", "multiply", "add", "where")
_DEEPEST = 8
"""Steps between product and softmax."""


@dataclass(slots=True)
class Scores:
    """What lies between the product of queries and keys and the softmax, walked upwards from
    `tensor`: a factor, what is `added`, which scores are `chosen` and what the others become. Masks
    are kept with the shape of the scores where they are applied."""

    tensor: str
    scale: float = 1.0
    added: list[tuple[str, Shape]] = field(default_factory=list[tuple[str, Shape]])
    chosen: tuple[str, Shape] | None = None
    fill: float = -inf
    new: list[Node] = field(default_factory=list[Node])


@rewrite("batch_matmul")
def recognize_attention(edit: Edit, node: Node) -> None:
    """Recognise attention of several heads; its scores, one for each pair of a query and a key,
    then need no memory.

    before: batch_matmul(softmax(batch_matmul(q[1,12,128,64], k) * 0.125 + mask), v)
    after:  q', k', v' = reshape(transpose(q)), …       [1,128,768]
            transpose(reshape(attention(q', k', v', mask, heads=12, scale=0.125)))

    The transpositions and reshapes meet those by which heads were made of the results of dense
    layers, and vanish with them. The factor may be at queries or keys, and heads that several
    others share may be repeated by an expansion.
    """
    only_if(edit.types[node.output].dtype == "float32")
    hidden, shares = _hidden(edit, node.inputs[0])
    softmax = found(edit.producer(_viewed(edit, shares), "softmax"))
    shape = edit.types[softmax.output].shape[-2:]
    last = softmax.integer("axis") == len(edit.types[softmax.output].shape) - 1
    only_if(last and edit.read_once(softmax.output))
    walk = Scores(softmax.inputs[0])
    while _step_up(edit, walk):
        pass
    product = found(edit.producer(walk.tensor, "batch_matmul"))
    only_if(edit.read_once(walk.tensor))
    q, k = (_unscaled(edit, tensor, walk) for tensor in product.inputs)
    batch, heads = leading_axes(edit, (q, k, node.inputs[1]))
    whole = (batch, heads, *shape)
    result = edit.types[node.output].shape
    only_if(edit.types[product.output].elements == prod(whole))
    only_if(prod(result) == batch * heads * shape[0] * result[-1])
    only_if(abs(walk.scale) <= _LARGEST)
    turned = (not product.attribute("transpose_b"), bool(node.attribute("transpose_b")))
    key_heads, operands = side_by_side(edit, walk, (q, k, node.inputs[1]), turned, whole)
    masks, causal = _masks(edit, walk, whole)
    attention = edit.node(
        "attention",
        (*operands, *masks),
        name=f"{node.name}.attention",
        heads=heads,
        key_heads=key_heads,
        scale=walk.scale,
        causal=causal,
        fill=walk.fill,
    )
    apart = shaped(edit, walk, attention.output, (batch, shape[0], heads, result[-1]))
    ahead = edit.node("transpose", (apart,), name=node.name, permutation=(0, 2, 1, 3))
    before = [*walk.new[:-1], attention, walk.new[-1], ahead]
    if hidden is None:
        edit.turn(node, "reshape", (ahead.output,), before, shape=result)
    else:
        whole_again = edit.node("reshape", (ahead.output,), name=node.name, shape=result)
        edit.turn(node, "where", (*hidden, whole_again.output), [*before, whole_again])


def _hidden(edit: Edit, shares: str) -> tuple[tuple[str, str] | None, str]:
    """Which queries get zeros since they see nothing, with these zeros, and the softmax before."""
    choice = edit.producer(shares, "where")
    if choice is None or not edit.read_once(shares) or edit.scalar(choice.inputs[1]) != 0:
        return None, shares
    hidden, zero, softmax = choice.inputs
    only_if(edit.types[hidden].shape[-1:] == (1,) and edit.types[softmax] == edit.types[shares])
    array = edit.constants.get(hidden)
    never = array is not None and not array.any()
    return None if never else (hidden, zero), softmax


def _viewed(edit: Edit, tensor: str) -> str:
    """What a tensor is a view of, if that has the same last two axes."""
    view = edit.producer(tensor, "reshape")
    if view is None or not edit.read_once(tensor):
        return tensor
    source = view.inputs[0]
    before, after = edit.types[source].shape, edit.types[tensor].shape
    return source if len(before) > 2 and before[-2:] == after[-2:] else tensor


def _leads_up(edit: Edit, tensor: str, depth: int = _DEEPEST) -> bool:
    """Whether a tensor may be scores: a product, perhaps scaled and masked."""
    node = edit.producer(tensor, "batch_matmul", *_STEPS)
    if node is None or not depth:
        return False
    ways = (_leads_up(edit, way, depth - 1) for way in node.inputs)
    return node.operator == "batch_matmul" or any(ways)


def _step_up(edit: Edit, walk: Scores) -> bool:
    """Go from a step between product and softmax to what it reads; False where there is none."""
    node = edit.producer(walk.tensor, *_STEPS)
    if node is None or not edit.read_once(node.output):
        return False
    kind = edit.types[node.output]
    *rest, x = sorted(node.inputs, key=lambda tensor: _leads_up(edit, tensor))
    value = edit.scalar(rest[-1]) if rest else None
    if node.operator != "reshape" and edit.types[x] != kind:
        return False
    match node.operator:
        case "reshape" if _viewed(edit, node.output) == x:
            pass
        case "multiply" if value is not None:
            walk.scale *= value
        case "add" if walk.scale == 1 and (walk.chosen is None or _bounded(edit, rest[0])):
            walk.added.append((rest[0], kind.shape))
        case "where" if walk.scale == 1 and walk.chosen is None and value is not None:
            chosen = node.inputs[0]
            if node.inputs[2] == x:
                chosen = _others(edit, walk, chosen)
            walk.chosen, walk.fill = (chosen, kind.shape), value
        case _:
            return False
    walk.tensor = x
    return True


def _bounded(edit: Edit, mask: str) -> bool:
    """Whether a mask that is added is known to hide nothing. One that may hide all that another one
    leaves cannot be added to it: a query that sees nothing gets the mean of all values."""
    array: Any = edit.constants.get(mask)
    return array is not None and bool((array > -_REACH).all())


def _others(edit: Edit, walk: Scores, chosen: str) -> str:
    """The scores that are not chosen."""
    array = edit.constants.get(chosen)
    if array is not None:
        return edit.constant(f"{chosen}.others", np.logical_not(array))
    walk.new.append(edit.node("not", (chosen,), name=f"{chosen}.others"))
    return walk.new[-1].output


def _unscaled(edit: Edit, tensor: str, walk: Scores) -> str:
    """Queries or keys without a factor of their own."""
    product = edit.producer(tensor, "multiply")
    for x, c in (product.inputs, product.inputs[::-1]) if product else ():
        value = edit.scalar(c)
        if value is not None and edit.types[x] == edit.types[tensor]:
            walk.scale *= value
            return x
    return tensor


def leading_axes(edit: Edit, tensors: tuple[str, ...]) -> tuple[int, int]:
    """Batch and heads. Where they are one axis, what that was made of tells them."""
    for tensor in tensors:
        *lead, _, _ = edit.types[_viewed(edit, tensor)].shape
        if len(lead) > 1:
            return prod(lead[:-1]), lead[-1]
    only_if(len(edit.types[tensors[0]].shape) == 3)
    return 1, edit.types[tensors[0]].shape[0]


def shaped(edit: Edit, walk: Scores, tensor: str, shape: Shape) -> str:
    walk.new.append(edit.node("reshape", (tensor,), name=f"{tensor}.shaped", shape=shape))
    return walk.new[-1].output


def side_by_side(
    edit: Edit, walk: Scores, tensors: tuple[str, ...], turned: tuple[bool, bool], whole: Shape
) -> tuple[int, list[str]]:
    """How many heads have keys of their own; queries, keys and values with heads side by side."""
    batch, heads, queries, keys = whole
    sources = [_once(edit, *each, whole) for each in zip(tensors[1:], turned, strict=True)]
    key_heads = sources[0][1]
    if sources[1][1] != key_heads:
        key_heads = heads
        sources = [(t, heads, columns) for t, columns in zip(tensors[1:], turned, strict=True)]
    result: list[str] = []
    for tensor, count, columns in ((tensors[0], heads, False), *sources):
        *lead, rows, depth = edit.types[tensor].shape
        length, width = (depth, rows) if columns else (rows, depth)
        fits = prod(lead) == batch * count
        only_if(fits and length == (keys if result else queries))
        cuts = (n for n in range(len(lead)) if prod(lead[:n]) == batch)
        cut = next(cuts, None)
        if cut is None:
            tensor, cut = shaped(edit, walk, tensor, (batch, count, rows, depth)), 1
            lead = [batch, count]
        axes, last = [*range(len(lead))], len(lead)
        order = (*axes[:cut], last + columns, *axes[cut:], last + (not columns))
        moved = edit.node("transpose", (tensor,), name=f"{tensor}.ahead", permutation=order)
        walk.new.append(moved)
        result.append(shaped(edit, walk, moved.output, (batch, length, count * width)))
    return key_heads, result


def _once(edit: Edit, tensor: str, columns: bool, whole: Shape) -> tuple[str, int, bool]:
    """Keys or values before heads were repeated for those that share them, how many heads that are,
    and whether they lie as columns."""
    turned = edit.producer(tensor, "transpose") if columns else None
    *front, rows, depth = range(len(edit.types[tensor].shape))
    if turned is not None and turned.integers("permutation") == (*front, depth, rows):
        tensor, columns = turned.inputs[0], False
    view = edit.producer(tensor, "reshape")
    repeated = None if view is None else edit.producer(view.inputs[0], "expand")
    if repeated is not None and not columns and view is not None:
        before, after = (edit.types[n].shape for n in (repeated.inputs[0], repeated.output))
        alone = len(after) == 5 and before == (*after[:2], 1, *after[3:])
        if alone and edit.types[tensor].shape == (*whole[:2], *after[3:]) and after[0] == whole[0]:
            return repeated.inputs[0], after[1], False
    return tensor, whole[1], columns


def _masks(edit: Edit, walk: Scores, whole: Shape) -> tuple[list[str], bool]:
    """The mask that is left, and whether queries see no later keys.

    Scores that are replaced by nearly nothing may as well have it added.
    """
    causal, queries = False, whole[2]
    chosen = walk.chosen
    array: Any = None if chosen is None else edit.constants.get(chosen[0])
    if chosen is not None and walk.fill <= _LOWEST and (array is not None or walk.added):
        fill = np.float32(walk.fill)
        if array is None:
            pair = [
                edit.constant(f"{chosen[0]}.{end}", np.array(value, np.float32))
                for end, value in (("seen", 0), ("hidden", fill))
            ]
            walk.new.append(edit.node("where", (chosen[0], *pair), name=f"{chosen[0]}.added"))
            walk.added.append((walk.new[-1].output, chosen[1]))
        else:
            hidden = np.where(array, np.float32(0), fill)
            walk.added.append((edit.constant(f"{chosen[0]}.added", hidden), chosen[1]))
        chosen = None
    only_if(chosen is None or not walk.added)
    left: list[str] = []
    for index, (mask, around) in enumerate(walk.added):
        others = (*walk.added[:index], *walk.added[index + 1 :])
        if _is_triangle(edit, mask, queries) and all(_bounded(edit, name) for name, _ in others):
            causal = True
            continue
        left.append(_as_mask(edit, walk, mask, around, whole))
    if chosen is not None:
        return [_as_mask(edit, walk, *chosen, whole)], causal

    def total(one: str, other: str) -> str:
        walk.new.append(edit.node("add", (one, other), name=f"{one}.added"))
        return walk.new[-1].output

    walk.fill = -inf
    return ([reduce(total, left)] if left else []), causal


def _is_triangle(edit: Edit, mask: str, queries: int) -> bool:
    """Whether a mask that is added hides all later keys from each of as many queries, and nothing
    else."""
    array: Any = edit.constants.get(mask)
    square = (queries, queries)
    if array is None or array.size != queries**2 or array.shape[-2:] != square:
        return False
    later = np.arange(queries) >= visible_keys(queries, queries)[:, None]
    plane = array.reshape(square)
    return not plane[~later].any() and bool((plane[later] <= _LOWEST).all())


def _as_mask(edit: Edit, walk: Scores, mask: str, around: Shape, whole: Shape) -> str:
    """A mask of scores of another shape as one of [batch, heads, queries, keys]."""
    shape = edit.types[mask].shape
    lead = ((1,) * (len(around) - len(shape)) + shape)[:-2]
    axes = around[:-2]
    while len(axes) > 2 and axes[0] == 1:
        axes, lead = axes[1:], lead[1:]
    if axes == whole[:2]:
        kept = lead
    else:
        alone = prod(lead) == 1
        only_if(alone or lead == axes)
        kept = (1, 1) if alone else whole[:2]
    wanted = (*kept, *((1, 1, *shape)[-2:]))
    return mask if wanted == shape else shaped(edit, walk, mask, wanted)
