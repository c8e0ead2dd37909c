"""What `tuner -v` set, for the commands.

Runs in: parent. *Not covered*: everything else: options are passed as arguments.
"""

verbose = False
"""Show tracebacks and the phases of each slice."""
