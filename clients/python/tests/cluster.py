"""A cluster of real processes on loopback: schedulers, conductors and simulated hosts.

The programs are in the directory that `BERTH_BIN` names. Everything is ended and removed when the
cluster is left.
"""

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from gate import Gate

import berth_client

T = TypeVar("T")

# How long anything is waited for that must happen.
PATIENCE = 30.0
_MACHINE = "".join(
    f'[[cells]]\nid = {cell}\nsocket = {cell}\ncpus = "{32 * cell}-{32 * cell + 31}"\n'
    "memory_mib = 65536\n"
    for cell in range(2)
)


def eventually(what: str, look: Callable[[], T | None]) -> T:
    """Returns what `look` finds, once it finds something."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            seen = look()
            why: object = "nothing"
            if seen is not None and seen is not False:
                return seen
        except berth_client.BerthError as error:
            why = error
        if time.monotonic() > until:
            raise AssertionError(f"no {what} within {PATIENCE} s: {why}")
        time.sleep(0.05)


def program(name: str) -> str:
    """Returns the path of a program of Berth."""
    return str(Path(os.environ["BERTH_BIN"]) / name)


class Part:
    """A program that runs, and can be started again."""

    def __init__(self, name: str, address: str, command: list[str], log: Path) -> None:
        self.name = name
        self.address = address
        self.command = command
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("BERTH_")
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, *more], stdout=log, stderr=log, env=environment
            )

    def stop(self) -> None:
        """Stops the process until it is continued; returns once it stands still."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.process.pid}/task")
        eventually(
            "process that stands still",
            lambda: all(
                (task / "stat").read_text().rpartition(")")[2].split()[0] == "T"
                for task in tasks.iterdir()
            ),
        )

    def go_on(self) -> None:
        """Continues a process that was stopped."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Cluster:
    """Three schedulers, conductors and two hosts, unless it is said otherwise."""

    def __init__(
        self,
        schedulers: int = 3,
        conductors: int = 1,
        hosts: int = 2,
        transfer_ms: int = 200,
        is_certified: bool = False,
        conductor_version: int | None = None,
        is_gated: bool = False,
        lease_ttl_ms: int = 10_000,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="berth-python-")
        self.folder = Path(self._folder.name)
        self.is_certified = is_certified
        # Where a gate is on the way to each conductor.
        self.is_gated, self.gates = is_gated, list[Gate]()
        self.lease_ttl_ms = lease_ttl_ms
        if is_certified:
            self.certs("init")
        self.schedulers: list[Part] = []
        self.conductors: list[Part] = []
        self.agents: list[Part] = []
        try:
            for number in range(schedulers):
                self._add_scheduler(number)
            for number in range(conductors):
                self.add_conductor(number, conductor_version)
            for number in range(hosts):
                self._add_host(number, transfer_ms)
            with self.client() as client:
                eventually("cluster", lambda: self._is_complete(client))
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> list[str]:
        """The addresses of all schedulers."""
        return [part.address for part in self.schedulers]

    def client(self, **more: object) -> berth_client.Client:
        """Returns a client of this cluster."""
        return berth_client.Client(self.addresses, **{**self.files(), **more})  # type: ignore[arg-type]

    def async_client(self, **more: object) -> berth_client.AsyncClient:
        """Returns an asynchronous client of this cluster."""
        return berth_client.AsyncClient(self.addresses, **{**self.files(), **more})  # type: ignore[arg-type]

    def files(self, role: str = "operator", name: str = "ann") -> dict[str, Path]:
        """Returns the certificates of a user; none where the cluster has none."""
        if not self.is_certified:
            return {}
        stem = self.folder / "certs" / f"{role}-{name}"
        if not Path(f"{stem}.pem").exists():
            self.certs("issue", "--role", role, "--name", name)
        return {
            "ca": self.folder / "certs" / "ca.pem",
            "cert": Path(f"{stem}.pem"),
            "key": Path(f"{stem}-key.pem"),
        }

    def certs(self, verb: str, *more: str, folder: str = "certs") -> None:
        """Runs `berth certs`."""
        command = [program("berth"), "certs", verb, str(self.folder / folder), *more]
        subprocess.run(command, check=True, capture_output=True)

    def leader(self) -> Part:
        """Returns the scheduler that leads."""
        with self.client() as client:

            def look() -> Part | None:
                address = client.cluster.status().leader_address
                return next((one for one in self.schedulers if address.endswith(one.address)), None)

            return eventually("leader", look)

    def close(self) -> None:
        """Ends all processes and removes all files."""
        for part in [*self.agents, *self.conductors, *self.schedulers]:
            part.kill()
        self._folder.cleanup()

    def __enter__(self) -> "Cluster":
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends it, and shows the logs if a test has failed."""
        if kind is not None:
            for part in [*self.schedulers, *self.conductors, *self.agents]:
                lines = part.log.read_text(errors="replace").splitlines()[-20:]
                print(f"---- {part.name} ----", *lines, sep="\n")
        self.close()

    def _is_complete(self, client: berth_client.Client) -> bool:
        voters = [member for member in client.cluster.status().members if member.role == 1]
        up = [host for host in client.hosts.list() if berth_client.state_of(host) == "UP"]
        return (
            len(voters) == len(self.schedulers)
            and len(client.cluster.conductors()) == len(self.conductors)
            and len(up) == len(self.agents)
        )

    def _part(self, name: str, role: str, address: str, arguments: list[str]) -> Part:
        if self.is_certified:
            self.certs("issue", "--role", role, "--name", name, "--ip", "127.0.0.1")
            stem = self.folder / "certs" / f"{role}-{name}"
            arguments += ["--tls-ca", str(self.folder / "certs" / "ca.pem")]
            arguments += ["--tls-cert", f"{stem}.pem", "--tls-key", f"{stem}-key.pem"]
        kind = "compute-agent" if role == "agent" else role
        command = [program(f"berth-{kind}"), "--listen", address, *arguments]
        return Part(name, address, command, self.folder / f"{name}.log")

    def _add_scheduler(self, number: int) -> None:
        name = f"s{number + 1}"
        data = ["--data-dir", str(self.folder / name)]
        part = self._part(name, "scheduler", free_address(), data)
        first = self.schedulers[0].address if self.schedulers else None
        part.start(*(["--join", first] if first else ["--bootstrap"]))
        self.schedulers.append(part)

    def add_conductor(self, number: int, version: int | None = None) -> None:
        """Starts a conductor, maybe one that behaves as one of an earlier build."""
        name = f"c{number + 1}"
        config = self.folder / f"{name}.toml"
        config.write_text("takeover_interval_ms = 200\n")
        arguments = ["--config", str(config), "--name", name]
        arguments += ["--lease-ttl-ms", str(self.lease_ttl_ms)]
        arguments += ["--scheduler", ",".join(self.addresses)]
        if version is not None:
            arguments += ["--service-version", str(version)]
        address = free_address()
        if self.is_gated:
            self.gates.append(Gate(address))
            arguments += ["--advertise", self.gates[-1].address]
        part = self._part(name, "conductor", address, arguments)
        part.start()
        self.conductors.append(part)

    def _add_host(self, number: int, transfer_ms: int) -> None:
        name = f"h{number + 1}"
        machine, config = self.folder / f"{name}-machine.toml", self.folder / f"{name}.toml"
        machine.write_text(_MACHINE)
        config.write_text(
            f'driver = "sim"\nmemory_reserved_mib = 0\nstorage_id = "shared"\n'
            f'machine_file = "{machine}"\ncpu_dedicated_set = "16-31,48-63"\n'
            f'cpu_shared_set = "0-15,32-47"\n'
            f'[sim]\nlisten = "{free_address()}"\ntransfer_ms = {transfer_ms}\n'
            f'state_file = "{self.guests(name)}"\n'
        )
        arguments = ["--config", str(config), "--name", name]
        arguments += ["--scheduler", ",".join(self.addresses)]
        part = self._part(name, "agent", free_address(), arguments)
        part.start()
        self.agents.append(part)

    def guests(self, host: str) -> Path:
        """Returns the file in which the simulated hypervisor of a host has its guests."""
        return self.folder / f"{host}-guests.json"


_taken: set[int] = set()


def free_address() -> str:
    """Returns an address that no process listens on."""
    while True:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port: int = bound.getsockname()[1]
        if port not in _taken:
            _taken.add(port)
            return f"127.0.0.1:{port}"
