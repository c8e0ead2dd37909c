"""Options that several commands share, and what they are turned into.

Runs in: parent. *Not covered*: options of one command alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from objectives.errors import EXIT_NO_RESULT, UserError

if TYPE_CHECKING:
    from storage.records import StudyRecord
    from storage.store import Store

StorageOption = Annotated[
    str,
    typer.Option(help="Database of the studies: a file, or an SQLAlchemy URL that Optuna accepts.", metavar="PATH|URL"),
]
StudyOption = Annotated[str | None, typer.Option(help="Name of the study. Default: the latest one.", metavar="NAME")]
NewStudyOption = Annotated[
    str | None,
    typer.Option(
        help="Name of the study; options that are not given are those it was made with. Default: the data set's name.",
        metavar="NAME",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")]
Target = Literal["swift", "swift3", "swift2"]
TargetOption = Annotated[
    Target,
    typer.Option(help="Whose flags: swift (ms-swift 4.x), swift3 (3.x) or swift2 (2.x).", metavar="TARGET"),
]
DEFAULT_STORAGE = "tuner.db"


def find_study(store: Store, name: str | None, command: str) -> StudyRecord:
    """Return the named study, or the latest one, which is then named on stderr.

    Raises:
        UserError: If there is no such study.
    """
    studies = store.studies()
    if name is None:
        if not studies:
            raise UserError(
                f"no study in {store.url}", f"there is nothing to {command} yet", "tuner run", exit_code=EXIT_NO_RESULT
            )
        typer.echo(f"study {studies[-1].name} (the latest)", err=True)
        return studies[-1]
    for study in studies:
        if study.name == name:
            return study
    known = ", ".join(s.name for s in studies) or "none"
    raise UserError(
        f"no study '{name}' in {store.url}",
        f"studies there: {known}",
        f"tuner {command} --study {studies[-1].name}" if studies else "tuner run",
        exit_code=EXIT_NO_RESULT,
    )
