#!/usr/bin/env python3
"""Asks OpenStack Nova whether guests fit: cases on standard input, one JSON object a line.

The format of a case is that of `berth fit` (docs/fit.md). It needs a Python with
`nova==34.0.0`; tests/benches/fit asks Nova and Berth the same cases and compares.

    {"host": ..., "instance": ...}            -> {"fits", "claim"} or {"error"}
    the same with "times": N, "seconds": S    -> {"ns": [CPU time of each fit, at most N]}

A case that takes longer than "seconds" without "times" is answered with {"error": "TooLong"}.
"""

import json
import logging
import signal
import sys
import time
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

from nova import exception, objects  # noqa: E402
from nova.conf import CONF  # noqa: E402
from nova.pci import stats  # noqa: E402
from nova.virt import hardware  # noqa: E402

PAGE_SIZES = {
    "small": hardware.MEMPAGES_SMALL,
    "large": hardware.MEMPAGES_LARGE,
    "any": hardware.MEMPAGES_ANY,
}


class TooLong(Exception):
    """The time for a case is over."""


class AnyDevice:
    """Stands for the rule by which a device is offered."""

    def get_tags(self):
        return {}


class EveryDevice:
    """Stands for the operator's rules: all devices of a case are offered."""

    def get_devspec(self, _device):
        return AnyDevice()


def cpus(said):
    """Returns a set of CPUs, written as a list or as 0-3,8."""
    if not isinstance(said, str):
        return set(said or [])
    found = set()
    for part in filter(None, said.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def host_of(case):
    def page(pool):
        return objects.NUMAPagesTopology(
            size_kb=pool["size_kb"],
            total=pool["total"],
            used=pool.get("used", 0),
            reserved=pool.get("reserved", 0),
        )

    def cell(said):
        pools = sorted(said.get("mempages", []), key=lambda pool: pool["size_kb"])
        return objects.NUMACell(
            id=said["id"],
            socket=said.get("socket"),
            cpuset=cpus(said["cpuset"]),
            pcpuset=cpus(said["pcpuset"]),
            siblings=[cpus(core) for core in said["siblings"]],
            memory=said["memory_mb"],
            memory_usage=said.get("memory_usage", 0),
            cpu_usage=said.get("cpu_usage", 0),
            pinned_cpus=cpus(said.get("pinned_cpus")),
            mempages=[page(pool) for pool in pools],
        )

    return objects.NUMATopology(cells=[cell(c) for c in case["host"]["cells"]])


def guest_of(case):
    def cell(number, said):
        size = said.get("pagesize")
        return objects.InstanceNUMACell(
            id=number,
            cpuset=cpus(said.get("cpuset")),
            pcpuset=cpus(said.get("pcpuset")),
            memory=said["memory"],
            pagesize=PAGE_SIZES.get(size, size),
            cpu_policy=said.get("cpu_policy"),
            cpu_thread_policy=said.get("cpu_thread_policy"),
        )

    said = case["instance"]
    return objects.InstanceNUMATopology(
        cells=[cell(number, c) for number, c in enumerate(said["cells"])],
        emulator_threads_policy=said.get("emulator_threads_policy"),
    )


def devices_of(case, host):
    known = stats.PciDeviceStats(host, dev_filter=EveryDevice())
    for said in case.get("pci_devices") or []:
        device = objects.PciDevice(
            compute_node_id=1,
            address=said["address"],
            vendor_id=said["vendor_id"],
            product_id=said["product_id"],
            numa_node=said.get("numa_node"),
            dev_type=said.get("dev_type", "type-PCI"),
            parent_addr=said.get("parent_addr"),
            status="available",
            extra_info={},
        )
        known.add_device(device)
    return known


def requests_of(case):
    def request(number, said):
        return objects.InstancePCIRequest(
            request_id=f"request-{number}",
            count=said["count"],
            spec=said["spec"],
            numa_policy=said.get("numa_policy"),
        )

    said = case.get("pci_requests") or []
    requests = [request(number, r) for number, r in enumerate(said)]
    return objects.InstancePCIRequests(requests=requests) if requests else None


def limits_of(case):
    said = case.get("limits")
    if not said:
        return None
    return objects.NUMATopologyLimits(
        cpu_allocation_ratio=said["cpu"], ram_allocation_ratio=said["ram"]
    )


class Question:
    """A case as Nova's objects. Whatever a fit changes is made anew for each."""

    def __init__(self, case):
        self.case = case
        CONF.set_override(
            "packing_host_numa_cells_allocation_strategy",
            bool(case.get("pack")),
            group="compute",
        )
        self.host = host_of(case)
        self.limits = limits_of(case)
        self.requests = requests_of(case)
        self.devices = devices_of(case, self.host)

    def fit(self, guest):
        requests = self.requests.requests if self.requests else None
        return hardware.numa_fit_instance_to_host(
            self.host,
            guest,
            None,
            limits=self.limits,
            pci_requests=requests,
            pci_stats=self.devices,
        )

    def answer(self):
        fitted = self.fit(guest_of(self.case))
        if fitted is None:
            return {"fits": False}
        try:
            hardware.numa_usage_from_instance_numa(self.host, fitted)
            if self.requests:
                self.devices.consume_requests(self.requests.requests, fitted.cells)
        except exception.NovaException as error:
            return {"fits": True, "claim": type(error).__name__}
        return {"fits": True, "claim": "ok"}

    def times(self, most, seconds):
        taken, end = [], time.monotonic() + seconds
        while len(taken) < most and (not taken or time.monotonic() < end):
            guest = guest_of(self.case)
            before = time.thread_time_ns()
            self.fit(guest)
            taken.append(time.thread_time_ns() - before)
        return {"ns": taken}


def too_long(_signal, _frame):
    raise TooLong


def answer(case):
    question = Question(case)
    if "times" in case:
        return question.times(case["times"], case["seconds"])
    signal.setitimer(signal.ITIMER_REAL, case.get("seconds", 30))
    try:
        return question.answer()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def main():
    objects.register_all()
    signal.signal(signal.SIGALRM, too_long)
    for line in sys.stdin:
        try:
            said = answer(json.loads(line))
        except Exception as error:  # Nova's own errors are answers too.
            said = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
