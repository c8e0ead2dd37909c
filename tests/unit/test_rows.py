"""Data sets are read by offset and checked before a child starts."""

import json
import os
import pickle
from pathlib import Path

import pytest

import objectives.rows
from objectives.errors import UserError
from objectives.rows import Rows, check_rows, open_rows

ROW = '{"instruction": "你好", "input": "", "output": "🙂 hello"}'
OBJECT = json.loads(ROW)


def write(path: Path, content: str | bytes) -> Path:
    """Return the path, written."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def failure(path: Path, batch_size: int = 1) -> UserError:
    """Return the error of a data set that must be refused; all its parts are there, the first names the file."""
    with pytest.raises(UserError) as caught:
        check_rows(path, batch_size=batch_size)
    error = caught.value
    assert str(path) in error.what
    assert error.why
    assert error.hint
    return error


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("lines.jsonl", f"{ROW}\n{ROW}\n", 2),
        ("no-last-newline.jsonl", f"{ROW}\n{ROW}", 2),
        ("blank-lines.jsonl", f"\n\n{ROW}\n  \n{ROW}\n\n", 2),
        ("windows.jsonl", f"{ROW}\r\n{ROW}\r\n", 2),
        ("bom.jsonl", f"\ufeff{ROW}\n{ROW}\n", 2),
        ("array.json", f"[{ROW}, {ROW}\n,{ROW}]\n", 3),
        ("bom.json", f"\ufeff [{ROW}]", 1),
        ("array-under-the-other-name.jsonl", f"[\n{ROW},\n{ROW}]", 2),
        ("lines-under-the-other-name.json", f"{ROW}\n{ROW}\n", 2),
        ("CAPITALS.JSONL", ROW, 1),
    ],
)
def test_what_is_read(tmp_path: Path, name: str, content: str, count: int) -> None:
    """Both layouts give their rows, whatever the line ends, marks and blank lines around them."""
    assert list(open_rows(write(tmp_path / name, content))) == [OBJECT] * count


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.json", "", ["empty"]),
        ("blank.jsonl", "\ufeff \n\n", ["empty"]),
        ("none.json", "[]", ["no rows"]),
        ("cut.json", f"[{ROW},\n{ROW}", ["not JSON", "line 2", f"column {len(ROW) + 1}"]),
        ("comma.json", f"[{ROW},]", ["not JSON", "line 1"]),
        ("more.json", f"[{ROW}] x", ["not JSON", "Extra data"]),
        ("object.json", '{"data": []}', ["not an array of objects", "an object"]),
        ("numbers.json", f"[{ROW}, 7]", ["not an array of objects", "a number", "row 2"]),
        ("utf-16.json", f"[{ROW}]".encode("utf-16"), ["not UTF-8", "0xff"]),
        ("gbk.jsonl", ROW.encode() + b"\n" + "你好".encode("gbk") + b"\n", ["line 2", "not UTF-8"]),
        ("bad.jsonl", f"{ROW}\n\n{ROW[:-1]}\n", ["line 3", "not JSON", "column"]),
        ("list.jsonl", f"{ROW}\n[1]\n", ["line 2", "an array"]),
        ("fields.jsonl", f'{ROW}\n{{"id": 1, "label": 0}}\n', ["line 2", "none of the known fields", "id, label"]),
        ("fields.json", f'[{ROW}, {{"id": 1}}]', ["row 2", "none of the known fields", "id"]),
        ("null.jsonl", '{"messages": []}\n', ["line 1", "empty"]),
        ("table.csv", "instruction,output\na,b\n", [".csv"]),
        ("bare", ROW, ["no extension"]),
    ],
)
def test_bad_data_sets_are_named(tmp_path: Path, name: str, content: str | bytes, words: list[str]) -> None:
    """Every data set that cannot be used is a three-part error that names the file, the row and the trouble."""
    what = failure(write(tmp_path / name, content)).what
    assert [word for word in words if word not in what] == []


def test_paths_that_are_no_data_set(tmp_path: Path) -> None:
    """A missing path, a directory, a pipe and an impossible name are errors, not tracebacks and not a hang."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "does not exist" in failure(tmp_path / "missing.json").what
    assert "'#N'" in failure(tmp_path / "missing.json#500").why
    assert "directory" in failure(tmp_path).what
    assert "not a regular file" in failure(tmp_path / "pipe.jsonl").what
    assert "cannot be read" in failure(tmp_path / ("x" * 300 + ".json")).what


def test_the_known_fields_are_told(tmp_path: Path) -> None:
    """Whoever has the wrong fields learns the right ones."""
    why = failure(write(tmp_path / "x.jsonl", '{"id": 1}')).why
    assert all(field in why for field in ("messages", "instruction", "completion", "history"))


