#!/usr/bin/env python3
"""Runs OpenStack Placement's own test suite against Berth.

The suite is the folder of gabbi files in the package openstack-placement. It is written to run
inside of that program, on fixtures that write to its database; here each file gets a server of
its own, and its start state (worlds.toml) through the REST API.

  suite.py --berth target/debug/berth [--only REGEX] [--profile PROFILE] [-v]

Needs: pip install openstack-placement==16.0.0 gabbi. Prints one line for each file and the sum;
the exit status is 0 if every test passed that a client can send at all.
"""
import argparse
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
import unittest
import urllib.error
import urllib.request
import uuid
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
from gabbi import fixture, handlers, suitemaker, utils  # noqa: E402

HERE = Path(__file__).resolve().parent
WORLDS = tomllib.loads((HERE / "worlds.toml").read_text())
# Which profile of the server a fixture wants; the others want the default.
PROFILES = {
    "SecureRBACPolicyFixture": "secure-rbac",
    "OpenPolicyFixture": "open-policy",
    "CORSFixture": "cors",
}
# What every file finds in its environment.
IDS = """RP_UUID RP_NAME RP_UUID1 RP_NAME1 RP_UUID2 RP_NAME2 PROJECT_ID ADMIN_PROJECT_ID
SERVICE_PROJECT_ID USER_ID PROJECT_ID_ALT USER_ID_ALT INSTANCE_UUID MIGRATION_UUID CONSUMER_UUID
PARENT_PROVIDER_UUID ALT_PARENT_PROVIDER_UUID""".split()
CLASSES = {
    "CUSTOM_RES_CLASS": "CUSTOM_IRON_NFV",
    "CUSTOM_RES_CLASS1": "CUSTOM_IRON_NFV1",
    "CUSTOM_RES_CLASS2": "CUSTOM_IRON_NFV2",
}
# Sent by a client that runs inside of the server only: no client puts this on a wire.
UNSENDABLE = {"bad content length not int"}
START_SECONDS = 30


class Api:
    """The server, for whoever makes its start state."""

    def __init__(self, url):
        self.url = url

    def call(self, method, path, body=None, version="1.37"):
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "x-auth-token": "admin",
                "x-roles": "admin,service",
                "content-type": "application/json",
                "openstack-api-version": f"placement {version}",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            raise RuntimeError(f"{method} {path}: {error.code} {text[:500]}") from None

    def is_up(self):
        try:
            with urllib.request.urlopen(self.url + "/", timeout=START_SECONDS):
                return True
        except OSError:
            return False


