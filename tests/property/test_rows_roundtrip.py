"""Whatever list of objects is written reads back the same, from either layout."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from objectives.rows import open_rows

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.lists(st.dictionaries(TEXT, VALUES, max_size=4), min_size=1, max_size=8)
BLANK = st.sampled_from(["", "\n", "\r\n", "  \n\n"])


def read_back(name: str, text: str) -> list[dict[str, Any]]:
    """Return the rows of a file with that text, read from the last to the first."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode())
        rows = open_rows(path)
        backwards = [rows[i] for i in reversed(range(len(rows)))]
        rows.close()
        return backwards[::-1]


@given(
    objects=OBJECTS, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]), mark=st.sampled_from(["", "\ufeff"])
)
def test_json_round_trip(objects: list[dict[str, Any]], ascii_only: bool, indent: int | None, mark: str) -> None:
    """An array reads back equal, in any order of reading, however it is laid out."""
    text = mark + json.dumps(objects, ensure_ascii=ascii_only, indent=indent)
    assert read_back("rows.json", text) == objects


@given(objects=OBJECTS, ascii_only=st.booleans(), blank=BLANK, mark=st.sampled_from(["", "\ufeff"]))
def test_jsonl_round_trip(objects: list[dict[str, Any]], ascii_only: bool, blank: str, mark: str) -> None:
    """Lines read back equal: only a line feed ends a line, not the other line ends of Unicode inside a string."""
    lines = [json.dumps(row, ensure_ascii=ascii_only) + "\n" + blank for row in objects]
    assert read_back("rows.jsonl", mark + "".join(lines)) == objects
