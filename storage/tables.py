"""Our tables, beside Optuna's in the same database: hosts, studies, confirmations, slices and their raw series.

Runs in: parent. Keyed by UUIDs that Optuna's studies and trials carry as attributes: Optuna gives the ids of deleted
rows out again, and a foreign key to its tables would make its own deletes fail without a word.
*Not covered*: turning values into rows (`storage.codec`), reading and writing them (`storage.queries`).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import ClassVar

from sqlalchemy import BigInteger, Connection, DateTime, Double, Engine, String, Text, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA_VERSION = 2
"""Raised with every change of a table; a lower one is migrated (`storage.migration`), a higher one is refused."""

UUID_LENGTH = 36


class Base(DeclarativeBase):
    """Maps floats to 8 bytes and integers to 64 bits on every database."""

    type_annotation_map: ClassVar = {float: Double, int: BigInteger, str: Text, datetime: DateTime}


class TunerSchema(Base):
    """One row: the version of these tables."""

    __tablename__ = "tuner_schema"
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class TunerHost(Base):
    """One machine as it was described, shared by the studies measured on it."""

    __tablename__ = "tuner_host"
    uuid: Mapped[str] = mapped_column(String(UUID_LENGTH), primary_key=True)
    info_json: Mapped[str]


class TunerStudy(Base):
    """One study: what it is bound to, and who works on it now. Times are UTC."""

    __tablename__ = "tuner_study"
    uuid: Mapped[str] = mapped_column(String(UUID_LENGTH), primary_key=True)
    name: Mapped[str] = mapped_column(String(512), index=True)
    host_uuid: Mapped[str] = mapped_column(String(UUID_LENGTH))
    objective: Mapped[str]
    identity_json: Mapped[str]
    fingerprint: Mapped[str]
    baseline_json: Mapped[str]
    baseline_of: Mapped[str]
    measured_knobs_json: Mapped[str]
    values_json: Mapped[str]
    reasons_json: Mapped[str]
    configurations: Mapped[int]
    seed: Mapped[int]
    created_at: Mapped[datetime]
    score_policy_json: Mapped[str]
    remember_json: Mapped[str]
    facts_json: Mapped[str]
    options_json: Mapped[str | None]
    """What the user asked for when it was made, so that nobody has to ask it again; version 1 did not keep it."""
    stopped: Mapped[str | None]
    spent_s: Mapped[float]
    max_workers: Mapped[int]
    max_prefetch: Mapped[int]
    owner_json: Mapped[str | None]
    """The lease of the process that works on it; None when it ended in order."""


class TunerSlice(Base):
    """One slice with its outcome: a trial's (`number` is Optuna's), a ceiling or a confirmation's (`number` counts)."""

    __tablename__ = "tuner_slice"
    uuid: Mapped[str] = mapped_column(String(UUID_LENGTH), primary_key=True)
    study_uuid: Mapped[str] = mapped_column(String(UUID_LENGTH), index=True)
    kind: Mapped[str]
    number: Mapped[int]
    finished_at: Mapped[datetime]
    counted: Mapped[bool]
    """False: lost through the host or the user; the trial fails and its configuration is measured again."""
    origin: Mapped[str | None]
    configuration: Mapped[str | None]
    num_workers: Mapped[int | None]
    prefetch_factor: Mapped[int | None]
    persistent_workers: Mapped[bool | None]
    pin_memory: Mapped[bool | None]
    score: Mapped[float | None]
    throughput: Mapped[float | None]
    penalties_json: Mapped[str | None]
    outcome: Mapped[str]
    """`measurement` or `crash`; the columns of the other are empty."""
    samples_per_s: Mapped[float | None]
    step_s: Mapped[float | None]
    tokens_per_s: Mapped[float | None]
    half_width_per_s: Mapped[float | None]
    wait_fraction: Mapped[float | None]
    h2d_fraction: Mapped[float | None]
    compute_s: Mapped[float | None]
    restart_s: Mapped[float | None]
    restart_fraction: Mapped[float | None]
    startup_s: Mapped[float | None]
    loader_batches_per_s: Mapped[float | None]
    cpu_busy_fraction: Mapped[float | None]
    own_cpu_fraction: Mapped[float | None]
    foreign_cpu_fraction: Mapped[float | None]
    cpu_pressure_fraction: Mapped[float | None]
    run_delay_fraction: Mapped[float | None]
    trainer_cpu_fraction: Mapped[float | None]
    gpu_util_fraction: Mapped[float | None]
    gpu_clock_hz: Mapped[float | None]
    gpu_other_processes: Mapped[int | None]
    gpu_peak_bytes: Mapped[int | None]
    peak_memory_fraction: Mapped[float | None]
    peak_shm_bytes: Mapped[int | None]
    batch_bytes: Mapped[int | None]
    worker_uss_bytes: Mapped[int | None]
    tokens: Mapped[int | None]
    timed_s: Mapped[float | None]
    log_bytes: Mapped[int | None]
    crash_frequency: Mapped[str | None]
    raw_json: Mapped[str | None]
    crash_kind: Mapped[str | None]
    blame: Mapped[str | None]
    phase: Mapped[str | None]
    message: Mapped[str | None]
    remedy: Mapped[str | None]
    exit_code: Mapped[int | None]
    signal: Mapped[str | None]
    exception: Mapped[str | None]
    log_tail: Mapped[str | None]
    wall_json: Mapped[str | None]
    confirmation_uuid: Mapped[str | None] = mapped_column(String(UUID_LENGTH))
    """Only slices of kind `confirmation` have this and the next two."""
    round: Mapped[int | None]
    arm: Mapped[str | None]


