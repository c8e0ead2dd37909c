"""`tuner dashboard`: open the studies in optuna-dashboard.

Runs in: parent. The dashboard has no authentication and can delete studies, so it listens on the loopback unless
told otherwise. *Not covered*: what it shows (`storage.attributes`).
"""

from __future__ import annotations

import socketserver
from typing import Annotated
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import typer

from tuner.cli.options import DEFAULT_STORAGE, StorageOption


class _ThreadedServer(socketserver.ThreadingMixIn, WSGIServer):
    """The page polls while it loads: one thread would make it wait for itself."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing per request."""


def dashboard(
    storage: StorageOption = DEFAULT_STORAGE,
    host: Annotated[str, typer.Option(help="Address to listen on; the dashboard has no password.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 8080,
) -> None:
    """Show the studies in optuna-dashboard until Ctrl-C."""
    from objectives.errors import EXIT_HOST, UserError
    from storage.store import open_store

    with open_store(storage, create=False) as store:
        try:
            server = make_server(host, port, store.dashboard_app(), server_class=_ThreadedServer, handler_class=_Quiet)
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}:{port}: {error.strerror}",
                "another program, maybe another dashboard, has the port",
                f"tuner dashboard --port {port + 1 if port < 65535 else 0}",
                exit_code=EXIT_HOST,
            ) from error
        if host not in ("127.0.0.1", "localhost", "::1"):
            typer.echo("warning: anyone who reaches this address can delete studies", err=True)
        typer.echo(f"dashboard on http://{host}:{server.server_port}/dashboard (Ctrl-C ends it)", err=True)
        with server:
            server.serve_forever()