def test_fewer_rows_than_a_batch(tmp_path: Path) -> None:
    """One full batch is the least a slice can train; the hint gives the size that fits."""
    path = write(tmp_path / "x.jsonl", f"{ROW}\n{ROW}\n")
    assert check_rows(path, batch_size=2).rows == 2
    error = failure(path, batch_size=3)
    assert "2 rows, fewer than one batch of 3" in error.what
    assert error.hint.endswith("--per-device-train-batch-size 2")


def test_summary(tmp_path: Path) -> None:
    """The summary counts rows per format and measures the longest one in characters of its messages."""
    long = json.dumps({"query": "q" * 10, "response": "字" * 90}, ensure_ascii=False)
    path = write(tmp_path / "x.jsonl", f"{ROW}\n{long}\n{ROW}\n")
    summary = check_rows(path, batch_size=1)
    assert (summary.rows, summary.checked, summary.bytes) == (3, 3, path.stat().st_size)
    assert summary.format_counts == {"alpaca": 2, "query-response": 1}
    assert (summary.longest_row_chars, summary.warnings) == (100, ())


def test_the_same_trouble_is_told_once(tmp_path: Path) -> None:
    """A thousand rows with one trouble give one warning: the first row and the count."""
    path = write(tmp_path / "x.jsonl", f"{ROW}\n" + '{"prompt": "p", "question": "q", "answer": "a"}\n' * 5)
    (warning,) = check_rows(path, batch_size=1).warnings
    assert warning.startswith("line 2 of ")
    assert warning.endswith("(5 of 6 rows)")


def test_mixed_formats_are_told(tmp_path: Path) -> None:
    """ms-swift picks one format a file and drops the rest, so a mixture is worth a warning."""
    path = write(tmp_path / "x.jsonl", f'{ROW}\n{{"messages": [{{"role": "user", "content": "q"}}]}}\n')
    (warning,) = check_rows(path, batch_size=1).warnings
    assert "mixed (alpaca, messages)" in warning


def test_beyond_the_limit_rows_are_spaced_evenly(tmp_path: Path) -> None:
    """A large file is sampled over its whole length: a bad row between two samples is not seen, one on them is."""
    lines = [ROW] * 100
    lines[75] = "not JSON"
    path = write(tmp_path / "x.jsonl", "\n".join(lines))
    summary = check_rows(path, batch_size=1, limit=3)
    assert (summary.rows, summary.checked) == (100, 3)
    with pytest.raises(UserError, match="line 76"):
        check_rows(path, batch_size=1, limit=4)


def test_content_hash_follows_the_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash is that of the content, not of the name; of a large file both ends and the size count."""

    def of(name: str, content: str) -> str:
        return check_rows(write(tmp_path / name, content), batch_size=1).content_hash

    assert of("a.jsonl", ROW) == of("b.jsonl", ROW) != of("c.jsonl", ROW + "\n")
    monkeypatch.setattr(objectives.rows, "WHOLE_HASH_BYTES", 64)
    first, last = '{"text": "first"}\n', '{"text": "last"}\n'
    whole = first + f"{ROW}\n" * 9 + last
    hashes = {
        of("a.jsonl", whole),
        of("b.jsonl", whole.replace("first", "FIRST")),
        of("c.jsonl", whole.replace("last", "LAST")),
        of("d.jsonl", first + f"{ROW}\n" * 10 + last),
    }
    assert len(hashes) == 4


def test_forked_readers_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Processes that inherit one open file each read the rows they asked for."""
    path = write(tmp_path / "x.jsonl", "\n".join(json.dumps({"text": str(i) * 50}) for i in range(500)))
    rows = open_rows(path)
    expected = [str(i) * 50 for i in range(500)]
    assert rows[0]["text"] == expected[0]  # the file is open before the fork
    children = []
    for order in (range(500), range(499, -1, -1)):
        child = os.fork()
        if child == 0:
            good = all(rows[i]["text"] == expected[i] for _ in range(5) for i in order)
            os._exit(0 if good else 1)
        children.append(child)
    assert [rows[i]["text"] for i in range(500)] == expected
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]


def test_rows_cross_to_a_spawned_worker(tmp_path: Path) -> None:
    """Rows that were already read from can be pickled; indices behave as a sequence's."""
    rows = open_rows(write(tmp_path / "x.json", f"[{ROW}, {ROW}]"))
    assert rows[-1] == OBJECT
    copy: Rows = pickle.loads(pickle.dumps(rows))
    assert list(copy) == [OBJECT, OBJECT]
    with pytest.raises(IndexError):
        copy[2]
