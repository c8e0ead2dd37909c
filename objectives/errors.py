"""The error a user sees: what, why it matters, and a command to paste.

Runs in: parent. *Not covered*: how it is printed (`tuner.cli.main`).
"""

from __future__ import annotations

EXIT_NO_RESULT = 1
EXIT_USAGE = 2
EXIT_HOST = 3
EXIT_STORAGE = 4
EXIT_INTERRUPTED = 130


class UserError(Exception):
    """Something the user can mend; printed in three parts without a traceback.

    Args:
        what: What is wrong, with the value.
        why: Why it matters, or the likely cause.
        hint: One command or option to paste; empty if there is none.
        exit_code: 1 no usable result, 2 usage, 3 host not fit, 4 storage.
    """

    def __init__(self, what: str, why: str, hint: str = "", *, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        lines = [f"error: {self.what}", f"  {self.why}"]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)
