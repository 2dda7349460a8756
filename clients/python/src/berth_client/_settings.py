"""The settings of a client: schedulers, certificates, bounds.

They are parameters, or in the environment.

The names in the environment, the port and the defaults are those of the command `berth`.
"""

import ipaddress
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from berth_client.errors import InvalidArgument, Refusal

SCHEDULER_PORT = 7100
DEFAULT_SCHEDULER = "127.0.0.1:7100"
TIMEOUT = 15.0
"""How long a call takes at most with all of its attempts, in seconds."""
RESPONSE_BYTES_MAX = 16 * 1024 * 1024
"""The longest response that is received."""

StrPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files with which a client is authenticated."""

    ca: Path
    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client."""

    schedulers: tuple[str, ...]
    """As `127.0.0.1:7100`, each once, at least one."""
    certificates: Certificates | None
    """Absent: everything is plain text."""
    timeout: float
    """How long a call takes at most, in seconds."""
    response_bytes_max: int
    """The longest response that is received."""
    cluster_id: str | None
    """The cluster that all calls are for. Absent: whichever answers."""


def settings(
    schedulers: Iterable[str] | str | None,
    ca: StrPath | None,
    cert: StrPath | None,
    key: StrPath | None,
    timeout: float,
    response_bytes_max: int,
    cluster_id: str | None,
    environment: Mapping[str, str] = os.environ,
) -> Settings:
    """Returns the settings of parameters, and of the environment where they are absent."""
    if schedulers is None:
        schedulers = environment.get("BERTH_SCHEDULER") or DEFAULT_SCHEDULER
    if isinstance(schedulers, str):
        schedulers = schedulers.split(",")
    addresses = tuple(dict.fromkeys(address(typed) for typed in schedulers))
    if not addresses:
        raise invalid("NO_SCHEDULER", "no scheduler is named", "name all members of the cluster")
    if not timeout > 0:
        raise invalid("INVALID_TIMEOUT", f"a timeout of {timeout} s is not above 0")
    named = [
        Path(given) if given is not None else _file(environment, name)
        for given, name in ((ca, "BERTH_TLS_CA"), (cert, "BERTH_TLS_CERT"), (key, "BERTH_TLS_KEY"))
    ]
    return Settings(
        addresses, _certificates(*named), timeout, response_bytes_max, cluster_id
    )


def address(typed: str) -> str:
    """Returns the address of a server as `HOST:PORT`, of `HOST`, `HOST:PORT` or an URL."""
    bare = typed.strip().rpartition("://")[2].rstrip("/")
    try:
        bare = f"[{ipaddress.IPv6Address(bare)}]"
    except ValueError:
        pass
    host, colon, port = bare.rpartition(":")
    if not colon or bare.endswith("]"):
        host, port = bare, str(SCHEDULER_PORT)
    is_host = host.startswith("[") or not any(sign in host for sign in ":/@,[] ")
    if not host or not is_host or not port.isascii() or not port.isdigit():
        raise _invalid_address(typed)
    if not 0 < int(port) < 65536:
        raise _invalid_address(typed)
    return f"{host}:{int(port)}"


def check_key(key: Path) -> None:
    """Refuses a private key that others may read, as all programs of Berth do."""
    found = key.stat()
    others = stat.S_IRWXO if found.st_uid == 0 else stat.S_IRWXO | stat.S_IRWXG
    if found.st_mode & others:
        raise invalid(
            "KEY_IS_READABLE", f"others may read the private key {key}", f"run chmod 600 {key}"
        )


def invalid(reason: str, message: str, hint: str | None = None) -> InvalidArgument:
    """Returns the error of a wrong parameter."""
    return InvalidArgument(Refusal("INVALID_ARGUMENT", reason, message, hint))


def _file(environment: Mapping[str, str], name: str) -> Path | None:
    value = environment.get(name)
    return Path(value) if value else None


def _certificates(ca: Path | None, cert: Path | None, key: Path | None) -> Certificates | None:
    if ca is None and cert is None and key is None:
        return None
    if ca is None or cert is None or key is None:
        raise invalid(
            "CERTIFICATES_INCOMPLETE",
            "ca, cert and key (BERTH_TLS_CA, BERTH_TLS_CERT, BERTH_TLS_KEY) go together",
            "give all three",
        )
    for file in (ca, cert, key):
        if not file.is_file():
            raise invalid("CERTIFICATE_MISSING", f"there is no file {file}")
    check_key(key)
    return Certificates(ca, cert, key)


def _invalid_address(typed: str) -> InvalidArgument:
    return invalid(
        "INVALID_ADDRESS",
        f"{typed!r} is not HOST, HOST:PORT or http://HOST:PORT, with a port from 1 to 65535",
    )
