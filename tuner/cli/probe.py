"""`tuner probe`: three slices that say whether the loader is the bottleneck.

Runs in: parent. Its trials are the first ones of the study that `tuner run` goes on with.
*Not covered*: what it says (`tuner.probe`).
"""

from __future__ import annotations

import typer

from tuner.cli.options import DEFAULT_STORAGE, JsonOption, NewStudyOption, StorageOption
from tuner.cli.workload_options import Asked, measures

TRIALS = 3


@measures
def probe(
    *,
    asked: Asked,
    study: NewStudyOption = None,
    storage: StorageOption = DEFAULT_STORAGE,
    json: JsonOption = False,
) -> None:
    """Measure three slices and say whether data, compute or launches are the limit; `tuner run` goes on from there.

    Example: tuner probe --model qwen2.5-7b --dataset train.jsonl
    """
    from tuner.cli.work import open_work
    from tuner.probe import build_probe, probe_json, render_probe
    from tuner.study import run_study

    with open_work(asked, name=study, storage=storage) as work:
        run_study(work.session, work.setup.space, policy=work.policy, total=TRIALS, early_stop=False)
        data = work.data(raw=True)
        command = ["tuner", "run", "--study", data.study.name]
        found = build_probe(
            data, work.setup.space, command=command if storage == DEFAULT_STORAGE else [*command, "--storage", storage]
        )
    typer.echo(probe_json(found) if json else render_probe(found))
