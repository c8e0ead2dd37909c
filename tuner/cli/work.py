"""What `run`, `probe` and `confirm` have in common: a study opened with its objective, and confirming its best.

Runs in: parent. *Not covered*: the loop (`tuner.study`), the rounds (`tuner.confirm`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from objectives.errors import UserError
from objectives.host import HostInfo, find_gpu, identity, read_host
from objectives.schema import LoaderConfig
from objectives.score import ScorePolicy
from storage.records import StudyData, StudyRecord
from storage.store import open_store
from tuner.asked import run_options, score_policy, to_store, with_stored
from tuner.binding import bind, is_self_test
from tuner.cli import context
from tuner.cli.workload_options import Asked
from tuner.confirm import run_confirmation, why_ended
from tuner.confirm_wording import verdict_text
from tuner.confirmation import LOOKS, Judgement
from tuner.confirmed import last_finished
from tuner.doctor import busy
from tuner.export import defaults
from tuner.progress import Progress
from tuner.session import Session
from tuner.setup import Setup, default_name, set_up


@dataclass(frozen=True, slots=True)
class Work:
    """A study opened to be measured."""

    session: Session
    setup: Setup
    host: HostInfo
    policy: ScorePolicy

    @property
    def self_test(self) -> bool:
        """Return whether it is an A/A study."""
        return is_self_test(self.session.study)

    def data(self, *, raw: bool = False) -> StudyData:
        """Return what is stored of the study."""
        return self.session.store.data(self.session.study, raw=raw)


@contextmanager
def open_work(
    asked: Asked, *, name: str | None, storage: str, self_test: bool = False, quiet: bool = False
) -> Iterator[Work]:
    """Open the study that is asked for, new or stored, with its objective; close everything at the end.

    Options that were not given are the stored study's, if it is named.

    Args:
        asked: The shared options.
        name: Of the study; None for the default.
        storage: Path or URL of the database.
        self_test: Whether it is to be an A/A study; one that is stored stays what it is.
        quiet: Say nothing of values and bounds.

    Raises:
        UserError: If it cannot be measured here, or is bound to another workload or host.
    """
    values = with_stored(asked.values, asked.given, _peek(storage, name)[0] if name else None)
    options, policy, host = run_options(values), score_policy(values), read_host()
    name = name or default_name(options) + ("-aa" if self_test else "")
    stored, before = _peek(storage, name)
    default, baseline_of = defaults(values["target"])
    setup = set_up(options, host, default, before)
    with (
        open_store(storage, create=True) as store,
        closing(setup.objective),
        closing(Progress(verbose=context.verbose)) as progress,
    ):
        found = store.study(name)
        record = bind(
            found,
            name,
            setup.objective,
            setup.space,
            host=asdict(host),
            bound_host=identity(host) if setup.on_host else {},
            baseline_of=baseline_of,
            policy=policy,
            seed=options.workload.seed,
            options=to_store(values),
            self_test=self_test or (stored is not None and is_self_test(stored)),
        )
        if not quiet:
            progress.header(host, record, setup.space, store.url, found is None)
        if is_self_test(record):
            progress.note("A/A self-test: every trial has the baseline's settings; no verdict may be 'confirmed'")
        device = find_gpu(options.device, host) if setup.on_host else "cpu"
        checks = busy(host, device, storage) if setup.on_host else ()
        for warning in (*setup.warnings, *(f"{c.message}: {c.advice}" for c in checks)):
            progress.note(f"warning: {warning}")
        session = Session(store, record, setup.objective, progress, new=found is None, max_workers=host.usable_cpus)
        yield Work(session, setup, host, policy)


def confirm(work: Work, finalist: LoaderConfig, rounds: int = LOOKS[-1]) -> tuple[Judgement, str]:
    """Measure finalist and baseline again in turns and return the judgement with its line of text."""
    session = work.session
    study = session.ready()
    judgement = run_confirmation(
        session.store,
        study,
        session.objective,
        baseline=study.baseline,
        finalist=finalist,
        progress=session.progress,
        rounds=rounds,
    )
    last = work.data().confirmations[-1]
    return judgement, verdict_text(last, judgement, why_ended(last.slices), work.self_test)


def finalist_to_confirm(work: Work, data: StudyData, best: LoaderConfig | None) -> tuple[LoaderConfig | None, str]:
    """Return what is to be confirmed at the end of a run, or None and why there is nothing to confirm."""
    study = data.study
    if not work.setup.can_confirm:
        return None, "a recording cannot be measured again"
    if work.self_test:
        best = study.baseline
    elif best is None:
        return None, "no configuration is usable"
    elif best == study.baseline:
        return None, "the choice is the baseline itself"
    if last_finished(data, best) is not None:
        return None, "it was confirmed before (tuner confirm measures again)"
    if not any(t.config == study.baseline and t.state == "complete" and t.score and t.score.value for t in data.trials):
        return None, "the baseline was never measured: there is nothing to compare with"
    return best, ""


def _peek(storage: str, name: str | None) -> tuple[StudyRecord | None, Mapping[LoaderConfig, int]]:
    """Return the stored study and how often each configuration was measured; nothing where there is none.

    A database that cannot be read is told when it is opened to be written.
    """
    with suppress(UserError), open_store(storage, create=False) as store:
        study = None if name is None else store.study(name)
        if study is not None:
            data = store.data(study)
            configs: list[Any] = [t.config for t in data.trials if t.outcome is not None]
            configs += [s.config for c in data.confirmations for s in c.slices]
            return study, Counter(configs)
    return None, {}
