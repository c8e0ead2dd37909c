"""The error for a workload that does not train at all: what could not be done, and what to try.

Runs in: parent. Pure. *Not covered*: crashes of a configuration, which are values (`objectives.crash`).
"""

from __future__ import annotations

from objectives.embedded import preset_names
from objectives.errors import EXIT_NO_RESULT, UserError
from objectives.schema import Crash, Workload


def cannot_train(crash: Crash, work: Workload, python: str) -> UserError:
    """Return the error for a workload that does not even train from memory.

    Args:
        crash: What ended it.
        work: What was to be trained.
        python: Interpreter of the child.
    """
    said = [line.strip() for line in crash.log_tail.strip().splitlines() if line.strip()][-2:]
    what, hint = {
        "start": (f"{python} cannot run the slice", "--python names Python 3.11 or newer with torch and peft"),
        "import": (f"{python} cannot import the trainer's packages", f"{python} -m pip install torch peft"),
        "load": (f"model '{work.model}' cannot be loaded", f"tuner run --model {preset_names()[0]}"),
        "touch": (f"data set '{work.dataset}' cannot be tokenised", "tuner run --tokenizer DIR"),
    }.get(crash.phase, (f"model '{work.model}' cannot be trained here", "tuner doctor"))
    why = f"{crash.message}: nothing was measured" if crash.kind != "exception" else "nothing was measured"
    return UserError(what, "\n  ".join([why, *said]), hint, exit_code=EXIT_NO_RESULT)
