"""A cluster with certificates on loopback, and gRPC calls with any of them; for the attacks b1 to b4, b7.

Not a client: it encodes the few messages that the attacks send, and reads status and details of the
answers as bytes. The calls go through curl, which must know HTTP/2.
"""
import contextlib
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("berth", "berth-scheduler", "berth-conductor", "berth-compute-agent")
AGENT = "berth.agent.v1.ComputeAgentService"
MACHINE = '[[cells]]\nid = 0\nsocket = 0\ncpus = "0-7"\nmemory_mib = 65536\n'


class SetupFailed(Exception):
    """The cluster does not come up as the attack needs it."""


def find_programs(folder):
    folders = [Path(folder)] if folder else [ROOT / "target/release", ROOT / "target/debug"]
    for each in folders:
        if all((each / name).is_file() for name in NAMES):
            return {name: each.resolve() / name for name in NAMES}
    packages = "-p berth-cli -p berth-scheduler -p berth-conductor -p berth-compute-agent"
    raise SetupFailed(f"the programs are not built; hint: cargo build {packages}")


def until(what, condition, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value is not None:
            return value
        time.sleep(0.1)
    raise SetupFailed(f"{what} did not happen within {seconds} s")


# ---- messages --------------------------------------------------------------------------------


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def text(field, value):
    value = value if isinstance(value, bytes) else value.encode()
    return varint(field << 3 | 2) + varint(len(value)) + value


def number(field, value):
    return varint(field << 3) + varint(value)


def fence(vm_uid, operation, epoch, incarnation):
    fields = text(1, vm_uid) + text(2, f"operations/{operation}") + number(3, epoch)
    return text(1, fields + text(4, incarnation))


def strings(message):
    """Returns the strings of a flat message by field."""
    found, at = {}, 0
    while at < len(message):
        key, at = read_varint(message, at)
        if key & 7 == 2:
            length, at = read_varint(message, at)
            found[key >> 3] = message[at : at + length].decode(errors="replace")
            at += length
        elif key & 7 == 0:
            _, at = read_varint(message, at)
        else:
            break
    return found


def read_varint(message, at):
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


# ---- the cluster -----------------------------------------------------------------------------


class Cluster:
    """One scheduler, one conductor, and agents of h1 and h2 with simulated hypervisors."""

    hosts = ("h1", "h2")

    def __init__(self, programs):
        self.programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="berth-attack-"))
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(4)]
            for each in sockets:
                each.bind(("127.0.0.1", 0))
            ports = [each.getsockname()[1] for each in sockets]
        names = ("scheduler", "conductor", "h1", "h2")
        self.address = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports)}
        self.processes = []
        self.files_max = None

    def limit_files(self, count):
        """Has each program open so many files at most."""
        self.files_max = count

    def config(self, host):
        """Returns the configuration of the agent of a host."""
        state = self.folder / f"{host}.json"
        return f'driver = "sim"\nmemory_reserved_mib = 0\n[sim]\nstate_file = "{state}"\n'

    def start_programs(self):
        self.berth("certs", "init", str(self.folder / "certs"), tls=False)
        (self.folder / "machine.toml").write_text(MACHINE)
        at = self.address
        self.spawn(
            "berth-scheduler", "scheduler", "scheduler", "--bootstrap",
            "--data-dir", str(self.folder / "data"), "--listen", at["scheduler"],
        )
        self.spawn(
            "berth-conductor", "conductor", "conductor-1",
            "--scheduler", at["scheduler"], "--listen", at["conductor"],
        )
        for host in self.hosts:
            config = self.folder / f"{host}.toml"
            config.write_text(self.config(host))
            self.spawn(
                "berth-compute-agent", "agent", host, "--config", str(config),
                "--scheduler", at["scheduler"], "--name", host, "--listen", at[host],
                "--machine-file", str(self.folder / "machine.toml"), "--cpu-shared-set", "0-7",
            )

    def start(self):
        self.start_programs()
        flavor = ("flavor", "create", "small", "--vcpus", "1", "--memory-mib", "64")
        until("the flavor", lambda: self.berth(*flavor, check=False))
        for host in self.hosts:
            create = ("vm", "create", f"on-{host}", "--flavor", "small", "--host", host)
            create += ("--kernel", "vmlinuz", "--initrd", "initrd.gz")
            until(f"a guest on {host}", lambda c=create: self.berth(*c, check=False))

    def stop(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def files(self, role, name):
        """Returns certificate and key of a role, which are made where there are none."""
        stem = self.folder / "certs" / f"{role}-{name}"
        cert, key = Path(f"{stem}.pem"), Path(f"{stem}-key.pem")
        if not cert.exists():
            issue = ("certs", "issue", str(self.folder / "certs"), "--role", role, "--name", name)
            self.berth(*issue, "--ip", "127.0.0.1", tls=False)
        return cert, key

    def flags(self, role, name):
        cert, key = self.files(role, name)
        ca = self.folder / "certs" / "ca.pem"
        return ["--tls-ca", str(ca), "--tls-cert", str(cert), "--tls-key", str(key)]

    def spawn(self, program, role, name, *options):
        command = [self.programs[program], *options, *self.flags(role, name)]
        if self.files_max:
            command[:0] = ["prlimit", f"--nofile={self.files_max}:{self.files_max}", "--"]
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def berth(self, *words, tls=True, check=True, seconds=60):
        """Runs a command and returns its output; without check, nothing where it fails."""
        run = self.command(*words, tls=tls, seconds=seconds)
        if run.returncode == 0:
            return run.stdout or " "
        if check:
            raise SetupFailed(f"{' '.join(words)}: {run.stderr}")
        return None

    def run(self, *words):
        """Runs a command and returns its exit status and all that it prints."""
        run = self.command(*words)
        return run.returncode, run.stdout + run.stderr

    def command(self, *words, tls=True, seconds=60):
        command = [self.programs["berth"], *words]
        if tls:
            command[1:1] = ["--output", "json", "--scheduler", self.address["scheduler"]]
            command += self.flags("operator", "ann")
        return subprocess.run(
            command, capture_output=True, timeout=seconds, text=True, check=False
        )

    # ---- calls -------------------------------------------------------------------------------

    def call(self, role, name, host, method, messages):
        """Calls a program with a certificate, once for each message, and returns (grpc-status,
        grpc-message, details, body) of each answer. A method without a service is one of agents."""
        method = method if "/" in method else f"{AGENT}/{method}"
        cert, key = self.files(role, name)
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        blocks = []
        for index, message in enumerate(messages):
            body = folder / f"{index}.in"
            body.write_bytes(struct.pack(">BI", 0, len(message)) + message)
            blocks.append(
                "\n".join(
                    [
                        f'url = "https://{self.address[host]}/{method}"',
                        "http2",
                        "silent",
                        "max-time = 10",
                        f'cacert = "{self.folder / "certs" / "ca.pem"}"',
                        f'cert = "{cert}"',
                        f'key = "{key}"',
                        'header = "content-type: application/grpc"',
                        'header = "te: trailers"',
                        f'data-binary = "@{body}"',
                        f'dump-header = "{folder / f"{index}.head"}"',
                        f'output = "{folder / f"{index}.out"}"',
                    ]
                )
            )
        config = folder / "config"
        config.write_text("\nnext\n".join(blocks))
        subprocess.run(["curl", "-K", str(config)], check=False, timeout=120, env=os.environ)
        return [self.answer(folder, index) for index in range(len(messages))]

    @staticmethod
    def answer(folder, index):
        fields = {}
        head = folder / f"{index}.head"
        lines = head.read_text(errors="replace").splitlines() if head.exists() else []
        for line in lines:
            name, _, value = line.partition(":")
            fields[name.strip().lower()] = value.strip()
        out = folder / f"{index}.out"
        body = out.read_bytes()[5:] if out.exists() else b""
        message = urllib.parse.unquote(fields.get("grpc-message", ""))
        details = fields.get("grpc-status-details-bin", "")
        return fields.get("grpc-status"), message, details, body

    def incarnation(self, host):
        """Returns the incarnation of an agent, which readers may know."""
        (answer,) = self.call("reader", "bob", host, "GetAgentInfo", [b""])
        found = strings(answer[3]).get(2)
        if not found:
            raise SetupFailed(f"GetAgentInfo of {host}: {answer}")
        return found
