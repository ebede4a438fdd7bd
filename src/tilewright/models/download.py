"""Models from an address: fetched once, kept, and never used unless their checksum is right."""

from __future__ import annotations

import hashlib
import re
from http.client import HTTPException
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urldefrag, urlsplit
from urllib.request import Request, urlopen

from tilewright.core.errors import ModelError, UsageError, quoted
from tilewright.core.output_files import attempting
from tilewright.core.scratch import FolderInUse, PrivateFolder
from tilewright.models.cache import DOWNLOADS, PARTIAL, use

_CHECKSUM = re.compile(r"sha256=([0-9a-fA-F]{64})")
_CHUNK_BYTES = 1 << 20
_PATIENCE_S = 30.0


def download(address: str, cache: Path) -> tuple[Path, FolderInUse]:
    """The ONNX file at `https://HOST/….onnx#sha256=HEX`, below `cache`, and a hold on it.

    A file that is there already and has the checksum is taken without asking the network. The
    checksum is what the file is trusted for, so plain `http` is as good.

    Raises UsageError for an address without a checksum or of something else, ModelError for a
    server that does not answer or answers with other contents, OutputError where the cache cannot
    be written.
    """
    place, checksum = _taken_apart(address)
    path = cache / DOWNLOADS / checksum / _file_name(place)
    with attempting(
        f"keep {quoted(place)} in {quoted(path.parent)}", "TILEWRIGHT_CACHE names another folder."
    ):
        held = _held(path.parent)
        if _sha256_of(path) != checksum:
            with PrivateFolder(path.parent, PARTIAL) as folder:
                fetched = folder / path.name
                with fetched.open("wb") as file:
                    _fetch(place, file)
                if (found := _sha256_of(fetched)) != checksum:
                    raise ModelError(
                        f"{quoted(place)} has the SHA-256 {found}, not {checksum}",
                        hint="The file at this address has changed, or the checksum is of "
                        "another file.",
                    )
                fetched.replace(path)
    return path, held


def _held(folder: Path) -> FolderInUse:
    """A hold on a folder of the cache, which is made where it is missing."""
    held = None
    while held is None:
        folder.mkdir(parents=True, exist_ok=True)
        held = use(folder)
    return held


def _taken_apart(address: str) -> tuple[str, str]:
    """The address without its fragment, and the checksum in lower case."""
    place, fragment = urldefrag(address)
    checksum = _CHECKSUM.fullmatch(fragment)
    if checksum is None:
        what = f"{quoted(fragment)} is no SHA-256" if fragment else "names no checksum"
        raise UsageError(
            f"{quoted(address)}: the address {what}" if not fragment else f"{address!r}: {what}",
            hint=f"Write {place}#sha256=HEX, with what `sha256sum FILE` prints of the file.",
        )
    if Path(_file_name(place)).suffix != ".onnx" or not urlsplit(place).hostname:
        raise UsageError(
            f"{quoted(place)} is not the address of an .onnx file",
            hint="Other models: fetch the file, then give its path.",
        )
    return place, checksum[1].lower()


def _file_name(place: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", Path(unquote(urlsplit(place).path)).name)


def _fetch(place: str, file: BinaryIO) -> None:
    """Copy what the server sends. Raises ModelError where it does not all come."""
    try:
        with urlopen(Request(place), timeout=_PATIENCE_S) as answer:
            copyfileobj(answer, file, _CHUNK_BYTES)
    except HTTPError as error:
        reason = f"the server says {error.code} {error.reason}"
        error.close()
        raise ModelError(f"cannot fetch {quoted(place)}: {reason}") from None
    except (URLError, HTTPException, TimeoutError, ConnectionError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise ModelError(
            f"cannot fetch {quoted(place)}: {quoted(reason)[1:-1]}",
            hint="Without a network: fetch the file elsewhere and give its path.",
        ) from error


def _sha256_of(path: Path) -> str | None:
    """None where the file is missing or cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
