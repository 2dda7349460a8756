"""The parameters of a client, and what it takes from the environment."""

import os
from pathlib import Path

import pytest

import berth_client
from berth_client._ids import new_request_id, resource, short
from berth_client._settings import address, settings

ADDRESSES = {
    "m1": "m1:7100",
    " 10.0.0.1 ": "10.0.0.1:7100",
    "::1": "[::1]:7100",
    "[::1]": "[::1]:7100",
    "[::1]:7200": "[::1]:7200",
    "m1:7200": "m1:7200",
    "http://m1": "m1:7100",
    "https://[::1]": "[::1]:7100",
    "http://m1:7200/": "m1:7200",
}
WRONG = ["", " ", "http://", ":7100", "m1:", "m1:0", "m1:65536", "m1:x", "a b", "a,b:1", "u@m:1",
         "m1:7100:1", "m1:²"]


@pytest.mark.parametrize("typed", ADDRESSES)
def test_a_missing_port_is_the_schedulers(typed: str) -> None:
    assert address(typed) == ADDRESSES[typed]


@pytest.mark.parametrize("typed", WRONG)
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(berth_client.InvalidArgument) as raised:
        berth_client.Client([typed])
    assert raised.value.reason == "INVALID_ADDRESS"
    # Programs that know Python's errors need no other.
    assert isinstance(raised.value, ValueError)


def made(environment: dict[str, str], **more: object) -> berth_client._settings.Settings:
    given = {"schedulers": None, "ca": None, "cert": None, "key": None, "timeout": 1.0,
             "response_bytes_max": 1, "cluster_id": None, **more}
    return settings(**given, environment=environment)  # type: ignore[arg-type]


def test_the_environment_is_that_of_the_command(tmp_path: Path) -> None:
    assert made({}).schedulers == ("127.0.0.1:7100",)
    assert made({"BERTH_SCHEDULER": "a,b:1,a"}).schedulers == ("a:7100", "b:1")
    assert made({"BERTH_SCHEDULER": "a"}, schedulers=["b"]).schedulers == ("b:7100",)
    files = {name: tmp_path / name for name in ("CA", "CERT", "KEY")}
    for file in files.values():
        file.touch(mode=0o600)
    environment = {f"BERTH_TLS_{name}": str(file) for name, file in files.items()}
    certificates = made(environment).certificates
    assert certificates is not None and certificates.key == files["KEY"]
    for missing in environment:
        some = {name: value for name, value in environment.items() if name != missing}
        with pytest.raises(berth_client.InvalidArgument) as raised:
            made(some)
        assert raised.value.reason == "CERTIFICATES_INCOMPLETE"
    with pytest.raises(berth_client.InvalidArgument) as raised:
        made(environment, ca=tmp_path / "none")
    assert raised.value.reason == "CERTIFICATE_MISSING"


@pytest.mark.parametrize("mode", range(0o400, 0o1000, 1))
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch(mode=0o600)
    os.chmod(tmp_path / "key", mode)
    is_open = mode & (0o007 if os.getuid() == 0 else 0o077)
    given = {name: tmp_path / name for name in ("ca", "cert", "key")}
    if not is_open:
        assert made({}, **given).certificates is not None
        return
    with pytest.raises(berth_client.InvalidArgument) as raised:
        made({}, **given)
    assert raised.value.hint == f"run chmod 600 {tmp_path / 'key'}"


def test_nothing_secret_is_shown(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text("not to be shown")
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    with berth_client.Client("m1,m2:1", **files) as client:  # type: ignore[arg-type]
        assert repr(client) == "<Client m1:7100,m2:1 tls=True>"
    assert "not to be" not in repr(made({}, **files))


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_is_above_zero(timeout: float) -> None:
    with pytest.raises(berth_client.InvalidArgument):
        berth_client.Client(timeout=timeout)


def test_request_ids_are_ordered_uuids_of_version_7() -> None:
    import uuid

    ids = [new_request_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in ids} == {
        (7, uuid.RFC_4122)
    }
    assert [one[:13] for one in ids] == sorted(one[:13] for one in ids)


def test_names_may_have_their_collection() -> None:
    assert resource("vms", "a") == resource("vms", "vms/a") == "vms/a"
    assert resource("hosts", "") == ""
    assert short("vms/a") == short("a") == "a"
