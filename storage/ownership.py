"""Lets one process at a time work on a study: two would disturb each other's measurements.

Runs in: parent. *Not covered*: how a process is told from another (`storage.lease`).
"""

from __future__ import annotations

from sqlalchemy import Engine, select, update

from objectives.errors import EXIT_STORAGE, UserError
from storage import lease
from storage.lease import Lease
from storage.queries import update_study
from storage.tables import TunerStudy


def claim(engine: Engine, uuid: str) -> Lease | None:
    """Make this process the owner of a study; return the other owner instead if there is one and it lives.

    Two processes cannot both succeed: the old owner is compared and replaced in one statement.
    """
    while True:
        with engine.connect() as connection:
            held = connection.scalar(select(TunerStudy.owner_json).where(TunerStudy.uuid == uuid))
        owner = lease.from_json(held)
        if lease.held_by_another(owner):
            return owner
        unchanged = TunerStudy.owner_json.is_(None) if held is None else TunerStudy.owner_json == held
        mine = lease.to_json(lease.own())
        with engine.begin() as connection:
            swap = update(TunerStudy).where(TunerStudy.uuid == uuid, unchanged).values(owner_json=mine)
            if connection.execute(swap).rowcount == 1:
                return None


def release(engine: Engine, uuid: str) -> None:
    """Give up a study, if this process owns it."""
    with engine.connect() as connection:
        held = connection.scalar(select(TunerStudy.owner_json).where(TunerStudy.uuid == uuid))
    owner = lease.from_json(held)
    if owner is not None and lease.is_own(owner):
        update_study(engine, uuid, owner_json=None)


def busy(name: str, owner: Lease) -> UserError:
    """Return the error of a study that a living process works on."""
    here = owner.boot == lease.own().boot
    return UserError(
        f"another tuner run (pid {owner.pid}{'' if here else f' on {owner.host}'}) is working on study '{name}'",
        "two at once would disturb each other's measurements",
        f"kill -INT {owner.pid}" if here else f"ssh {owner.host} kill -INT {owner.pid}",
        exit_code=EXIT_STORAGE,
    )