class World:
    """Makes what worlds.toml says."""

    def __init__(self, api):
        self.api = api
        self.made = set()

    def make(self, world):
        for name in world.get("ids", []):
            os.environ[name] = str(uuid.uuid4())
        for provider in world.get("providers", []):
            self.provider(provider)
        for host in world.get("hosts", []):
            self.host(**host)
        for consumer in world.get("consumers", []):
            self.consumer(consumer)
        for name, other in world.get("same", {}).items():
            os.environ[name] = os.environ[other]
        if "below" in world:
            self.make(WORLDS[world["below"]])

    def provider(self, wanted):
        name = wanted["name"]
        env = wanted.get("env", name.upper() + "_UUID")
        if not wanted.get("given"):
            os.environ[env] = str(uuid.uuid4())
        own = os.environ[env]
        body = {"name": value(name), "uuid": own}
        parent = wanted.get("parent", "")
        # A parent with a question mark is there in some worlds only.
        if parent and (parent[0] != "?" or parent[1:] in self.made):
            body["parent_provider_uuid"] = os.environ[parent.lstrip("?")]
        self.api.call("POST", "/resource_providers", body)
        self.made.add(env)
        path = f"/resource_providers/{own}"
        if "aggregates" in wanted:
            # Before 1.19 this does not count in the generation.
            aggregates = [os.environ[name] for name in wanted["aggregates"]]
            self.api.call("PUT", f"{path}/aggregates", aggregates, "1.1")
        for name, inventory in wanted.get("inventories", {}).items():
            if name.startswith("CUSTOM_"):
                self.api.call("PUT", f"/resource_classes/{name}")
            inventory = {"resource_class": name, "max_unit": inventory["total"], **inventory}
            self.api.call("POST", f"{path}/inventories", inventory)
        if "traits" in wanted:
            for name in wanted["traits"]:
                if name.startswith("CUSTOM_"):
                    self.api.call("PUT", f"/traits/{name}")
            now = json.loads(self.api.call("GET", path))["generation"]
            body = {"traits": wanted["traits"], "resource_provider_generation": now}
            self.api.call("PUT", f"{path}/traits", body)

    def consumer(self, wanted):
        own = str(uuid.uuid4())
        if "env" in wanted:
            os.environ[wanted["env"]] = own
        body = {
            "allocations": {os.environ[wanted["from"]]: {"resources": wanted["takes"]}},
            "consumer_generation": None,
            "user_id": value(wanted["user"]),
            "project_id": value(wanted["project"]),
        }
        self.api.call("PUT", f"/allocations/{own}", body)

    def host(self, name, networks, bridge, function):
        direct = [f"CUSTOM_VNIC_TYPE_{kind}" for kind in ("DIRECT", "DIRECT_PHYSICAL", "MACVTAP")]
        both = ("NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC")
        counts = {"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 500}
        self.part(name, name, None, counts, None)
        switch = f"{name}:Open vSwitch agent"
        rate = {"NET_PACKET_RATE_KILOPACKET_PER_SEC": 1000}
        self.part(switch, f"{name}:ovs_agent", name, rate, ["CUSTOM_VNIC_TYPE_NORMAL"])
        card = f"{name}:NIC Switch agent"
        self.part(card, f"{name}:sriov_agent", name, {}, direct)
        for index, network in enumerate(networks):
            segment = f"CUSTOM_PHYSNET_{network}"
            number = "" if index == 0 else str(index + 1)
            self.part(
                f"{switch}:br-ex{number}", f"{name}:br_ex{number}", f"{name}:ovs_agent",
                dict.fromkeys(both, bridge), ["CUSTOM_VNIC_TYPE_NORMAL", segment],
            )
            self.part(
                f"{card}:enp129s0f{index}", f"{name}:pf{index}", f"{name}:sriov_agent",
                dict.fromkeys(both, function), [*direct, segment],
            )

    def part(self, name, env, parent, counts, traits):
        wanted = {"name": name, "env": env}
        wanted["inventories"] = {name: {"total": total} for name, total in counts.items()}
        if parent:
            wanted["parent"] = parent
        if traits:
            wanted["traits"] = traits
        self.provider(wanted)


def value(text):
    """What a text stands for: itself, or with a dollar the variable of that name."""
    return os.environ[text[1:]] if text.startswith("$") else text


class Server(fixture.GabbiFixture):
    """One server, empty but for its start state."""

    berth, port = None, None

    def __init__(self, names):
        super().__init__()
        self.names = names

    @property
    def profile(self):
        return next((PROFILES[name] for name in self.names if name in PROFILES), "default")

    def start_fixture(self):
        listen = f"127.0.0.1:{self.port}"
        command = [self.berth, "dev", "--hosts", "0", "--ephemeral"]
        command += ["--placement-listen", listen, "--placement-profile", self.profile]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.prepare(Api(f"http://{listen}"))
        except Exception:
            self.stop_fixture()
            raise

    def prepare(self, api):
        end = time.monotonic() + START_SECONDS
        while not api.is_up():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with status {self.process.returncode}")
            if time.monotonic() > end:
                raise RuntimeError(f"the server did not answer within {START_SECONDS} s")
            time.sleep(0.005)
        for name in IDS:
            os.environ[name] = str(uuid.uuid4())
        os.environ.update(CLASSES)
        for name in self.names:
            if name in WORLDS:
                World(api).make(WORLDS[name])

    def stop_fixture(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Result(unittest.TestResult):
    """Counts, and keeps what went wrong."""

    def __init__(self):
        super().__init__()
        self.passed, self.skipped_count, self.unsendable, self.wrong = 0, 0, 0, []

    def addSuccess(self, test):
        self.passed += 1

    def addSkip(self, test, reason):
        self.skipped_count += 1

    def addFailure(self, test, error):
        self.wrong.append((name_of(test), str(error[1])))

    def addError(self, test, error):
        if name_of(test) in UNSENDABLE and "LocalProtocolError" in repr(error[1]):
            self.unsendable += 1
        else:
            self.wrong.append((name_of(test), repr(error[1])))


def name_of(test):
    return getattr(test, "test_data", {}).get("name", str(test))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def folder_of_suite():
    # Found without importing: the package's own tests want more than its users have.
    package = importlib.util.find_spec("placement")
    if package is None:
        sys.exit("suite.py: openstack-placement is not installed")
    return Path(package.origin).parent / "tests" / "functional" / "gabbits"


def run_file(path, profile):
    """Runs one file; nothing if it wants another profile."""
    content = utils.load_yaml(yaml_file=str(path))
    server = Server(content.pop("fixtures", []))
    if profile not in (None, server.profile):
        return None
    server.port = free_port()
    loader = unittest.TestLoader()
    responders = [handler() for handler in handlers.RESPONSE_HANDLERS]
    suite = suitemaker.test_suite_from_dict(
        loader, path.stem, content, str(path.parent), "127.0.0.1", server.port, None, None,
        handlers=responders,
    )
    result = Result()
    try:
        with server:
            suite.run(result)
    except Exception as error:  # The start state could not be made: every test of it fails.
        result.wrong += [(test["name"], f"set-up: {error}") for test in content["tests"]]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--berth", required=True, help="the program `berth`")
    parser.add_argument("--only", default="", help="files whose name this expression finds")
    parser.add_argument("--profile", help="files for this profile of the server")
    parser.add_argument("-v", "--verbose", action="store_true", help="show faults in full")
    options = parser.parse_args()
    Server.berth = options.berth
    files = sorted(folder_of_suite().glob("*.yaml"))
    files = [path for path in files if re.search(options.only, path.name)]
    sums, ran, began = [0, 0, 0, 0], 0, time.monotonic()
    for path in files:
        start = time.monotonic()
        result = run_file(path, options.profile)
        if result is None:
            continue
        ran += 1
        counts = [result.passed, len(result.wrong), result.skipped_count, result.unsendable]
        sums = [before + more for before, more in zip(sums, counts)]
        total, seconds = sum(counts), time.monotonic() - start
        print(f"{path.name}: {result.passed} of {total} in {seconds:.2f} s", flush=True)
        for name, what in result.wrong:
            print(f"    FAILED {name}: {what if options.verbose else what[:300]}", flush=True)
    passed, failed, skipped, unsendable = sums
    print(
        f"{passed} of {sum(sums)} tests passed in {ran} files, {failed} failed, {skipped} "
        f"skipped, {unsendable} cannot be sent by a client; {time.monotonic() - began:.0f} s"
    )
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
