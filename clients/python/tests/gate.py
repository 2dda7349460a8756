"""A way to a server on which answers get lost: the request arrives and is carried out.

Invariant: while a gate holds, what the client sends is passed on, and nothing of the server is.
"""

import contextlib
import socket
import threading
import time
from types import TracebackType

# How long a server has to carry a request out before its connection is cut, in seconds.
HOLD = 0.3


class Gate:
    """Passes connections on to an address."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._holds = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_answer(self) -> None:
        """Has the connection cut that next gets an answer, without the answer."""
        self._holds.set()

    @property
    def has_lost(self) -> bool:
        """Whether an answer was lost since then."""
        return not self._holds.is_set()

    def __enter__(self) -> "Gate":
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Accepts no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                host, _, port = self._to.rpartition(":")
                try:
                    server = socket.create_connection((host, int(port)))
                except OSError:
                    client.close()
                    continue
                for way in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pass, args=way, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self._holds.is_set():
                    time.sleep(HOLD)
                    self._holds.clear()
                    break
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
