"""TVM's RPC server with the peers that are installed beside tilewright on a board.

    python -m tilewright.measure.board_server --host 10.0.0.7 --tracker 10.0.0.1:9190 --key board

It takes the options of `python -m tvm.exec.rpc_server` and serves the same; whoever reaches it can
also time ONNX Runtime and others there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from tilewright.hardware.probe import allotted_cpus
from tilewright.measure.board_peers import BoardPeers

_OPTIONS: dict[str, dict[str, Any]] = {
    "--host": {"default": "0.0.0.0", "help": "address to bind to [default: every one]"},
    "--port": {"type": int, "default": 9090, "help": "first port to try"},
    "--port-end": {"type": int, "default": 9199, "help": "port to stop at"},
    "--tracker": {"required": True, "help": "HOST:PORT of the tracker"},
    "--key": {"required": True, "help": "the kind of device, as the tracker knows it"},
    "--custom-addr": {"help": "address to tell the tracker"},
    "--load-library": {"help": "further libraries to load, with : between them"},
    "--silent": {"action": "store_true", "help": "say errors only"},
}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tilewright.measure.board_server")
    for option, settings in _OPTIONS.items():
        parser.add_argument(option, **settings)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until killed."""
    options = _options(arguments)
    cpus = allotted_cpus()  # before a kernel of TVM's ties its thread to one
    from tilewright.compiler.remote import serve_board

    serve_board(vars(options), BoardPeers(cpus).functions())


if __name__ == "__main__":
    main()
