#!/usr/bin/env python3
"""Writes for long to three members, and shows what memory they occupy.

Twelve clients change the inventories of a resource provider each, at the followers or at the
leader, so that the state, the log between two checkpoints and the clients stay the same size. The
resident memory of each member must be the same, within a tenth, from the tenth minute on. Exit
status 0: it is.

Needs nothing but the program: cargo build --release -p berth-scheduler
"""

import argparse
import http.client
import json
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

CLIENTS = 12
# Python runs one thread at a time in each process.
CLIENT_PROCESSES = 4
TENTH = 1.10
HEADERS = {
    "x-auth-token": "admin",
    "openstack-api-version": "placement 1.39",
    "content-type": "application/json",
}


class Rest:
    """One client's connection to the Placement REST API of one member."""

    def __init__(self, port):
        self.port = port
        self.connection = None

    def call(self, method, path, body=None):
        """Returns status and JSON, or status 0 when there was no answer."""
        try:
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            self.connection.request(method, path, body and json.dumps(body), HEADERS)
            answer = self.connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        except (OSError, http.client.HTTPException):
            self.connection = None
            time.sleep(0.2)
            return 0, None


def write(number, port, seconds, writes, written):
    """Changes the inventories of a provider of its own so many times, or until the time is over."""
    rest = Rest(port)
    provider = str(uuid.uuid4())
    until = time.monotonic() + seconds
    while rest.call("POST", "/resource_providers", {"name": provider, "uuid": provider})[0] != 200:
        if time.monotonic() > until:
            return
    generation, count = 0, 0
    while time.monotonic() < until and count < writes:
        body = {
            "resource_provider_generation": generation,
            "inventories": {"VCPU": {"total": 1 + count % 1000}},
        }
        status, answer = rest.call("PUT", f"/resource_providers/{provider}/inventories", body)
        if status == 200:
            generation = answer["resource_provider_generation"]
            count += 1
            written[number] += 1
        else:
            status, answer = rest.call("GET", f"/resource_providers/{provider}")
            generation = answer["generation"] if status == 200 else generation


def write_all(ports, seconds, writes, written):
    """Runs the clients in a few processes and returns these."""
    processes = []
    for first in range(CLIENT_PROCESSES):
        numbers = range(first, CLIENTS, CLIENT_PROCESSES)

        def run(numbers=numbers):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            threads = [
                threading.Thread(target=write, args=(n, ports[n % len(ports)], seconds, writes, written))
                for n in numbers
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        process = multiprocessing.Process(target=run)
        process.start()
        processes.append(process)
    return processes


def resident_mib(pid):
    """Returns the resident memory of a process."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    sys.exit(f"member with process {pid} has ended")


def start(members, program, folder, base, checkpoint_entries):
    """Starts three members, the leader first, and adds their processes to the list."""
    for number in range(3):
        config = folder / f"{number}.toml"
        config.write_text(
            f'data_dir = "{folder / str(number)}"\n'
            f'listen = "127.0.0.1:{base + number}"\n'
            f'placement_listen = "127.0.0.1:{base + 10 + number}"\n'
            'placement_profile = "default"\n'
            f"checkpoint_entries = {checkpoint_entries}\n"
        )
        how = ["--join", f"127.0.0.1:{base}"] if number else ["--bootstrap"]
        log = open(folder / f"{number}.log", "w")
        command = [program, "--config", config, *how]
        members.append(subprocess.Popen(command, stdout=log, stderr=log))
        rest = Rest(base + 10 + number)
        until = time.monotonic() + 60
        while rest.call("GET", "/traits?name=in:HW_CPU_X86_AVX")[0] != 200:
            if time.monotonic() > until or members[-1].poll() is not None:
                sys.exit(f"member {number} does not answer: see {folder}/{number}.log")


def watch(members, processes, written, every):
    """Prints the curve and returns it: seconds, writes, and what each member occupies."""
    began = time.monotonic()
    curve = []
    while any(process.is_alive() for process in processes):
        time.sleep(every)
        memory = [resident_mib(member.pid) for member in members]
        curve.append((round(time.monotonic() - began), sum(written), memory))
        print(f"{curve[-1][0]:>6} s {curve[-1][1]:>9} writes  MiB {memory}", flush=True)
    return curve


def judge(curve, settled):
    """Returns whether the members occupy the same from this second on."""
    steady = [memory for seconds, _, memory in curve if seconds >= settled]
    if len(steady) < 2:
        sys.exit(f"it took less than {settled} s: nothing is known of what follows")
    is_steady = True
    for number in range(3):
        first, highest = steady[0][number], max(memory[number] for memory in steady)
        print(f"member {number}: {first} MiB, at most {highest} MiB afterwards")
        is_steady &= highest <= first * TENTH
    return is_steady


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--programs", default="target/release", help="folder of berth-scheduler")
    parser.add_argument("--writes", type=int, default=2_100_000, help="how many writes")
    parser.add_argument("--seconds", type=int, default=7200, help="for how long at most")
    parser.add_argument("--settled", type=int, default=600, help="from when on memory must not grow")
    parser.add_argument("--every", type=int, default=30, help="seconds between two lines")
    parser.add_argument("--checkpoint-entries", type=int, default=20_000)
    parser.add_argument("--at", choices=["followers", "leader"], default="followers")
    options = parser.parse_args()
    program = os.path.abspath(os.path.join(options.programs, "berth-scheduler"))
    base = random.randrange(20_000, 30_000)
    with tempfile.TemporaryDirectory() as folder:
        members = []
        try:
            start(members, program, pathlib.Path(folder), base, options.checkpoint_entries)
            ports = [base + 10] if options.at == "leader" else [base + 11, base + 12]
            written = multiprocessing.Array("q", CLIENTS)
            processes = write_all(ports, options.seconds, options.writes // CLIENTS, written)
            curve = watch(members, processes, written, options.every)
        finally:
            for member in members:
                member.kill()
                member.wait()
    sys.exit(0 if judge(curve, options.settled) else 1)


if __name__ == "__main__":
    main()
