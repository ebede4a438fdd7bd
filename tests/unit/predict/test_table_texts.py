"""A column of texts of a table."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest

from tilewright.core.errors import ModelError, UsageError
from tilewright.predict.tables import read_texts


def test_texts_come_in_order_without_gaps(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    polars.DataFrame({"operator": ["op:a", None, "op:b"], "n": [1, 2, 3]}).write_csv(path)
    assert read_texts(path, "operator") == ["op:a", "op:b"]


def test_a_table_without_the_column_and_no_table(tmp_path: Path) -> None:
    path = tmp_path / "ops.parquet"
    polars.DataFrame({"name": ["x"]}).write_parquet(path)
    with pytest.raises(UsageError, match="no column operator") as caught:
        read_texts(path, "operator")
    assert "name" in (caught.value.hint or "")
    with pytest.raises(ModelError):
        read_texts(tmp_path / "none.csv", "operator")


def test_commas_without_quotes_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("operator,n\nop:conv2d[c=64,h=28,w=28,out=64,k=3],3\n")
    with pytest.raises(ModelError, match="no table") as caught:
        read_texts(path, "operator")
    assert "stands in quotes" in (caught.value.hint or "")
    path.write_text('operator,n\n"op:conv2d[c=64,h=28,w=28,out=64,k=3]",3\n')
    assert read_texts(path, "operator") == ["op:conv2d[c=64,h=28,w=28,out=64,k=3]"]
