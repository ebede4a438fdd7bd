"""The open inference protocol over HTTP, with a toy network behind it."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
import uvicorn

from helpers.fakes.toy_serving import ToyServer, x_of, y_of
from helpers.fakes.toy_serving_worker import CRASH, REFUSE
from tilewright.core.errors import TargetError
from tilewright.serving import http

LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Client:
    server: ToyServer
    address: str

    def ask(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, Any, Mapping[str, str]]:
        """Status, body (JSON read) and headers."""
        try:
            with urlopen(Request(f"{self.address}{path}", body, dict(headers))) as answer:
                status, found, told = answer.status, answer.read(), answer.headers
        except HTTPError as error:
            with error:
                status, found, told = error.code, error.read(), error.headers
        return status, found if LENGTH in told else json.loads(found), told

    def infer(self, name: str = "quick", **changed: Any) -> tuple[int, Any]:
        message = {"inputs": [tensor(x_of(2))], **changed}
        return self.ask(f"/v2/models/{name}/infer", json.dumps(message).encode())[:2]


def tensor(array: np.ndarray, **changed: Any) -> dict[str, Any]:
    values = {"name": "x", "datatype": "FP32", "shape": array.shape, "data": array.tolist()}
    return {**values, **changed}


def until(found: Callable[[], bool]) -> None:
    while not found():
        time.sleep(0.001)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder, networks = tmp_path_factory.mktemp("networks"), {"quick": 0.0, "slow": 0.15}
    with ToyServer(folder, networks, instances=1, queue=1) as server:
        place = http.listening("127.0.0.1", 0)
        web = uvicorn.Server(uvicorn.Config(http.application(server), log_level="warning"))
        thread = threading.Thread(target=web.run, args=([place],))
        thread.start()
        yield Client(server, f"http://127.0.0.1:{place.getsockname()[1]}")
        web.should_exit = True
        thread.join()


def test_health_and_metadata(client: Client) -> None:
    assert client.ask("/v2")[1]["extensions"] == ["binary_tensor_data"]
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/quick/ready"):
        assert client.ask(path)[0] == 200
    status, about, _ = client.ask("/v2/models/quick")
    assert status == 200
    assert about["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]
    assert about["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, 4]}]
    assert client.ask("/v2/statistics")[1]["networks"][0]["network"] == "quick"


@pytest.mark.parametrize("flat", [False, True])
def test_json(client: Client, flat: bool) -> None:
    x = x_of(2, 3)
    given = tensor(x, data=x.reshape(-1).tolist()) if flat else tensor(x)
    status, answer = client.infer(inputs=[given], id="7")
    assert (status, answer["id"], answer["model_name"]) == (200, "7", "quick")
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("y", "FP32", [1, 4])
    assert output["data"] == y_of(x).reshape(-1).tolist()


def test_whole_numbers_are_numbers(client: Client) -> None:
    status, answer = client.infer(inputs=[tensor(x_of(), data=[1, 2, 3, 4])])
    assert (status, answer["outputs"][0]["data"]) == (200, [3, 5, 7, 9])


def test_binary_tensors(client: Client) -> None:
    x = x_of(0.1, 0.2)
    given = tensor(x, parameters={"binary_data_size": x.nbytes})
    del given["data"]
    wanted = [{"name": "y", "parameters": {"binary_data": True}}]
    text = json.dumps({"inputs": [given], "outputs": wanted}).encode()
    headers = {LENGTH: str(len(text))}
    status, body, told = client.ask("/v2/models/quick/infer", text + x.tobytes(), headers)
    assert status == 200
    at = int(told[LENGTH])
    (output,) = json.loads(body[:at])["outputs"]
    assert output["parameters"] == {"binary_data_size": 16}
    found = np.frombuffer(body[at:], np.float32).reshape(output["shape"])
    np.testing.assert_array_equal(found, y_of(x))


BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "another shape": ({"inputs": [tensor(np.zeros(4, np.float32))]}, 400, "compiled for"),
    "another type": ({"inputs": [tensor(x_of(), datatype="FP64")]}, 400, "float64"),
    "an unknown type": ({"inputs": [tensor(x_of(), datatype="FP31")]}, 400, "'FP31'"),
    "too few values": ({"inputs": [tensor(x_of(), data=[1.0])]}, 400, "reshape"),
    "text for numbers": ({"inputs": [tensor(x_of(), data=["1"] * 4)]}, 400, "its data are"),
    "no data": ({"inputs": [tensor(x_of(), data=None)]}, 400, "neither data"),
    "no such input": ({"inputs": [tensor(x_of(), name="z")]}, 400, "called 'z'"),
    "no inputs": ({"inputs": None}, 400, "no inference request"),
    "no such output": ({"outputs": [{"name": "z"}]}, 400, "no output"),
    "a deadline in words": ({"parameters": {"timeout": "soon"}}, 400, "microseconds"),
    "a refused value": ({"inputs": [tensor(x_of(REFUSE))]}, 400, "x is refused"),
    "a missed deadline": ({"name": "slow", "parameters": {"timeout": 20000}}, 504, "20 ms"),
    "an unknown network": ({"name": "none"}, 404, "known: quick, slow"),
    "too much": ({"id": "x" * (1 << 20)}, 413, "too large"),
    "a crash": ({"inputs": [tensor(x_of(CRASH))]}, 500, "ended 3 instances"),
}


@pytest.mark.parametrize(("changed", "status", "said"), BAD.values(), ids=BAD)
def test_refusals(client: Client, changed: dict[str, Any], status: int, said: str) -> None:
    found, answer = client.infer(**changed)
    assert found == status and said in answer["error"]


def test_what_is_no_json(client: Client) -> None:
    assert client.ask("/v2/models/quick/infer", b"{", {LENGTH: "x"})[0] == 400
    assert client.ask("/v2/models/quick/infer", b"\xff")[0] == 400


def test_a_full_queue(client: Client) -> None:
    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(client.infer, "slow")]
        queue = client.server._queue
        until(lambda: len(queue._free) < queue._slots and not queue.waiting)
        running.append(threads.submit(client.infer, "slow"))
        until(lambda: queue.waiting == 1)
        status, answer = client.infer()
        assert status == 429 and "wait already" in answer["error"]
        assert [each.result()[0] for each in running] == [200, 200]


def inference(client: Client, name: str, *, first: float = 2) -> tuple[socket.socket, bytes]:
    """A connection, and the bytes of a request for it."""
    body = json.dumps({"inputs": [tensor(x_of(first))]}).encode()
    head = (
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    port = int(client.address.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port)), head.encode() + body


def fates(client: Client) -> dict[str, int]:
    """What became of the requests for the slow network until now."""
    (found,) = [n for n in client.server.statistics().networks if n.network == "slow"]
    return {"answered": found.answered, "cancelled": found.cancelled}


@pytest.mark.parametrize("waits", [True, False])
def test_a_dropped_connection_cancels_its_request(client: Client, waits: bool) -> None:
    """Whether it waits, and is never computed then, or is computed, and its result is dropped."""
    client.server.takes("slow", 0.5)
    before, queue = fates(client), client.server._queue
    until(lambda: len(queue._free) == queue._slots)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(client.infer, "slow") if waits else None
        until(lambda: not waits or (len(queue._free) < queue._slots and not queue.waiting))
        connection, sent = inference(client, "slow")
        connection.sendall(sent)
        until(lambda: len(queue._free) < queue._slots - waits)
        connection.close()
        until(lambda: sum(fates(client).values()) > sum(before.values()))
        assert fates(client)["cancelled"] == before["cancelled"] + 1
        assert not waits or not queue.waiting
        assert running is None or running.result()[0] == 200
    until(lambda: len(queue._free) == queue._slots)
    assert fates(client)["answered"] == before["answered"] + waits
    client.server.takes("slow", 0.15)


def test_a_connection_that_is_kept_answers_again(client: Client) -> None:
    connection, sent = inference(client, "quick")
    with connection:
        for _ in range(3):
            connection.sendall(sent)
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 200")


def test_half_a_request_is_no_fault_of_the_server(client: Client) -> None:
    said: list[logging.LogRecord] = []
    noted = logging.Handler()
    noted.emit = said.append  # type: ignore[method-assign]
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(noted)
    connection, sent = inference(client, "quick")
    connection.sendall(sent[:-5])
    assert client.infer()[0] == 200
    connection.close()
    assert client.infer()[0] == client.infer()[0] == 200
    logger.removeHandler(noted)
    assert not said


def test_a_port_that_is_taken(client: Client) -> None:
    port = int(client.address.rpartition(":")[2])
    with pytest.raises(TargetError, match="cannot listen"):
        http.listening("127.0.0.1", port)
