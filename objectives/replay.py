"""The objective that plays back a recorded table: no training, no waiting, the same answer every time.

Runs in: parent. Its space is the table's rows, so a search over it shows what the score and the search make of
numbers that are known. *Not covered*: the file formats (`objectives.recording`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from objectives.protocol import Choices, JsonScalar, Prepared, Progress
from objectives.recording import read_recording
from objectives.schema import KNOBS, LoaderConfig, Measurement, Outcome

EXAMPLE = Path(__file__).parent / "assets" / "recordings" / "guide-4090d.csv"
"""A public tuning guide's table: Qwen2.5-7B-Instruct, LoRA with ms-swift on an RTX 4090D."""


class ReplayObjective:
    """Serves recorded outcomes. The file is read once, here, so that a bad one is refused before a study exists.

    Args:
        recording: A CSV table or JSON lines.
        workload: Which workload to take from JSON lines that hold several.
        measured_before: How often each configuration was measured in earlier runs of the study; a resumed study
            then goes on with the next repeat.

    Raises:
        objectives.errors.UserError: If the file cannot be used.
    """

    name = "replay"

    def __init__(
        self,
        recording: str | Path,
        *,
        workload: str | None = None,
        measured_before: Mapping[LoaderConfig, int] | None = None,
    ) -> None:
        self.recording = read_recording(Path(recording), workload)
        self._measured = dict(measured_before or {})

    def identity(self) -> Mapping[str, JsonScalar]:
        """Return the content's hash, the same for any order of rows, place or name of the file."""
        return {"recording.content": self.recording.content_hash, "recording.rows": self.recording.rows}

    def choices(self) -> Choices:
        """Return the rows as the whole space, the row with the fewest workers as the baseline.

        `values` holds the knobs the table has a column for. Rows may be fixed pairs of workers and prefetch, so the
        values are what occurs, not a grid.
        """
        configurations = tuple(self.recording.outcomes)
        values: dict[str, tuple[int | bool, ...]] = {}
        reasons: dict[str, str] = {}
        for knob in KNOBS:
            found = sorted({getattr(c, knob) for c in configurations if getattr(c, knob) is not None})
            if knob in self.recording.knobs and found:
                values[knob] = tuple(found)
                reasons[knob] = f"recorded in {self.recording.name}"
            else:
                reasons[knob] = f"not recorded in {self.recording.name}: held, not measured"
        return Choices(values, reasons, configurations, configurations[0])

    def prepare(self, remembered: Mapping[str, JsonScalar], progress: Progress) -> Prepared:
        """Return the recorded ceilings, in the order of the file; a table has none."""
        progress(f"recording: {self.recording.rows} rows")
        return Prepared(self.recording.ceilings, facts={"recording": self.recording.name})

    def measure(self, config: LoaderConfig, progress: Progress) -> Outcome:
        """Return the next repeat of a configuration; after the last comes the first again.

        Raises:
            ValueError: If the configuration was not recorded.
        """
        if config not in self.recording.outcomes:
            raise ValueError(f"config must be one of the recorded configurations but got {config.key!r}.")
        repeats = self.recording.outcomes[config]
        n = self._measured.get(config, 0)
        self._measured[config] = n + 1
        progress(f"repeat {n % len(repeats) + 1}/{len(repeats)}")
        return repeats[n % len(repeats)]

    def ceiling(self, progress: Progress) -> Measurement | None:
        """Return None: a recording has no more ceilings than it has."""
        return None

    def close(self) -> None:
        """Release nothing: the file was closed after reading."""
