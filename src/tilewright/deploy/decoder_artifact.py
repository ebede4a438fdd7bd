"""`optimize` for a decoder: the network for prompts and those for single tokens, tuned and put into
one artifact as several shapes are, with weights that lie there once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from tilewright.core.artifacts import ShapesResult
from tilewright.core.errors import ModelError, UsageError
from tilewright.core.events import EventSink, Stage
from tilewright.core.processes import Child, ChildError, RemoteError
from tilewright.core.records import Placement
from tilewright.deploy.artifact import load_decoder
from tilewright.deploy.decoding import Decoder
from tilewright.deploy.several_shapes import SeveralNetworks, put_together, ship_each
from tilewright.deploy.shape_set import ShapeSet
from tilewright.measure.targeting import in_this_process
from tilewright.models import decoder as networks
from tilewright.models.given import given_model
from tilewright.models.onnx_file import read_onnx
from tilewright.models.source import parse_source, readable_name
from tilewright.search.levels import OptimizeRequest
from tilewright.store.base import Store

PROMPT, CACHE = "tokens", "cache"
"""What the sizes of a decoder's networks are called."""
_CHECK = "tilewright.deploy.decoder_check"
_PATIENCE_S, _PATIENCE_S_PER_BYTE = 600.0, 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderRequest:
    """What is asked for a decoder: a request whose budget and folder are for all of its networks,
    how many tokens a prompt may have, the numbers of slots of its caches, and where models go that
    are made of it."""

    request: OptimizeRequest
    tokens: int
    cache: Sequence[int]
    made: Path


class OptimizedDecoder(SeveralNetworks):
    """A decoder that `optimize` shipped: its numbers in `result`, its files in `folder`."""

    def load(self, *, threads: int | None = None) -> Decoder:
        """The decoder, ready to make tokens in this process; raises what `tilewright.load`
        raises."""
        return load_decoder(self.folder, threads)


def optimize_decoder(
    asked: DecoderRequest, placement: Placement, store: Store, events: EventSink
) -> ShapesResult:
    """Make an artifact of a decoder. Raises as `optimize`, UsageError for what is no ONNX file,
    ModelError for a model that is no decoder or counts positions by the length of its cache."""
    request = asked.request
    if not in_this_process(placement):
        raise UsageError(
            "a decoder runs in the process that loads it, on this machine's CPU",
            hint="Leave --target out, or optimize its networks by themselves.",
        )
    source = parse_source(request.model)
    if source.kind != "file":
        raise UsageError(
            f"{request.model!r} is no ONNX file",
            hint="A decoder is made of an ONNX file whose lengths are open.",
        )
    path = Path(source.text).absolute()
    events(Stage(name="decoder", detail=str(path)))
    model = read_onnx(path)
    roles = networks.recognized(model)
    stages = [*_stages(asked, model, roles)]
    part = request.budget.part(1 / len(stages))
    shapes = [
        (sizes, replace(request, model=argument, origin=f"decoder {path}", budget=part))
        for sizes, argument in stages
    ]
    del model
    # the packing for the many rows of a prompt suits single tokens, too
    made = ship_each(shapes, request.folder, placement, store, events)
    name = readable_name(request.model)
    members = tuple(each.member for each in made)
    shape_set = ShapeSet(model=name, axes=(), members=members, decoder=roles)

    def together() -> ShapeSet:
        _require_right(request.folder, shape_set, path, placement)
        return shape_set

    return put_together(made, request.folder, together)


def _require_right(folder: Path, shapes: ShapeSet, model: Path, placement: Placement) -> None:
    """Raise ModelError unless the decoder gives the logits of ONNX Runtime."""
    size_bytes = sum(each.stat().st_size for each in model.parent.glob(f"{model.name}*"))
    with Child(_CHECK, cpus=placement.binding.cpus) as check:
        try:
            check.request(
                ("require right", folder, shapes, model, placement.resources.threads),
                _PATIENCE_S + _PATIENCE_S_PER_BYTE * size_bytes,
            )
        except RemoteError as error:
            said, _, hint = error.message.partition("\n")
            raise ModelError(said, hint=hint) from error
        except ChildError as error:
            raise ModelError(f"the decoder cannot be checked: {error}") from error


def _stages(
    asked: DecoderRequest, model: onnx.ModelProto, roles: networks.DecoderRoles
) -> Iterator[tuple[dict[str, int], str]]:
    """The sizes of each network, and the model text of its ONNX file."""
    stem = readable_name(asked.request.model)
    for sizes in ({PROMPT: asked.tokens}, *({CACHE: slots} for slots in sorted(asked.cache))):
        ((kind, size),) = sizes.items()
        make = networks.prefill if kind == PROMPT else networks.step
        made = make(model, roles, size)
        made.graph.name = f"{stem}-{kind}{size}"
        yield sizes, given_model(made, asked.request.options, asked.made).argument