class TunerConfirmation(Base):
    """One interleaved re-measurement; its slices are in `tuner_slice`. Times are UTC."""

    __tablename__ = "tuner_confirmation"
    uuid: Mapped[str] = mapped_column(String(UUID_LENGTH), primary_key=True)
    study_uuid: Mapped[str] = mapped_column(String(UUID_LENGTH), index=True)
    number: Mapped[int]
    """Counts those of a study."""
    baseline_json: Mapped[str]
    finalist_json: Mapped[str]
    began_at: Mapped[datetime]
    judgement_json: Mapped[str | None]
    """None: it was not finished."""


class TunerStep(Base):
    """One timed optimizer step of a slice, as `objectives.schema.StepSeries` has it."""

    __tablename__ = "tuner_step"
    slice_uuid: Mapped[str] = mapped_column(String(UUID_LENGTH), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    step_s: Mapped[float | None]
    restart_s: Mapped[float | None]
    data_wait_s: Mapped[float | None]
    h2d_s: Mapped[float | None]
    samples: Mapped[int | None]
    tokens: Mapped[int | None]
    run_delay_s: Mapped[float | None]
    trainer_cpu_s: Mapped[float | None]


class TunerBatch(Base):
    """One batch of a slice in order of delivery, as `objectives.schema.BatchSeries` has it."""

    __tablename__ = "tuner_batch"
    slice_uuid: Mapped[str] = mapped_column(String(UUID_LENGTH), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    step: Mapped[int | None]
    worker: Mapped[int | None]
    service_start_s: Mapped[float | None]
    service_end_s: Mapped[float | None]
    requested_s: Mapped[float | None]
    got_s: Mapped[float | None]


class TunerLoad(Base):
    """One look at the host during a slice, as `objectives.schema.LoadSample` has it."""

    __tablename__ = "tuner_load"
    slice_uuid: Mapped[str] = mapped_column(String(UUID_LENGTH), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    t_s: Mapped[float]
    cpu_busy_fraction: Mapped[float | None]
    cpu_pressure_fraction: Mapped[float | None]
    memory_fraction: Mapped[float | None]
    shm_used_bytes: Mapped[int | None]
    gpu_util_fraction: Mapped[float | None]
    gpu_memory_bytes: Mapped[int | None]
    gpu_clock_hz: Mapped[float | None]
    gpu_other_processes: Mapped[int | None]


def schema_version(connection: Connection, tables: Collection[str]) -> int | None:
    """Return the version of our tables in this database; None if they are not, or not all, there.

    Args:
        connection: An open connection; only read from.
        tables: Names of the tables in the database.
    """
    if TunerSchema.__tablename__ not in tables:
        return None
    return connection.scalar(select(TunerSchema.version))


def create_tables(engine: Engine) -> None:
    """Create what is missing; the version is written last, so that half a set of tables is never taken for one."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        if connection.scalar(select(TunerSchema.version)) is None:
            connection.execute(insert(TunerSchema).values(version=SCHEMA_VERSION))
