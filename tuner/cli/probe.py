"""`tuner probe`: three slices that say whether the loader is the bottleneck.

Runs in: parent. Its trials are the first ones of the study that `tuner run` goes on with.
*Not covered*: what it says (`tuner.probe`).
"""

from __future__ import annotations

import importlib

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
    from tuner.study import run_study

    says = importlib.import_module("tuner.probe")
    with open_work(asked, name=study, storage=storage) as work:
        run_study(work.session, work.setup.space, policy=work.policy, total=TRIALS, early_stop=False)
        data = work.data(raw=True)
    found = says.build_probe(data)
    if json:
        import json as codec
        from dataclasses import asdict

        typer.echo(codec.dumps(asdict(found), ensure_ascii=False))
    else:
        typer.echo(says.render_probe(found))
