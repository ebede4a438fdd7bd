"""Language models token after token: a decoder over a network for prompts and networks for single
tokens, with caches that stay where they are.

    decoder = tilewright.decoder("model.onnx", tokens=64, cache=(128, 512))
    tokens = decoder.generate(prompt, 100)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.core import arguments
from tilewright.core.errors import InputError, InternalError, ModelError, UsageError, last_line
from tilewright.core.records import Placement, Precision
from tilewright.core.scratch import scratch_folder
from tilewright.graph.inputs import input_ranges
from tilewright.graph.network import Array, TensorType
from tilewright.hardware.device import local_placement
from tilewright.measure.targeting import allowing
from tilewright.models import ModelOptions, contained, loading
from tilewright.models.decoder import DecoderRoles, prefill, recognized, step
from tilewright.models.given import Model, given_model
from tilewright.models.loaded import CALIBRATED
from tilewright.models.onnx_file import read_onnx
from tilewright.models.source import parse_source
from tilewright.plan.preparation import prepare_loaded

if TYPE_CHECKING:
    import onnx

    from tilewright.compiler.execute import LoadedNetwork

_CHECKED_TOKENS = 3
_MOST_OFF, _MOST_OFF_COARSE = 1e-3, 5e-2
"""Of the largest logit: how far ours may be from ONNX Runtime's."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One network of a decoder: the types of its inputs by name, in order, the names of its outputs
    in order, and how many token numbers it knows, None where it does not say."""

    network: LoadedNetwork
    inputs: Mapping[str, TensorType]
    outputs: Sequence[str]
    vocabulary: int | None = None


class _Memory:
    """What a stage is called with: `arrays` by name and in the memory of `tensors`,
    as long as no result takes the place of one."""

    def __init__(self, stage: Stage) -> None:
        from tilewright.compiler.execute import held

        self.stage = stage
        pairs = {name: held(kind) for name, kind in stage.inputs.items()}
        self.arrays = {name: array for name, (array, _) in pairs.items()}
        self.tensors = {name: tensor for name, (_, tensor) in pairs.items()}


class Decoder:
    """A language model with its cache, ready to make tokens in this process.

    `prefill` reads a prompt, `step` one more token; both return the logits of the token that comes
    next, [vocabulary]. The caches have a number of slots, one per token; when they are full, the
    network of the next larger number takes over, and they are copied once. `length` tells how many
    tokens are in them, `capacity` how many there is room for, `tokens` how long a prompt may be.
    One thread may use a decoder at a time.
    """

    def __init__(self, roles: DecoderRoles, stages: Sequence[Stage], placement: Placement) -> None:
        """`stages` are the network for prompts, then those for steps, with fewer slots first."""
        from tilewright.compiler.execute import Caller

        self._roles = roles
        self._prompts, *self._steps = stages
        self.threads = placement.resources.threads
        self._exact = placement.precision == ModelOptions().precision
        self.tokens = self._prompts.inputs[roles.tokens].shape[1]
        self._slots = [stage.inputs[roles.mask].shape[1] for stage in self._steps]
        self.capacity = self._slots[-1]
        self.length = 0
        self._call = Caller(self.threads, placement.binding.cpus)
        self._memory = _Memory(self._steps[0])

    def __repr__(self) -> str:
        slots = ", ".join(map(str, self._slots))
        return f"<decoder: prompts of {self.tokens} tokens, {slots} slots, {self.length} filled>"

    def reset(self) -> None:
        """Forget all tokens."""
        self.length = 0
        self._memory = _Memory(self._steps[0])

    def prefill(self, prompt: Sequence[int] | Array) -> Array:
        """Forget what was there and read a prompt; the logits behind it.

        `prompt` are token numbers, or the rows of their embeddings where the model takes those.
        Raises UsageError for a prompt that is empty, too long or of another kind, InputError for a
        number that the model does not know.
        """
        rows = self._checked(prompt)
        count = len(rows)
        if count > min(self.tokens, self.capacity):
            raise UsageError(
                f"the prompt has {count} tokens, the decoder was made for up to "
                f"{min(self.tokens, self.capacity)}",
                hint="Make it with more `tokens`, or read the rest of the prompt by `step`.",
            )
        memory, roles = _Memory(self._prompts), self._roles
        memory.arrays[roles.tokens][0, :count] = rows
        memory.arrays[roles.mask][0, :count] = 1
        for name in roles.positions:
            memory.arrays[name].reshape(-1)[:count] = np.arange(count)
        memory.arrays[roles.last][0] = count - 1
        results = self._run(memory)
        self._enter({c.past: np.from_dlpack(results[c.present]) for c in roles.caches}, count)
        return self._logits(results)

    def step(self, token: int | Array) -> Array:
        """Read one more token; the logits behind it. Raises UsageError where the cache is full,
        InputError for a number that the model does not know."""
        (row,) = self._checked(_array(token, "the token")[None])
        if self.length == self.capacity:
            raise UsageError(
                f"the cache is full: it has room for {self.capacity} tokens",
                hint="`reset` forgets them; make the decoder with a larger `cache` for more.",
            )
        roles = self._roles
        if self.length == self._memory.arrays[roles.mask].shape[1]:
            self._enter(self.cache(copy=False), self.length, self.length + 1)
        memory = self._memory
        memory.arrays[roles.tokens][0, 0] = row
        memory.arrays[roles.mask][0, self.length] = 1
        for name in (*roles.positions, roles.slot):
            memory.arrays[name].fill(self.length)
        results = self._run(memory)
        memory.tensors |= {cache.past: results[cache.present] for cache in roles.caches}
        self.length += 1
        return self._logits(results)

    def generate(
        self,
        prompt: Sequence[int] | Array,
        count: int,
        choose: Callable[[Array], int] | None = None,
    ) -> list[int]:
        """Read a prompt and make so many tokens behind it, each the one that `choose` picks by the
        logits, or the likeliest. Raises as `prefill` and `step`, before anything is computed where
        the cache has no room for all of them."""
        wanted = arguments.count_of(count, "count", 1)
        if "int" not in self._prompts.inputs[self._roles.tokens].dtype:
            raise UsageError(
                "the decoder takes embeddings, and makes no tokens of them",
                hint="Call `prefill` and `step` with the rows of an embedding of yours.",
            )
        rows = self._checked(prompt)
        if len(rows) + wanted - 1 > self.capacity:
            raise UsageError(
                f"{len(rows)} tokens and {wanted} new ones do not fit the cache: it has room "
                f"for {self.capacity}, the last one needs none",
                hint="Make the decoder with a larger `cache`.",
            )
        logits, made = self.prefill(rows), list[int]()
        while True:
            chosen = int(logits.argmax()) if choose is None else choose(logits)
            made.append(arguments.count_of(chosen, "the token that `choose` gave"))
            if len(made) == wanted:
                return made
            logits = self.step(made[-1])

    def cache(self, *, copy: bool = True) -> dict[str, Array]:
        """The caches by the names of their inputs, as long as there are tokens. Without `copy` they
        lie where the next step writes."""
        found: dict[str, Array] = {}
        for cache in self._roles.caches:
            array: Array = np.from_dlpack(self._memory.tensors[cache.past])
            filled = array[(*(slice(None),) * cache.axis, slice(self.length))]
            found[cache.past] = filled.copy() if copy else filled
        return found

    def restore(self, caches: Mapping[str, Array]) -> None:
        """Go on from caches that `cache` gave: a prompt that many texts begin with is read once.
        Raises UsageError for other names, shapes or types."""
        given = arguments.named_of(caches, "caches")
        types = {cache.past: self._memory.stage.inputs[cache.past] for cache in self._roles.caches}
        if given.keys() != types.keys():
            raise UsageError(
                f"the caches are {', '.join(map(repr, types))}, given are "
                f"{', '.join(map(repr, given)) or 'none'}"
            )
        arrays = {name: _array(array, f"cache {name!r}") for name, array in given.items()}
        first = self._roles.caches[0]
        ranks = arrays[first.past].ndim == len(types[first.past].shape)
        length = arrays[first.past].shape[first.axis] if ranks else 0
        for cache in self._roles.caches:
            shape, array = [*types[cache.past].shape], arrays[cache.past]
            shape[cache.axis] = length
            same = str(array.dtype) == types[cache.past].dtype and array.shape == tuple(shape)
            if not same or length > self.capacity:
                wanted = ",".join("n" if i == cache.axis else str(n) for i, n in enumerate(shape))
                raise UsageError(
                    f"cache {cache.past!r} is {array.dtype}{list(array.shape)}, it must be "
                    f"{types[cache.past].dtype}[{wanted}], n the same for all and up to "
                    f"{self.capacity}"
                )
        self._enter(arrays, length)

    def _checked(self, prompt: Sequence[int] | Array) -> Array:
        """Rows of the input for tokens."""
        kind, known = self._prompts.inputs[self._roles.tokens], self._prompts.vocabulary
        rows, width = _array(prompt, "the prompt"), kind.shape[2:]
        whole = "int" in kind.dtype
        if (
            rows.ndim != len(kind.shape) - 1
            or rows.shape[1:] != width
            or not len(rows)
            or rows.dtype.kind not in ("iu" if whole else "f")
        ):
            what = "whole numbers" if whole else f"rows of {width[0]} floating-point numbers"
            raise UsageError(f"tokens are {what}, not {rows.dtype}{list(rows.shape)}")
        if whole and (rows.min() < 0 or (known is not None and rows.max() >= known)):
            wrong = rows[(rows < 0) | (rows >= (known or np.inf))][0]
            upper = "" if known is None else f" to {known - 1}"
            raise InputError(f"token {wrong} is none that the model knows: they are 0{upper}")
        return rows

    def _enter(self, caches: Mapping[str, Array], length: int, room: int = 0) -> None:
        """Go on behind so many tokens of these caches, where there is room for more."""
        fitting = (n for n, slots in enumerate(self._slots) if slots >= max(length, room))
        memory = _Memory(self._steps[next(fitting)])
        for cache in self._roles.caches:
            rows = (*(slice(None),) * cache.axis, slice(length))
            memory.arrays[cache.past][rows] = caches[cache.past][rows]
        memory.arrays[self._roles.mask][0, :length] = 1
        self._memory, self.length = memory, length

    def _run(self, memory: _Memory) -> dict[str, Any]:
        stage = memory.stage
        try:
            found = self._call(lambda: stage.network.run_held([*memory.tensors.values()]))
        except (RuntimeError, ValueError, TypeError) as error:
            raise InternalError(f"the decoder does not run: {last_line(error)}") from error
        return dict(zip(stage.outputs, found, strict=True))

    def _logits(self, results: Mapping[str, Any]) -> Array:
        return results[self._roles.logits].numpy().reshape(-1)

    def require_right(self, path: Path) -> None:
        """Compare prompt and steps, in caches of all sizes, with ONNX Runtime and the growing cache
        of the decoder at `path`; forgets all tokens. Raises ModelError where they differ."""
        roles, kind = self._roles, self._prompts.inputs[self._roles.tokens]
        rng, count = np.random.default_rng(0), min(_CHECKED_TOKENS, self.tokens, self._slots[0] - 1)
        shape = (1, count + len(self._slots), *kind.shape[2:])
        text: Array = rng.standard_normal(shape)
        if "int" in kind.dtype:
            text = rng.integers(0, min(self._prompts.vocabulary or 2, 1 << 31), shape)
        parts = np.split(text, range(count, shape[1]), axis=1)
        theirs = contained.decoded(path, roles, parts)
        places = ["a prompt that is shorter than it may be"]
        ours = [self.prefill(parts[0][0])]
        for slots, part in zip(self._slots, parts[1:], strict=True):
            self._enter(self.cache(copy=False), self.length, slots)
            ours.append(self.step(part[0, 0]))
            places.append(f"a cache of {slots} slots that is not full")
        self.reset()
        for one, other, place in zip(ours, theirs, places, strict=True):
            exact = self._exact and one.dtype.itemsize > 2
            most = _MOST_OFF if exact else _MOST_OFF_COARSE
            wanted = other.astype(np.float64)
            off = np.abs(one.astype(np.float64) - wanted).max() / np.abs(wanted).max()
            if not off <= most:
                raise ModelError(
                    f"with {place} the decoder computes logits that are {off:.2g} off those of "
                    "ONNX Runtime with lengths that fit",
                    hint="It seems to count positions or to hide tokens by the length of its cache "
                    "or mask: export it with position_ids as an input.",
                )


def decoder(
    model: Model,
    *,
    tokens: int = 64,
    cache: int | Sequence[int] = (128, 512),
    threads: int | None = None,
    precision: Precision = "float32",
) -> Decoder:
    """Compile a language model with its cache, with default settings, to make tokens right away.

        decoder = tilewright.decoder("model.onnx", tokens=64, cache=(128, 512))
        made = decoder.generate([12, 7, 431], 100)

    `model` is an ONNX file or an onnx.ModelProto with the cache as inputs `past_key_values.N.key`
    and `.value` and outputs `present.N.key` and `.value`. `tokens` is the longest prompt, `cache`
    are numbers of slots, one per token: a text begins in the smallest and moves on when it is full.
    `threads` defaults to the physical cores allotted to this process. With the precision
    "int8-weights" steps read the weights of dense layers as codes of eight bits. Nothing is
    measured. The result is compared with ONNX Runtime before it is returned.

    Raises UsageError for what is no ONNX model, ModelError for one without a cache, with fixed
    lengths, or that counts positions by the length of its cache.
    """
    count = None if threads is None else arguments.count_of(threads, "threads", 1)
    longest = arguments.count_of(tokens, "tokens", 1)
    sizes = cache_sizes(cache)
    options = ModelOptions(precision=precision)
    if precision in CALIBRATED:
        raise UsageError(
            f"a decoder is not compiled in {precision}, which is chosen by inputs",
            hint='It is "float32", "bfloat16" or "int8-weights".',
        )
    placement = allowing(local_placement(count), options)
    with scratch_folder() as folder:
        source = parse_source(given_model(model, ModelOptions(), folder).argument)
        if source.kind != "file":
            raise UsageError(
                f"{source.text!r} is no ONNX file",
                hint="A decoder is made of an ONNX file whose lengths are open.",
            )
        path = Path(source.text)
        read = read_onnx(path)
        roles = recognized(read)
        networks = chain(
            [prefill(read, roles, longest)], (step(read, roles, size) for size in sizes)
        )
        shared = dict[bytes, Any]()
        stages = [_stage(each, roles, placement, options, shared) for each in networks]
        made = Decoder(roles, stages, placement)
        made.require_right(path)
    return made


def _array(given: object, what: str) -> Any:
    try:
        return np.asarray(given)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"{what} is no array: {last_line(error)}") from error


def cache_sizes(cache: int | Sequence[int]) -> list[int]:
    """Numbers of slots in ascending order. Raises UsageError for what is none."""
    sizes = sorted({*arguments.counts_of(cache, "cache", 2)})
    if not sizes:
        raise UsageError("cache has no sizes", hint="Numbers of slots, (128, 512) say.")
    return sizes


def _stage(
    model: onnx.ModelProto,
    roles: DecoderRoles,
    placement: Placement,
    options: ModelOptions,
    shared: dict[bytes, Any],
) -> Stage:
    """A network of a decoder, compiled; equal weights of several are `shared`."""
    from tilewright.compiler.execute import LoadedNetwork

    loaded = loading.load_model(model, model.graph.name or "decoder", options)
    network = prepare_loaded(loaded, options, placement)
    graph = network.graph
    known = input_ranges(loaded.graph).get(roles.tokens, ())
    return Stage(
        network=LoadedNetwork.compiled(network.plan, placement.target, graph.constants, shared),
        inputs={name: graph.types[name] for name in graph.inputs},
        outputs=loaded.outputs,
        vocabulary=known[0].highest + 1 if len(known) == 1 else None,
    )
