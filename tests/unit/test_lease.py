"""A lease tells a living owner from a dead one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from storage import lease


def a_child() -> tuple[subprocess.Popen[bytes], lease.Lease]:
    """Return a process that waits, and its lease."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    started = lease._started_ticks(process.pid)
    assert started is not None
    return process, replace(lease.own(), pid=process.pid, started_ticks=started)


def test_a_process_is_alive_until_it_is_killed() -> None:
    """A running process is alive, and another's; a zombie that nobody waited for is dead already, as is one gone."""
    process, held = a_child()
    try:
        assert lease.held_by_another(held)
    finally:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not lease.alive(held)
    process.communicate()
    assert not lease.alive(held)


def test_a_reused_pid_is_another_process() -> None:
    """The same pid with another start is not the owner."""
    mine = lease.own()
    assert lease.alive(mine)
    assert lease.is_own(mine)
    assert not lease.alive(replace(mine, started_ticks=mine.started_ticks - 1))


def test_other_boots_and_machines() -> None:
    """A lease from before a reboot is dead; one of another machine is believed for half an hour."""
    mine = lease.own()
    assert not lease.alive(replace(mine, boot="earlier"))
    far = replace(mine, boot="other", host="other")
    assert lease.alive(far)
    assert not lease.alive(replace(far, written_at_s=far.written_at_s - 2 * lease.FOREIGN_LEASE_S))


def test_a_lease_survives_attributes_and_a_column() -> None:
    """A lease comes back equal both ways; its attributes are scalars; a trial without one has none."""
    mine = lease.own()
    attributes = lease.to_attributes(mine)
    assert lease.from_attributes({"origin": "seed", **attributes}) == mine
    assert lease.from_json(lease.to_json(mine)) == mine
    assert {type(value) for value in attributes.values()} <= {str, int, float}
    assert lease.from_attributes({"origin": "seed"}) is None
