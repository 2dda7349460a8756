"""The examples of the documents work as they are typed.

Method: the blocks of a page are one program, which runs by itself in a new cluster. What stands for
the address of a scheduler is replaced.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster

ROOT = Path(__file__).parents[3]
PAGES = {
    "clients/python/README.md": ["vms/web ACTIVE on hosts/", "moved from hosts/", "boot: "],
    "docs/python.md": ["ACTIVE", "entries, done", "vms/db hosts/h", "h1 VCPU 500", "is there"],
}


def blocks(page: str) -> str:
    """Returns the blocks of a page as one program."""
    text = (ROOT / page).read_text()
    return "\n".join(re.findall(r"(?ms)^```python\n(.*?)^```$", text))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_typed(page: str) -> None:
    with Cluster() as own:
        program = blocks(page).replace("127.0.0.1:7100", own.addresses[0])
        environment = {**os.environ, "BERTH_SCHEDULER": ",".join(own.addresses)}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True, text=True, timeout=60, env=environment, check=False,
        )
        assert done.returncode == 0, done.stderr
        for line in PAGES[page]:
            assert line in done.stdout, done.stdout
        assert not done.stderr


def test_the_example_is_short() -> None:
    lines = [line for line in blocks("clients/python/README.md").splitlines() if line]
    assert len(lines) <= 20


def test_every_error_is_documented() -> None:
    from berth_client import errors

    text = (ROOT / "docs/python.md").read_text()
    for name in errors.__all__:
        if name not in ("HostRefusal", "Refusal", "error_of"):
            assert f"`{name}`" in text, name
