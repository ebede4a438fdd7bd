"""Processes that hold the session of a device elsewhere."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tilewright.core.errors import TargetError
from tilewright.core.processes import ChildTimeout, RemoteError
from tilewright.hardware.device import local_placement
from tilewright.serving import posts
from tilewright.serving.slots import SharedSlots


@pytest.mark.parametrize("error", [RemoteError("OSError", "no space"), ChildTimeout("gone")])
def test_what_fails_as_a_session_is_opened_anew_is_no_fault_of_a_request(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Board:
        instance = "rpc:box"

        def __init__(self, *_: object, **__: object) -> None: ...

        def connect_for(self, *_: object) -> None: ...

        def lasts(self, _limit_s: float) -> bool:
            return False

        def request(self, _message: tuple[Any, ...], _limit_s: float) -> None:
            raise error

    monkeypatch.setattr(posts, "Board", Board)
    monkeypatch.setattr(posts, "remote_place", lambda _: ("box", "127.0.0.1", 9190))
    slots = SharedSlots.create(1, 64)
    post = posts.RemotePost(local_placement(1), slots)
    with pytest.raises(TargetError, match="cannot be had again: (OSError: no space|gone)"):
        post.run("a", [0], 1.0)
    os.close(slots.descriptor)
