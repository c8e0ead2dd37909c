"""`tuner run`: search for the best settings, and confirm them.

Runs in: parent. *Not covered*: the loop (`tuner.study`), the objective (`tuner.setup`), the rounds (`tuner.confirm`).
"""

from __future__ import annotations

from typing import Annotated

import typer

from tuner.cli.options import DEFAULT_STORAGE, JsonOption, NewStudyOption, StorageOption
from tuner.cli.workload_options import Asked, measures


@measures
def run(
    *,
    trials: Annotated[int, typer.Option(help="Trials the study is to have in all; a study goes on up to it.")] = 30,
    asked: Asked,
    study: NewStudyOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    confirm: Annotated[
        bool, typer.Option("--confirm/--no-confirm", help="Measure the best against the baseline again, in turns.")
    ] = True,
    early_stop: Annotated[
        bool, typer.Option("--early-stop/--no-early-stop", help="End before the last trial if nothing can be gained.")
    ] = True,
    aa: Annotated[
        bool, typer.Option("--aa", help="A/A self-test: every trial is the baseline; nothing may be confirmed.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Search for the best settings; run again with the same study name, it goes on where it stopped.

    Example: tuner run --trials 30 --model qwen2.5-7b --dataset train.jsonl
    """
    from objectives.errors import EXIT_INTERRUPTED, EXIT_NO_RESULT, UserError
    from tuner.cli.show import print_report
    from tuner.cli.work import confirm as confirm_finalist
    from tuner.cli.work import finalist_to_confirm, open_work
    from tuner.export import with_flags
    from tuner.render import to_markdown
    from tuner.report import build_report
    from tuner.study import run_study

    if trials < 1:
        raise UserError(f"--trials {trials}", "a study needs at least one trial", "tuner run --trials 30")
    interrupted = failed = False
    with open_work(asked, name=study, storage=storage, self_test=aa) as work:
        session, progress = work.session, work.session.progress
        count = len(work.setup.space.configurations)
        if trials > count and not work.self_test:
            progress.note(f"{trials} trials, {count} configurations: some are measured more than once")
        try:
            data = run_study(
                session,
                work.setup.space,
                policy=work.policy,
                total=trials,
                early_stop=early_stop,
                choose_length="slice_seconds" not in asked.given,
            )
            if confirm:
                best = build_report(data).best
                finalist, why = finalist_to_confirm(work, data, best.config if best else None)
                if finalist is None:
                    progress.labelled("confirm", f"skipped: {why}")
                else:
                    judgement, verdict = confirm_finalist(work, finalist)
                    progress.labelled("verdict", verdict)
                    failed = work.self_test and judgement.verdict in ("confirmed", "regressed")
        except KeyboardInterrupt:
            if session.new:
                raise  # nothing was measured yet, not even begun
            interrupted = True
        progress.close()
        data = work.data(raw=True)
        if not interrupted or any(t.state == "complete" for t in data.trials):
            report = with_flags(build_report(data, storage=None if storage == DEFAULT_STORAGE else storage), data)
            session.store.set_note(session.study, to_markdown(report))
            print_report(report, json)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_NO_RESULT if failed else 0
