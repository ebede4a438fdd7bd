"""Models from an address, against a server in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from onnx import helper

from helpers.networks.onnx_models import model_of
from tilewright.core.errors import ModelError, OutputError, UsageError
from tilewright.models.cache import shrink
from tilewright.models.download import download
from tilewright.models.loading import load
from tilewright.models.source import readable_name

CONTENT = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 4]}).SerializeToString()
SUM = hashlib.sha256(CONTENT).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    """Sends the model, or too little of it at /short.onnx; anything else is missing."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        found = self.path in ("/a/net.onnx", "/short.onnx")
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(CONTENT) if found else 0))
        self.end_headers()
        if found:
            self.wfile.write(CONTENT[: 10 if "short" in self.path else None])

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def _serving() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"asked": asked})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with _serving() as found:
        yield found


def _left_over(cache: Path) -> list[str]:
    return [path.name for path in cache.rglob("*") if path.is_file()]


def test_a_model_is_fetched_once_and_again_when_it_was_damaged(
    server: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, asked = server
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    address = f"{place}/a/net.onnx#sha256={SUM.upper()}"
    model = load(address)
    assert model.name == readable_name(address) == "net"
    assert model.onnx_path.read_bytes() == CONTENT
    load(address)
    assert asked == ["/a/net.onnx"]
    model.onnx_path.write_bytes(CONTENT[:-1])
    load(address)
    assert len(asked) == 2
    assert _left_over(tmp_path) == ["net.onnx"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/a/net.onnx", "has the SHA-256 " + SUM),
        ("/b.onnx", "404"),
        ("/short.onnx", "has the SHA-256"),
    ],
)
def test_other_contents_are_never_used(
    server: tuple[str, list[str]], tmp_path: Path, path: str, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        download(f"{server[0]}{path}#sha256={'0' * 64}", tmp_path)
    assert _left_over(tmp_path) == []


def test_a_download_in_use_outlives_the_limit(
    server: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE_LIMIT", "0")
    address = f"{server[0]}/a/net.onnx#sha256={SUM}"
    model = load(address)
    assert shrink(tmp_path, 0).models == 0 and model.onnx_path.exists()
    del model
    assert shrink(tmp_path, 0).models == 1 and _left_over(tmp_path) == []


def test_no_server_and_no_room(tmp_path: Path, server: tuple[str, list[str]]) -> None:
    with _serving() as (gone, _):
        pass
    refused = rf"cannot fetch '{gone}/a/net\.onnx': \[Errno 111\] Connection refused"
    with pytest.raises(ModelError, match=refused) as caught:
        download(f"{gone}/a/net.onnx#sha256={SUM}", tmp_path)
    assert "give its path" in (caught.value.hint or "")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot keep"):
        download(f"{server[0]}/a/net.onnx#sha256={SUM}", tmp_path / "file")


@pytest.mark.parametrize(
    ("address", "message", "hint"),
    [
        ("https://a.b/net.onnx", "names no checksum", "https://a.b/net.onnx#sha256=HEX"),
        ("https://a.b/net.onnx#sha256=12", "is no SHA-256", "sha256sum"),
        ("https://a.b/net.onnx#md5=" + SUM, "is no SHA-256", "sha256sum"),
        (f"https://a.b/net.pt2#sha256={SUM}", "not the address of an .onnx", "fetch the file"),
        (f"https:///net.onnx#sha256={SUM}", "not the address of an .onnx", "fetch the file"),
    ],
)
def test_addresses_that_are_refused(address: str, message: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        download(address, tmp_path)
    assert hint in (caught.value.hint or "")
