"""Maps one row to chat messages, field by field as ms-swift 4.x does.

Runs in: parent (pre-flight) and the child's workers (every row). Standard library only.
*Not covered*: pictures, audio and video (a warning says so), tool definitions, preference pairs, the chat template.

The rules are those of ms-swift's `AutoPreprocessor` (swift/dataset/preprocessor/core.py), with two differences. It
picks one format for a whole file, from the columns of all rows; here each row is taken for itself, so that a worker
needs no other row. And a row that gives no message is an error here, where ms-swift drops it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

MESSAGES_FIELDS = ("messages", "conversation", "conversations")
SYSTEM_FIELDS = ("system", "system_prompt")
QUERY_FIELDS = ("query", "prompt", "input", "instruction", "question", "problem")
RESPONSE_FIELDS = (
    "response", "answer", "output", "targets", "target", "answer_key", "answers", "solution", "text", "completion",
    "content",
)  # fmt: skip
HISTORY_FIELD = "history"
UNREAD_FIELDS = ("images", "image", "videos", "video", "audios", "audio", "tools")
"""Fields ms-swift would read and this does not: only text is measured."""

USER_ROLES = ("user", "human")
ASSISTANT_ROLES = ("assistant", "gpt", "bot")
CALL_ROLES = ("tool_call", "function_call")
ANSWER_ROLES = ("tool", "tool_response", "function_response", "observation", "observations")

Role = Literal["system", "user", "assistant"]
RowFormat = Literal["messages", "sharegpt", "alpaca", "query-response"]
Row = Mapping[str, Any]


class Message(TypedDict):
    """One turn of a chat, as chat templates take it."""

    role: Role
    content: str


class RowError(ValueError):
    """A row that gives no messages; says why, without the row's number."""


def known_fields() -> tuple[str, ...]:
    """Return the names of the fields that are read, most explicit first."""
    return (*MESSAGES_FIELDS, *QUERY_FIELDS, *RESPONSE_FIELDS, HISTORY_FIELD, *SYSTEM_FIELDS)


def row_format(row: Row) -> RowFormat | None:
    """Return how a row is read, or None if it has no field that could hold a user's or an assistant's turn.

    The names of `messages` fields and alpaca's pair count as written; all others in any case, as in ms-swift.
    """
    named = [field for field in MESSAGES_FIELDS if field in row]
    if named:
        turns = row[named[0]]
        first = turns[0] if isinstance(turns, list) and turns else None
        return "sharegpt" if isinstance(first, dict) and not {"role", "content"} & set(first) else "messages"
    if "instruction" in row and "input" in row:
        return "alpaca"
    if _matches(row, QUERY_FIELDS) or _matches(row, RESPONSE_FIELDS) or HISTORY_FIELD in row:
        return "query-response"
    return None


def to_messages(row: Row) -> list[Message]:
    """Return the turns of a row, the system turn first if there is one. Placeholders like {{NAME}} stay as they are.

    Two fields that mean the same (`prompt` and `question`) are both ignored, unless one has the exact name
    (`query`, `response`, `system`, `messages`), which then wins: `row_warnings` tells.

    Raises:
        RowError: If the row has no turn of a user or an assistant, or one that is not text.
    """
    kind = row_format(row)
    if kind is None:
        raise RowError("it has none of the known fields")
    messages = _query_response(row, kind) if kind in ("alpaca", "query-response") else _turns(row)
    if all(message["role"] == "system" for message in messages):
        raise RowError("it has no text of a user or an assistant")
    return messages


def row_warnings(row: Row) -> tuple[str, ...]:
    """Return what a user would not expect of this row; the same text for every row with the same trouble."""
    kind = row_format(row)
    groups: list[tuple[str, Sequence[str]]] = [("system", SYSTEM_FIELDS)]
    if kind in ("messages", "sharegpt"):
        groups.append(("messages", MESSAGES_FIELDS))
    if kind == "query-response":
        groups.append(("query", QUERY_FIELDS))
    if kind == "query-response" or (kind == "alpaca" and row.get("output") is None):
        groups.append(("response", RESPONSE_FIELDS))
    warnings = []
    for name, aliases in groups:
        found = _matches(row, aliases)
        if len(found) > 1 and name not in row:
            warnings.append(
                f"fields {' and '.join(found)} all mean {name}: ms-swift ignores them all, and so does this"
            )
    unread = [field for field in UNREAD_FIELDS if row.get(field)]
    if unread:
        warnings.append(f"{' and '.join(unread)} not read: only the text of the messages is loaded and measured")
    return tuple(warnings)


def _matches(row: Row, aliases: Sequence[str]) -> list[str]:
    """Return the row's fields, in any case, that are one of the aliases; in the order of the aliases."""
    by_lower = {field.lower(): field for field in row}
    return [by_lower[alias] for alias in aliases if alias in by_lower]


