"""Making text from a model file, an error or a tool harmless before anything shows it."""

from __future__ import annotations

import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: object, *, keep: str = "") -> str:
    r"""The text with everything that could steer a terminal or hide in a page spelled out.

    Control characters (ESC → `\x1b`), format characters such as direction overrides and zero-width
    spaces, line separators and lone surrogates become escapes. `keep` names control characters to
    let through, e.g. a line feed.
    """
    plain = str(text)
    if plain.isascii() and plain.isprintable():
        return plain
    return "".join(
        char if char in keep or unicodedata.category(char) not in _HIDDEN else _escaped(char)
        for char in plain
    )


def visible_lines(text: object, *, indent: str = "") -> str:
    """As `visible`, over several lines; lines after the first start with `indent`.

    With an indent no line of the text can pose as a message of its own.
    """
    lines = [visible(line, keep="\t") for line in str(text).replace("\r\n", "\n").split("\n")]
    return f"\n{indent}".join(lines)


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
