"""How a server is known: by a certificate of the cluster's authority, for its address and its role.

gRPC checks the authority and the address, and lets no program look at the role. So a connection of
this module's own looks at the certificate first; the connection of gRPC that follows then trusts
this one certificate, and not the authority. When the server has got another one it is looked at
again.

Not here: what a role may do, which is the servers' to decide.
"""

import socket
import ssl
from dataclasses import dataclass

import grpc

from berth_client._settings import Certificates, check_key
from berth_client._status import NotSent

CONNECT_TIMEOUT = 2.0
"""How long a connection may take to be made, in seconds."""
_ROLE = "berth:"


@dataclass(frozen=True, slots=True)
class Expected:
    """Which server is meant."""

    role: str
    """Its role, as `scheduler`."""
    name: str | None = None
    """Its name, where only one will do."""


def credentials(
    address: str, expected: Expected, certificates: Certificates
) -> grpc.ChannelCredentials:
    """Returns what a connection to this server is made with. The files are read each time.

    Raises `NotSent` if it cannot be connected to, or is another one.
    """
    try:
        check_key(certificates.key)
        key, chain = certificates.key.read_bytes(), certificates.cert.read_bytes()
        pinned = _look(address, expected, certificates)
    except (OSError, ValueError) as error:
        raise NotSent(f"{address}: {error}") from error
    return grpc.ssl_channel_credentials(pinned.encode(), key, chain)


def _look(address: str, expected: Expected, certificates: Certificates) -> str:
    """Returns the certificate of the server, as text, after its role was checked."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=certificates.ca)
    context.load_cert_chain(certificates.cert, certificates.key)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port)), CONNECT_TIMEOUT) as plain:
        plain.settimeout(CONNECT_TIMEOUT)
        with context.wrap_socket(plain, server_hostname=host) as connection:
            shown = connection.getpeercert() or {}
            encoded = connection.getpeercert(binary_form=True) or b""
    _check(address, expected, shown)
    return ssl.DER_cert_to_PEM_cert(encoded)


def _check(address: str, expected: Expected, shown: object) -> None:
    subject = shown.get("subject", ()) if isinstance(shown, dict) else ()
    names = [pair for parts in subject for pair in parts]
    roles = [value for key, value in names if key == "organizationName"]
    name = next((value for key, value in names if key == "commonName"), "")
    is_one = roles == [_ROLE + expected.role]
    if is_one and expected.name in (None, name):
        return
    meant = f"{expected.role} {expected.name}" if expected.name else f"a {expected.role}"
    role = roles[0].removeprefix(_ROLE) if roles else "no role"
    raise ValueError(
        f"the server at {address} is not {meant}: its certificate is that of {role}:{name}"
    )