def _column(row: Row, name: str, aliases: Sequence[str]) -> Any:
    """Return the value of the field of that name, or of its only alias; None if several share the meaning."""
    if name in row:
        return row[name]
    found = _matches(row, aliases)
    return row[found[0]] if len(found) == 1 else None


def _query_response(row: Row, kind: RowFormat) -> list[Message]:
    system = _column(row, "system", SYSTEM_FIELDS)
    response = _column(row, "response", RESPONSE_FIELDS)
    if kind == "alpaca":
        instruction, extra = row["instruction"], row["input"]
        query = f"{instruction}\n{extra}" if instruction and extra else instruction or extra
        if query is None:
            raise RowError("its instruction and input are both null")
        response = response if row.get("output") is None else row["output"]
    else:
        query = _column(row, "query", QUERY_FIELDS)
    if isinstance(response, list):  # several right answers: ms-swift takes the first
        response = response[0] if response else None
    history = row.get(HISTORY_FIELD) or []
    if isinstance(history, str):
        history = _parsed(history, HISTORY_FIELD)
    messages: list[Message] = [] if system is None else [{"role": "system", "content": _text(system)}]
    for pair in [*_list(history, HISTORY_FIELD), [query, response]]:
        if not isinstance(pair, list | tuple) or len(pair) < 2:
            raise RowError("its history is not a list of [query, response] pairs")
        if pair[0] is not None:
            messages.append({"role": "user", "content": _text(pair[0])})
        if pair[1] is not None:
            messages.append({"role": "assistant", "content": _text(pair[1])})
    return messages


def _turns(row: Row) -> list[Message]:
    turns = _column(row, "messages", MESSAGES_FIELDS)
    if isinstance(turns, str):
        turns = _parsed(turns, "messages")
    turns = _list(turns or [], "messages")
    if not turns:
        raise RowError("its messages are empty")
    if not all(isinstance(turn, dict) for turn in turns):
        raise RowError("its messages are not objects")
    system = _column(row, "system", SYSTEM_FIELDS)
    pairs = not {"role", "from", "content", "value"} & set(turns[0])
    messages: list[Message] = []
    if system is not None and (pairs or _first(turns[0], ("from", "role")) != "system"):
        messages.append({"role": "system", "content": _text(system)})
    for turn in turns:
        if pairs:
            messages.append({"role": "user", "content": _text(_first(turn, USER_ROLES))})
            messages.append({"role": "assistant", "content": _text(_first(turn, ASSISTANT_ROLES))})
        else:
            messages += _turn(turn)
    return messages


def _turn(turn: Row) -> list[Message]:
    """Return one turn; calls of tools become turns of their own, in the form Qwen2.5's template gives them."""
    written = _first(turn, ("from", "role"))
    content = _first(turn, ("value", "content"))
    role = written.replace("-", "_") if isinstance(written, str) else written
    calls = turn.get("tool_calls") if role == "assistant" else None
    if calls:
        said: list[Message] = [{"role": "assistant", "content": _text(content)}] if content else []
        functions = [call.get("function", call) for call in _list(calls, "tool_calls") if isinstance(call, dict)]
        return said + [{"role": "assistant", "content": _call(function)} for function in functions]
    if role == "system":
        return [{"role": "system", "content": _text(content)}]
    if role in USER_ROLES:
        return [{"role": "user", "content": _text(content)}]
    if role in ASSISTANT_ROLES:
        return [{"role": "assistant", "content": _text(content)}]
    if role in CALL_ROLES:
        return [{"role": "assistant", "content": _call(content)}]
    if role in ANSWER_ROLES:
        return [{"role": "user", "content": _answer(content)}]
    raise RowError(f"one of its messages has the unknown role {written!r}")


def _call(function: Any) -> str:
    return f"<tool_call>\n{function if isinstance(function, str) else _json(function)}\n</tool_call>"


def _answer(content: Any) -> str:
    return f"<tool_response>\n{_json(content) if isinstance(content, dict) else _text(content)}\n</tool_response>"


def _text(value: Any) -> str:
    """Return a value as text: numbers as JSON writes them, content blocks joined, media as their placeholder."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return _json(value)
    if isinstance(value, list) and all(isinstance(block, dict) and "type" in block for block in value):
        return "".join(_block(block) for block in value)
    raise RowError("one of its turns is missing or null" if value is None else "one of its turns is not text")


def _block(block: Row) -> str:
    kind = block["type"]
    if kind == "text":
        return _text(block.get("text"))
    if kind == "tool_use":
        return _call({"name": block.get("name"), "arguments": block.get("input", {})})
    if kind == "tool_result":
        return _answer(block.get("content", ""))
    return f"<{str(kind).removesuffix('_url')}>"


def _first(turn: Row, keys: Sequence[str]) -> Any:
    return next((turn[key] for key in keys if key in turn), None)


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise RowError(f"its {field} field is not a list")
    return list(value)


def _parsed(text: str, field: str) -> Any:
    """Return the list that a field holds as text: JSON, or Python's notation as in older data sets."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise RowError(f"its {field} field is text, but not a list written as text") from None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
