"""The ways to reach devices by name: ours, and those of other packages."""

from __future__ import annotations

from tilewright.core import errors, plugins, records
from tilewright.measure.accesses import cuda, here, rpc, simulated
from tilewright.measure.accesses.base import Access

_OURS: tuple[Access, ...] = (rpc.RPC, simulated.SIMULATED, cuda.CUDA, here.DESCRIBED, here.HERE)
_OFFERS = plugins.Offers[Access](
    "tilewright.accesses",
    kind="access",
    built_in={access.name: access for access in _OURS},
    needs=(
        *("name", "here", "runs_networks", "note", "placement", "rows", "refusal"),
        *("measurer", "networks"),
    ),
)


def accesses() -> dict[str, Access]:
    """All by name, in the order in which they are asked whether a target is theirs: those of other
    packages first, this machine last."""
    found, offered = _OFFERS.usable(), _OFFERS.others()
    return dict(sorted(found.items(), key=lambda item: item[0] not in offered))


def access_to(device: records.Device) -> Access:
    """How a device is reached. Raises TargetError where no installed package knows that way, or
    the one that does is broken."""
    found = _OFFERS.find(device.access)
    if found is None:
        raise errors.TargetError(
            f"no installed package reaches devices by {device.access!r}",
            hint=errors.close_matches(device.access, accesses()),
        )
    return found
