"""Making a plug-in visible as if it were installed, here and in every process started from here."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
GROUPS = {"tilewright.implementations": "SPEC", "tilewright.lowerings": "lower"}


def offered(folder: Path, implementation: str) -> list[str]:
    """Entries for the module search path that offer the plug-in of this name.

    `folder` takes the metadata that an installer would have written.
    """
    metadata = folder / f"{implementation}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {implementation}\nVersion: 1.0\n"
    )
    points = [
        f"[{group}]\n{implementation} = {implementation}_plugin.{module}:{module_name}\n"
        for (group, module_name), module in zip(GROUPS.items(), ("spec", "lowering"), strict=True)
    ]
    (metadata / "entry_points.txt").write_text("\n".join(points))
    return [str(folder), str(HERE)]
