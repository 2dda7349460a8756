"""Stands between Kubernetes and `berth-csi-controller`: passes on what both say, or remembers it.

Neither is a mock. `forward` passes bytes on, as kube-proxy would, so that TLS and HTTP are between
the real ends. A `Recorder` speaks TLS on both sides, and passes every body on as it came. While the
one that is asked does not answer, the caller is left without an answer too.
"""
import http.client
import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def forward(address, port, target):
    """Passes connections to this address and port on to the target."""
    listener = socket.create_server((address, port))

    def carry(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def accept():
        while True:
            caller, _ = listener.accept()
            try:
                called = socket.create_connection(target)
            except OSError:
                caller.close()
                continue
            for pair in ((caller, called), (called, caller)):
                threading.Thread(target=carry, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


class Recorder:
    """What was asked and answered, in order, as (path, question, status, answer)."""

    def __init__(self, certificate, key, authority, target):
        self.calls = []
        self.lock = threading.Lock()
        self.shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.shown.load_cert_chain(certificate, key)
        self.trusted = ssl.create_default_context(cafile=authority)
        # The controller is dialled by its address; its certificate holds the name of its service.
        self.trusted.check_hostname = False
        self.target = target

    def listen(self, address, port):
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                question = self.rfile.read(int(self.headers.get("content-length", 0)))
                try:
                    status, answer = recorder.ask(self.command, self.path, question, self.headers)
                except OSError:
                    self.close_connection = True
                    return
                with recorder.lock:
                    recorder.calls.append((self.path, question, status, answer))
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer((address, port), Handler)
        server.daemon_threads = True
        server.socket = self.shown.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(self, method, path, question=b"", headers=None):
        passed = ("accept", "authorization", "content-type")
        passed = {name: value for name in passed if (value := (headers or {}).get(name))}
        connection = http.client.HTTPSConnection(*self.target, timeout=30, context=self.trusted)
        try:
            connection.request(method, path, question, passed)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def of_pod(self, path, pod):
        """Returns the calls to a path about one pod, by its name or the name it is made from."""
        def about(question):
            told = json.loads(question)
            told = told.get("Pod") or told.get("request", {}).get("object") or {}
            metadata = told.get("metadata", {})
            return pod in (metadata.get("name"), metadata.get("generateName"))

        calls = self.so_far()
        return [call for call in calls if call[0].split("?")[0] == path and about(call[1])]

    def so_far(self):
        with self.lock:
            return list(self.calls)
