"""Entry of the child: `python -P -m objectives.slice REQUESTS_FD EVENTS_FD PARENT_PID`.

Runs in: child. *Not covered*: what it does (`objectives.slice.serve`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process when the parent ends, however it ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # it went before the kernel was told
        os._exit(1)


def main(argv: list[str]) -> int:
    """Serve the parent over the two inherited pipes; return the exit status."""
    requests_fd, events_fd, parent_pid = (int(a) for a in argv)
    die_with(parent_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which decides
    from objectives.slice.serve import serve

    return serve(requests_fd, events_fd)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # nothing of PyTorch's clean-up at exit may delay or hang the end
