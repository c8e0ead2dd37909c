"""Rows become the messages ms-swift makes of them."""

import pytest

from objectives.messages import RowError, known_fields, row_format, row_warnings, to_messages


def turns(row: dict[str, object]) -> list[tuple[str, str]]:
    """Return the messages of a row as pairs of role and content."""
    return [(message["role"], message["content"]) for message in to_messages(row)]


@pytest.mark.parametrize(
    ("row", "kind", "expected"),
    [
        (
            {"instruction": "Add.", "input": "1 + 1", "output": "2"},
            "alpaca",
            [("user", "Add.\n1 + 1"), ("assistant", "2")],
        ),
        ({"instruction": "Hi", "input": "", "output": "Ho"}, "alpaca", [("user", "Hi"), ("assistant", "Ho")]),
        ({"instruction": "Hi", "output": "Ho"}, "query-response", [("user", "Hi"), ("assistant", "Ho")]),
        (
            {"system": "S", "history": [["a", "b"]], "query": "c", "response": "d"},
            "query-response",
            [("system", "S"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")],
        ),
        ({"history": "[['a', 'b']]"}, "query-response", [("user", "a"), ("assistant", "b")]),
        ({"prompt": "p", "completion": "c"}, "query-response", [("user", "p"), ("assistant", "c")]),
        ({"Question": "q", "Answer": "a"}, "query-response", [("user", "q"), ("assistant", "a")]),
        ({"problem": "p", "solution": ["s1", "s2"]}, "query-response", [("user", "p"), ("assistant", "s1")]),
        ({"text": "t"}, "query-response", [("assistant", "t")]),
        ({"question": "6 x 7?", "answer": 42}, "query-response", [("user", "6 x 7?"), ("assistant", "42")]),
        (
            {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "system": "S"},
            "messages",
            [("system", "S"), ("user", "q"), ("assistant", "a")],
        ),
        (
            {"messages": [{"role": "system", "content": "own"}, {"role": "user", "content": "q"}], "system": "S"},
            "messages",
            [("system", "own"), ("user", "q")],
        ),
        (
            {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
            "sharegpt",
            [("user", "q"), ("assistant", "a")],
        ),
        (
            {"conversation": [{"human": "q", "assistant": "a"}, {"human": "r", "assistant": "b"}], "system": "S"},
            "sharegpt",
            [("system", "S"), ("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b")],
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "what"}, {"type": "image"}]}]},
            "messages",
            [("user", "what<image>")],
        ),
        (
            {"query": "{{NAME}}?", "response": "By {{AUTHOR}}"},
            "query-response",
            [("user", "{{NAME}}?"), ("assistant", "By {{AUTHOR}}")],
        ),
    ],
)
def test_every_format_ms_swift_reads(row: dict[str, object], kind: str, expected: list[tuple[str, str]]) -> None:
    """Each accepted format gives ms-swift's messages, placeholders untouched."""
    assert (row_format(row), turns(row)) == (kind, expected)


def test_tool_calls_become_the_text_qwen_trains_on() -> None:
    """A call and its result are turns of plain text in the form of Qwen2.5's template."""
    call = {"function": {"name": "add", "arguments": {"a": 1}}}
    row = {
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "2"},
        ]
    }
    assert turns(row)[1:] == [
        ("assistant", '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'),
        ("user", "<tool_response>\n2\n</tool_response>"),
    ]


def test_two_fields_of_one_meaning_are_both_ignored_and_told() -> None:
    """`prompt` beside `question` loses the user's turn, as in ms-swift, and a warning names both."""
    row = {"prompt": "p", "question": "q", "answer": "a"}
    assert turns(row) == [("assistant", "a")]
    (warning,) = row_warnings(row)
    assert "prompt and question" in warning


@pytest.mark.parametrize(
    "row",
    [
        {"query": "q", "question": "other", "response": "a"},
        {"instruction": "q", "input": "", "output": "a", "text": "all of it"},
    ],
)
def test_the_exact_name_wins_without_a_warning(row: dict[str, object]) -> None:
    """A field of the exact name beats its aliases, and alpaca's own fields are no clash."""
    assert (turns(row), row_warnings(row)) == ([("user", "q"), ("assistant", "a")], ())


def test_pictures_are_not_read_and_that_is_told() -> None:
    """A row with pictures is measured as text alone, so it must say so; an empty list is no picture."""
    (warning,) = row_warnings({"query": "<image>what?", "response": "a cat", "images": ["cat.jpg"], "audios": []})
    assert warning.startswith("images not read")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": 1, "label": 2}, "none of the known fields"),
        ({"messages": []}, "empty"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "narrator"),
        ({"messages": [{"role": "user", "content": None}]}, "null"),
        ({"messages": "no list at all"}, "not a list"),
        ({"query": {"nested": 1}}, "not text"),
        ({"query": None, "response": None}, "no text"),
        ({"system": "S", "prompt": "p", "question": "q"}, "no text"),
        ({"history": [["only one"]], "query": "q"}, "pairs"),
        ({"instruction": None, "input": None, "output": "a"}, "null"),
    ],
)
def test_rows_without_messages_say_why(row: dict[str, object], reason: str) -> None:
    """A row ms-swift would drop is an error that says what is wrong with it."""
    with pytest.raises(RowError, match=reason):
        to_messages(row)


def test_mapping_leaves_the_row_alone() -> None:
    """A row may be mapped twice: nothing in it is changed."""
    row = {"history": [["a", "b"]], "query": "c", "response": ["d"]}
    assert (turns(row), row) == (turns(row), {"history": [["a", "b"]], "query": "c", "response": ["d"]})


@pytest.mark.parametrize("field", known_fields())
def test_every_known_field_is_recognised(field: str) -> None:
    """The fields named to the user are those that are read; a system prompt alone is no row."""
    assert (row_format({field: "x"}) is None) == field.startswith("system")
