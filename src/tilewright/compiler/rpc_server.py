# pyright: basic
"""TVM's RPC server in this process, with functions of our own beside its."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tvm_ffi
from tvm.rpc.server import PopenRPCServerState


def serve_board(options: Mapping[str, Any], functions: Mapping[str, Callable[[str], str]]) -> None:
    """Serve until killed; `options` are those of TVM's own server by name.

    Each session is served by a fork of this process, which has the functions, too.
    """
    for name, function in functions.items():
        tvm_ffi.register_global_func(name, function, override=True)
    host, _, port = str(options["tracker"]).rpartition(":")
    state = PopenRPCServerState(
        options["host"],
        options["port"],
        options["port_end"],
        tracker_addr=(host, int(port)),
        key=options["key"],
        load_library=options["load_library"],
        custom_addr=options["custom_addr"],
        silent=options["silent"],
    )
    state.thread.join()
