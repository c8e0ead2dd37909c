"""The entry point: parses, calls one command, turns errors into three lines and an exit code.

Runs in: parent. The commands' modules are imported when they are called, so that `tuner --help` loads neither
optuna nor torch.
*Not covered*: what the commands do (one file each beside this one).
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import TyperException

from objectives.errors import EXIT_INTERRUPTED, EXIT_NO_RESULT, EXIT_USAGE, UserError
from tuner.cli import confirm, context, dashboard, doctor, export, probe, run, show

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

app.command("doctor")(doctor.doctor)
app.command("probe")(probe.probe)
app.command("run")(run.run)
app.command("show")(show.show)
app.command("confirm")(confirm.confirm)
app.command("export")(export.export)
app.command("dashboard")(dashboard.dashboard)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(version("tuner"))
        raise typer.Exit


@app.callback()
def root(
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show tracebacks and the phases of each slice.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Find the PyTorch DataLoader settings that keep one GPU busy while fine-tuning with LoRA."""
    context.verbose = verbose


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 ok, 1 no usable result, 2 usage, 3 host not fit, 4 storage, 130 interrupted.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    arguments = [dashed(a) for a in (sys.argv[1:] if argv is None else argv)]
    try:
        result = app(arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except UserError as error:
        return _say(str(error), error.exit_code)
    except TyperException as error:
        hint = "tuner --help" if not arguments or arguments[0].startswith("-") else f"tuner {arguments[0]} --help"
        if not error.format_message().startswith("Usage:"):
            return _say(str(UserError(error.format_message(), "the command line was not understood", hint)), EXIT_USAGE)
        return _say(error.format_message(), EXIT_USAGE)
    except KeyboardInterrupt:
        return _say("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away: no complaint at exit
        return 0
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        return _say(str(UserError(what, "this is a fault of tuner itself", "tuner -v ...")), EXIT_NO_RESULT)


def dashed(argument: str) -> str:
    """Return an option with dashes for underscores: `--max_length 2048`, as ms-swift writes it, works too."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _say(text: str, code: int) -> int:
    if context.verbose and sys.exc_info()[0] is not None:
        traceback.print_exc()
    print(text, file=sys.stderr)  # noqa: T201
    return code


def entry() -> None:
    """Run as a program."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
