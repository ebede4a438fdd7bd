"""A server over HTTP, by the open inference protocol: `protocol` has its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from socket import create_server, socket
from typing import TYPE_CHECKING, Any

import msgspec

from tilewright.core.errors import InputError, TargetError, TilewrightError, UsageError
from tilewright.core.refusals import DeadlineMissed, QueueFull, ServerClosed
from tilewright.hardware.environment import own_version
from tilewright.serving.protocol import described, read_message, write_answer
from tilewright.serving.served import ServedNetwork
from tilewright.serving.server import Server

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_HEADER = "Inference-Header-Content-Length"
_STATUS = (
    (QueueFull, 429),
    (DeadlineMissed, 504),
    (ServerClosed, 503),
    (UsageError, 400),
    (InputError, 400),
)
_TEXT_BYTES, _LEAST_BYTES = 32, 1 << 20
"""Bytes of JSON for a byte of a tensor at most, and of a body that is always read."""
_TOO_LARGE, _UNKNOWN, _NOT_READY = 413, 404, 503
_GONE = 499
"""The status of what nobody waits for any more, which nobody reads either."""


def _require_packages() -> None:
    """Raise TargetError where what HTTP needs is not installed."""
    try:
        import starlette
        import uvicorn

        del starlette, uvicorn
    except ImportError as error:
        raise TargetError(
            f"{error.name} is not installed, and HTTP is served by it",
            hint="pip install 'tilewright[serve]'",
        ) from error


def application(server: Server) -> Starlette:
    """What answers requests for a server's networks; any ASGI server may run it.

    `/v2`, `/v2/health/live`, `/v2/health/ready`, `/v2/models/NAME`, `/v2/models/NAME/ready`,
    `/v2/models/NAME/infer`, and `/v2/statistics`, which is ours.
    """
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    answers = _Answers(server)
    about = {"name": "tilewright", "version": own_version(), "extensions": ["binary_tensor_data"]}

    async def metadata(_: Request) -> Response:
        return JSONResponse(about)

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    return Starlette(
        routes=[
            Route("/v2", metadata),
            Route("/v2/health/live", live),
            Route("/v2/health/ready", answers.ready),
            Route("/v2/statistics", answers.statistics),
            Route("/v2/models/{name}", answers.model),
            Route("/v2/models/{name}/ready", answers.model_ready),
            Route("/v2/models/{name}/infer", answers.infer, methods=["POST"]),
        ]
    )


class _Answers:
    """The answers that are about a server."""

    def __init__(self, server: Server) -> None:
        from starlette.responses import JSONResponse

        self._server, self._json = server, JSONResponse
        largest = max(each.plan.size_bytes for each in server.networks.values())
        self._most_bytes = max(_LEAST_BYTES, _TEXT_BYTES * largest)

    async def ready(self, _: Request) -> Response:
        ready = self._server.is_ready
        return self._json({"ready": ready}, 200 if ready else _NOT_READY)

    async def statistics(self, _: Request) -> Response:
        from starlette.responses import Response

        told = msgspec.json.encode(self._server.statistics())
        return Response(told, media_type="application/json")

    async def model(self, request: Request) -> Response:
        return await self._of_network(request, self._described)

    async def model_ready(self, request: Request) -> Response:
        return await self._of_network(request, self._ready)

    async def infer(self, request: Request) -> Response:
        return await self._of_network(request, self._inferred)

    async def _of_network(
        self,
        request: Request,
        answer: Callable[[Request, ServedNetwork], Awaitable[Response]],
    ) -> Response:
        """What is answered for a network, errors as the protocol has them."""
        from starlette.requests import ClientDisconnect

        name = request.path_params["name"]
        network = self._server.networks.get(name)
        if network is None:
            known = ", ".join(self._server.networks)
            return self._json({"error": f"no model is called {name!r}; known: {known}"}, _UNKNOWN)
        try:
            return await answer(request, network)
        except ClientDisconnect:
            return self._json({}, _GONE)
        except TilewrightError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            return self._json({"error": str(error)}, status)

    async def _described(self, _: Request, network: ServedNetwork) -> Response:
        return self._json(described(network))

    async def _ready(self, request: Request, network: ServedNetwork) -> Response:
        del network
        return await self.ready(request)

    async def _inferred(self, request: Request, network: ServedNetwork) -> Response:
        from starlette.responses import Response

        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._most_bytes:
                return self._json({"error": "the request is too large"}, _TOO_LARGE)
        length = request.headers.get(_HEADER)
        if length is not None and not length.isdigit():
            raise UsageError(f"{_HEADER} is {length!r}")
        message, arrays = read_message(bytes(body), None if length is None else int(length))
        asked = self._server.infer(network.name, arrays, deadline_s=message.deadline_s)
        found: Any = await _while_connected(request, asked)
        outputs = {network.outputs[0].name: found} if len(network.outputs) == 1 else found
        text, parts = write_answer(network, message, outputs)
        headers = {_HEADER: str(len(text))} if parts else {}
        kind = "application/octet-stream" if parts else "application/json"
        return Response(b"".join([text, *parts]), headers=headers, media_type=kind)


async def _while_connected(request: Request, asked: Coroutine[Any, Any, Any]) -> Any:
    """What is asked for a request whose body has been read. It is cancelled, and ClientDisconnect
    raised, when the client goes away before it is there."""
    from starlette.requests import ClientDisconnect

    asking = asyncio.ensure_future(asked)
    # nothing but the end of the connection comes after the body
    leaving = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((asking, leaving), return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return await asking
    finally:
        asking.cancel()
        leaving.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    raise ClientDisconnect


def listening(host: str, port: int) -> socket:
    """A socket that takes connections. Raises TargetError where the port is taken or the address is
    not this machine's, or HTTP's packages are missing."""
    _require_packages()
    try:
        return create_server((host, port))
    except (OSError, OverflowError) as error:
        raise TargetError(
            f"cannot listen on {host}:{port}: {error}", hint="Give another --port or --host."
        ) from error


def serve_http(server: Server, place: socket) -> None:
    """Answer requests until a signal asks to stop, then those that have come; after a second one
    what is left is cancelled. The server is closed then.

    The signal is raised again at the end: as KeyboardInterrupt where that is what it means.
    """
    import uvicorn

    config = uvicorn.Config(application(server), log_level="warning", lifespan="off")
    http = uvicorn.Server(config)
    try:
        http.run([place])
    finally:
        server.close(drain=not http.force_exit)
