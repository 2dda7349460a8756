"""Stands between an operator and the API server, and cuts the operator's life at a chosen write.

It speaks TLS on both sides, and passes every response on as it comes, so that watches work. With
`arm(n, act)` the n-th write from then on is carried out by the API server, `act` is called, and the
response is not delivered: what was done is known to the API server alone. Renewals of the lease do
not count. With `exchanges`, what passes send is kept as well, and `close_watches` ends all watches.
"""
import http.client
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Breaker:
    def __init__(self, certificate, key, authority, target):
        self.presented = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.presented.load_cert_chain(certificate, key)
        self.trusted = ssl.create_default_context(cafile=authority)
        self.target = target
        self.lock = threading.Lock()
        self.left, self.act = None, None
        # Responses that are made up: (status, how often).
        self.refusals = []
        # Where requests and responses are written down, if they are.
        self.exchanges = None
        # The connections of watches.
        self.watches = set()

    def arm(self, count, act):
        with self.lock:
            self.left, self.act = count, act

    def refuse(self, status, count):
        """Answers the next writes with this status, without carrying them out."""
        with self.lock:
            self.refusals = [status] * count

    def close_watches(self):
        """Closes the connections of all watches; returns how many there were."""
        with self.lock:
            watches, self.watches = self.watches, set()
        for connection in watches:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        return len(watches)

    def refused_with(self, method, path):
        if method not in WRITES or "/leases" in path:
            return None
        with self.lock:
            return self.refusals.pop() if self.refusals else None

    def is_last(self, method, path):
        if method not in WRITES or "/leases" in path:
            return None
        with self.lock:
            if self.left is None:
                return None
            self.left -= 1
            if self.left > 0:
                return None
            self.left = None
            return self.act

    def listen(self, address, port):
        breaker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if status := breaker.refused_with(self.command, self.path):
                    self.send_response(status)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                act = breaker.is_last(self.command, self.path)
                try:
                    self.carry(body, act)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True

            do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

            def carry(self, body, act):
                names = ("accept", "authorization", "content-type", "user-agent")
                headers = {n: v for n in names if (v := self.headers.get(n))}
                called = http.client.HTTPSConnection(
                    *breaker.target, timeout=120, context=breaker.trusted)
                try:
                    called.request(self.command, self.path, body, headers)
                    response = called.getresponse()
                    if act:
                        response.read()
                        act()
                        self.close_connection = True
                        return
                    self.send_response(response.status)
                    kind = response.getheader("content-type", "application/json")
                    self.send_header("content-type", kind)
                    self.send_header("transfer-encoding", "chunked")
                    self.end_headers()
                    received, is_watch = [], "watch=" in self.path
                    if is_watch:
                        with breaker.lock:
                            breaker.watches.add(self.connection)
                    while data := response.read1(1 << 16):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                        self.wfile.flush()
                        if breaker.exchanges and not is_watch:
                            received.append(data)
                    if breaker.exchanges:
                        breaker.exchanges.add(
                            self.command, self.path, self.headers.get("accept"), body,
                            response.status, b"".join(received))
                    self.wfile.write(b"0\r\n\r\n")
                finally:
                    with breaker.lock:
                        breaker.watches.discard(self.connection)
                    called.close()

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer((address, port), Handler)
        server.daemon_threads = True
        server.socket = self.presented.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
