"""Where results go, and what a damaged manifest says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.core.errors import ModelError
from tilewright.deploy.manifest import MANIFEST, SCHEMA_VERSION, read_manifest
from tilewright.deploy.shipment import default_folder

HOSTILE = [
    "../../etc/passwd.onnx",
    "..onnx",
    ".onnx",
    "zoo:../../x",
    "zoo:..",
    "op:conv2d[n=1,c=64]",
    "a/b/c\x1b[31m.onnx",
    "<script>.onnx",
    "-rf.onnx",
    "https://a.b/..%2F..%2Fetc.onnx#sha256=12",
    "https://",
    "with space\nand line.onnx",
    "模型.onnx",
    "",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_one_folder_below(name: str) -> None:
    folder = default_folder(name)
    assert folder.parent == Path("tilewright-out")
    assert folder.name not in ("", ".", "..")
    assert all(char.isalnum() or char in "._-" for char in folder.name)
    assert folder.name.isascii()


def test_plain_names() -> None:
    assert default_folder("zoo:resnet18").name == "resnet18"
    assert default_folder("hf:bert[layers=2]").name == "bert_layers_2"
    assert default_folder("torch:a.b:c").name == "a.b_c"
    assert default_folder("folder/net.pt2").name == "net"
    assert default_folder("https://a.b/c/net.onnx#sha256=12").name == "net"
    assert default_folder("/somewhere/my.net-1.onnx").name == "my.net-1"


def test_very_long_names_can_be_made(tmp_path: Path) -> None:
    arguments = ("x" * 400 + ".onnx", "op:conv2d[" + "n=1," * 200 + "]")
    for name in {default_folder(argument).name for argument in arguments}:
        (tmp_path / name).mkdir()
    assert len(list(tmp_path.iterdir())) == len(arguments), "each has a folder of its own"


def write(folder: Path, content: str) -> Path:
    (folder / MANIFEST).write_text(content)
    return folder


def test_a_folder_without_a_manifest(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no compiled network") as caught:
        read_manifest(tmp_path)
    assert "optimize" in str(caught.value)
    with pytest.raises(ModelError, match="no compiled network"):
        read_manifest(tmp_path / "missing")


@pytest.mark.parametrize("content", ["", "{", "\x00\x01", "[1, 2", "{'a': 1}"])
def test_what_is_no_json(tmp_path: Path, content: str) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        read_manifest(write(tmp_path, content))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match="cannot read"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "content", ["[]", "3", "null", "{}", json.dumps({"schema_version": SCHEMA_VERSION + 1})]
)
def test_other_schemas(tmp_path: Path, content: str) -> None:
    with pytest.raises(ModelError, match="schema version"):
        read_manifest(write(tmp_path, content))


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(ModelError):
        read_manifest(path)
