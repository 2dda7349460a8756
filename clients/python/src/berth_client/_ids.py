"""Request ids and resource names.

A request id is a UUID of version 7: a server knows by its time whether it may have been forgotten.
"""

import secrets
import time
import uuid


def new_request_id() -> str:
    """Returns a new request id."""
    milliseconds = time.time_ns() // 1_000_000 & (1 << 48) - 1
    random = secrets.randbits(74)
    high, low = random >> 62, random & (1 << 62) - 1
    return str(uuid.UUID(int=milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low))


def resource(collection: str, name: str) -> str:
    """Returns a resource name: `vms/a` for `a` and for `vms/a`; empty for an empty name."""
    return name if not name or name.startswith(f"{collection}/") else f"{collection}/{name}"


def short(name: str) -> str:
    """Returns the last part of a resource name: `a` for `vms/a`."""
    return name.rpartition("/")[2]
