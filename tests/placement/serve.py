#!/usr/bin/env python3
"""Serves a real OpenStack Placement on loopback, filled with a seeded world that can be changed.

  serve.py [--seed 1] [--trees 12] [--consumers 60] [--port 0] [--folder DIR] [--cert PEM]

It prints `listening PORT filled PROVIDERS CONSUMERS`, then carries out one command a line from
standard input, and answers each by one line:

  change         what happens in a cloud's life: things come, go, move, change their names
  busy / calm    begins and ends a thread that writes some hundred times a second
  audit URL      asks itself and the Placement at URL everything that can be read, and compares
  quit           ends it; so does the end of the input

Placement runs inside of this process, on sqlite in a file of that folder or a temporary one.

Needs: pip install openstack-placement==16.0.0.
"""
import argparse
import http.client
import json
import logging
import random
import ssl
import sys
import tempfile
import threading
import uuid
import warnings
from socketserver import ThreadingMixIn
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

warnings.simplefilter("ignore")
logging.disable()
import webob  # noqa: E402
from oslo_config import cfg  # noqa: E402
from oslo_db.sqlalchemy import engines  # noqa: E402
from oslo_policy import opts as policy_opts  # noqa: E402
from placement import conf, db_api, deploy  # noqa: E402
from placement.db.sqlalchemy import migration  # noqa: E402

CLASSES = [f"CUSTOM_CLASS_{letter}" for letter in "ABC"]
TRAITS = [f"CUSTOM_TRAIT_{letter}" for letter in "ABCD"]
STANDARD = ["HW_CPU_X86_AVX2", "COMPUTE_NODE", "STORAGE_DISK_SSD", "HW_NIC_SRIOV"]
# Among them one that no decimal of three digits is, and one whose last bit a quick reader loses.
RATIOS = [1.0, 4.0, 1.0 / 3, 0.1 + 0.2, 16.0, 1.1, 274.0 / 3]
SHARES = "MISC_SHARES_VIA_AGGREGATE"
TYPES = ["INSTANCE", "MIGRATION", None]


def application(path):
    # Otherwise it gives its CPU away after each query, which costs seconds on a busy machine.
    engines._thread_yield = lambda *_: None
    config = cfg.ConfigOpts()
    conf.register_opts(config)
    policy_opts.set_defaults(config, enforce_new_defaults=False)
    config.set_override("connection", f"sqlite:///{path}", "placement_database")
    config([], default_config_files=[])
    config.set_override("auth_strategy", "noauth2", "api")
    db_api.configure(config)
    engine = db_api.get_placement_engine()
    migration.create_schema(engine)
    return deploy.loadapp(config)


class Refused(Exception):
    pass


class Client:
    """Calls the Placement of this process without a network."""

    def __init__(self, app):
        # One write at a time: sqlite has one writer.
        self.app, self.lock = app, threading.Lock()

    def answer(self, method, path, body=None, version="1.39"):
        headers = {"x-auth-token": "admin", "accept": "application/json"}
        headers["openstack-api-version"] = f"placement {version}"
        data = b""
        if body is not None:
            headers["content-type"], data = "application/json", json.dumps(body).encode()
        request = webob.Request.blank(path, method=method, headers=headers, body=data)
        with self.lock:
            return request.get_response(self.app)

    def call(self, method, path, body=None, version="1.39"):
        answer = self.answer(method, path, body, version)
        if answer.status_int >= 400:
            raise Refused(f"{method} {path} {json.dumps(body)}: {answer.status} {answer.text}")
        return answer.json if answer.body else None


class World:
    def __init__(self, client, seed):
        self.client, self.random = client, random.Random(seed)
        self.aggregates = [self.uuid() for _ in range(5)]
        self.names = 0

    def uuid(self):
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def get(self, path):
        return self.client.call("GET", path)

    def providers(self):
        return self.get("/resource_providers")["resource_providers"]

    def make(self, name, parent=None):
        body = {"name": name, "uuid": self.uuid()}
        if parent:
            body["parent_provider_uuid"] = parent
        return self.client.call("POST", "/resource_providers", body)["uuid"]

    def record(self, total, **others):
        record = {"total": total, "max_unit": total, "allocation_ratio": self.random.choice(RATIOS)}
        record["reserved"] = self.random.randrange(max(1, total // 8))
        return {**record, **others}

    def part(self, provider, part, **body):
        """Replaces a part of a provider at its generation."""
        path = f"/resource_providers/{provider}"
        body["resource_provider_generation"] = self.get(path)["generation"]
        return self.client.call("PUT", f"{path}/{part}", body)

    def some(self, things, most):
        return self.random.sample(things, self.random.randrange(min(most, len(things)) + 1))

    def adorn(self, provider, *traits):
        self.part(provider, "traits", traits=[*traits, *self.some(STANDARD + TRAITS, 4)])
        self.part(provider, "aggregates", aggregates=self.some(self.aggregates, 2))

    def tree(self):
        """A root, two cells below it, a device below each cell."""
        self.names += 1
        number = self.names
        root = self.make(f"host-{number} \u00fc")
        cpus = 8 * self.random.randrange(1, 9)
        self.part(root, "inventories", inventories={
            "VCPU": self.record(cpus), "MEMORY_MB": self.record(65536, step_size=64, min_unit=64),
            "DISK_GB": self.record(500),
        })
        self.adorn(root)
        for cell in range(2):
            numa = self.make(f"host-{number}-numa{cell}", root)
            self.part(numa, "inventories", inventories={"PCPU": self.record(16), CLASSES[cell]: self.record(4)})
            self.adorn(numa)
            device = self.make(f"host-{number}-device{cell}", numa)
            if self.random.random() < 0.7:
                self.part(device, "inventories", inventories={"SRIOV_NET_VF": self.record(8), CLASSES[2]: self.record(2)})
            self.adorn(device)
        return root

    def fill(self, trees, consumers):
        for name in CLASSES:
            self.client.call("PUT", f"/resource_classes/{name}")
        for name in TRAITS + ["CUSTOM_UNUSED"]:
            self.client.call("PUT", f"/traits/{name}")
        for number in range(max(1, trees // 6)):
            pool = self.make(f"pool-{number}")
            self.part(pool, "inventories", inventories={"DISK_GB": self.record(10000)})
            self.adorn(pool, SHARES)
        for _ in range(trees):
            self.tree()
        self.refresh()
        made = [self.take(self.uuid(), None) for _ in range(consumers)]
        for consumer in filter(None, self.random.sample(made, len(made) // 3)):
            self.take(consumer, self.get(f"/allocations/{consumer}").get("consumer_generation"))
        self.overfill()

    def refresh(self):
        """Looks up what there is to take."""
        self.stock = {}
        for provider in self.providers():
            path = f"/resource_providers/{provider['uuid']}/inventories"
            self.stock[provider["uuid"]] = self.get(path)["inventories"]

    def take(self, consumer, generation):
        """Has a consumer take something from some providers, if there is room."""
        for _ in range(10):
            chosen = self.random.sample(sorted(u for u, i in self.stock.items() if i), self.random.randrange(1, 4))
            taken = {}
            for provider in chosen:
                inventories = self.stock[provider]
                name = self.random.choice(sorted(inventories))
                step = inventories[name]["step_size"]
                taken[provider] = {"resources": {name: step * self.random.randrange(1, 3)}}
            kind = self.random.choice(TYPES)
            body = {
                "allocations": taken, "consumer_generation": generation,
                "project_id": self.random.choice(["red", "blue"]), "user_id": self.random.choice(["ann", "bob"]),
            }
            if kind:
                body["consumer_type"] = kind
            try:
                self.client.call("PUT", f"/allocations/{consumer}", body, "1.38" if kind else "1.36")
                return consumer
            except Refused:
                continue
        return None

    def taken(self, provider):
        return self.get(f"/resource_providers/{provider}/allocations")["allocations"]

    def overfill(self):
        """Shrinks what is taken below that, and makes amounts odd that were good."""
        used = [u for u in sorted(self.stock) if self.taken(u)]
        for number, provider in enumerate(self.random.sample(used, max(1, len(used) // 4))):
            usages = self.get(f"/resource_providers/{provider}/usages")["usages"]
            inventories = self.get(f"/resource_providers/{provider}/inventories")["inventories"]
            for name, amount in usages.items():
                if amount > 1 and number % 2:
                    inventories[name].update(total=max(1, amount // 2), reserved=0, allocation_ratio=1.0)
                elif amount:
                    inventories[name].update(min_unit=7, step_size=7, max_unit=7)
            self.part(provider, "inventories", inventories=inventories)

    def drop(self, provider):
        """Takes a provider away, with what is below it and whoever takes from it."""
        for other in self.providers():
            if other["parent_provider_uuid"] == provider:
                self.drop(other["uuid"])
        for consumer in self.taken(provider):
            self.client.call("DELETE", f"/allocations/{consumer}")
        self.client.call("DELETE", f"/resource_providers/{provider}")

    def update(self, provider, name, parent):
        body = {"name": name, "parent_provider_uuid": parent}
        self.client.call("PUT", f"/resource_providers/{provider}", body)

    def change(self):
        every = self.providers()
        trees = {p["root_provider_uuid"] for p in every if "device" in p["name"] and p["parent_provider_uuid"]}
        roots = [p for p in every if p["uuid"] in trees and p["parent_provider_uuid"] is None]
        first, second, third, fourth, fifth = self.random.sample(roots, 5)
        # Two exchange their names; one goes, and another gets its name and its number.
        self.update(first["uuid"], "for a moment", None)
        self.update(second["uuid"], first["name"], None)
        self.update(first["uuid"], second["name"], None)
        self.drop(third["uuid"])
        self.make(third["name"])
        # A tree comes below another one, and its device becomes a root.
        below = [p for p in every if p["root_provider_uuid"] == fourth["uuid"] and "device" in p["name"]]
        self.update(below[0]["uuid"], below[0]["name"], None)
        self.update(fourth["uuid"], fourth["name"], fifth["uuid"])
        self.tree()
        # Consumers go, which no provider counts; come again, at a lower generation; come anew.
        every = sorted({c for p in self.providers() for c in self.taken(p["uuid"])})
        some = self.random.sample(every, min(9, len(every)))
        self.refresh()
        for consumer in some:
            self.client.call("DELETE", f"/allocations/{consumer}")
        for consumer in some[:3]:
            self.take(consumer, None)
        for _ in range(5):
            self.take(self.uuid(), None)
        # A class goes from where it was taken, together with whoever took it.
        self.client.call("PUT", "/resource_classes/CUSTOM_LATE")
        self.client.call("PUT", "/traits/CUSTOM_LATE")
        used = [u for u in sorted(self.stock) if u != fifth["uuid"] and self.taken(u)]
        provider = self.random.choice(used)
        for consumer in self.taken(provider):
            self.client.call("DELETE", f"/allocations/{consumer}")
            self.move(consumer, fifth["uuid"])
        self.part(provider, "inventories", inventories={"CUSTOM_LATE": self.record(3)})
        self.part(provider, "traits", traits=["CUSTOM_LATE"])
        # Old clients set aggregates without counting it.
        self.client.call("PUT", f"/resource_providers/{fifth['uuid']}/aggregates", self.aggregates[:2], "1.18")
        self.refresh()

    def move(self, consumer, provider):
        """Has a consumer take one CPU of a provider, of which there are always some more."""
        inventories = self.get(f"/resource_providers/{provider}/inventories")["inventories"]
        record = inventories.setdefault("VCPU", self.record(1))
        record.update(total=record["total"] + 100, min_unit=1, step_size=1, max_unit=100, allocation_ratio=4.0)
        self.part(provider, "inventories", inventories=inventories)
        body = {
            "allocations": {provider: {"resources": {"VCPU": 1}}}, "consumer_generation": None,
            "project_id": "red", "user_id": "ann", "consumer_type": "INSTANCE",
        }
        self.client.call("PUT", f"/allocations/{consumer}", body)

    def scribble(self, stop):
        """Writes until it is stopped."""
        mine, count = [], 0
        # The lock is not fair: readers get it in between.
        while not stop.wait(0.005):
            count += 1
            if mine and self.random.random() < 0.4:
                self.client.call("DELETE", f"/allocations/{mine.pop(0)}")
            else:
                mine.append(self.take(self.uuid(), None))
                mine = [consumer for consumer in mine if consumer]
            provider = self.random.choice(sorted(self.stock))
            if self.random.random() < 0.3:
                self.part(provider, "traits", traits=self.some(STANDARD + TRAITS, 4))
        return count


class Other:
    """Another Placement, over HTTP."""

    def __init__(self, url):
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def get(self, path):
        headers = {"x-auth-token": "admin", "openstack-api-version": "placement 1.39"}
        self.connection.request("GET", path, headers=headers)
        answer = self.connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body else None


def plain(value):
    """A JSON value without the order of its lists."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((plain(inner) for inner in value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


def audit(world, url):
    """Compares everything that can be read, generations and all."""
    other, paths = Other(url), ["/resource_providers", "/resource_classes", "/traits"]
    consumers = set()
    for provider in world.providers():
        path = f"/resource_providers/{provider['uuid']}"
        paths += [path + part for part in ("", "/inventories", "/usages", "/aggregates", "/traits", "/allocations")]
        consumers.update(world.taken(provider["uuid"]))
    paths += [f"/allocations/{consumer}" for consumer in sorted(consumers)]
    paths += [f"/usages?project_id={project}" for project in ("red", "blue")]
    for path in paths:
        answer = world.client.answer("GET", path)
        theirs, ours = (answer.status_int, plain(answer.json)), other.get(path)
        ours = ours[0], plain(ours[1])
        if theirs != ours:
            return f"DIFFERENT {path}: {json.dumps(theirs)} here {json.dumps(ours)}"
    return f"same {len(paths)} answers"


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128


def obey(world, port):
    stop, writer = threading.Event(), None
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "change":
            world.change()
            said = "changed"
        elif command == "busy":
            stop.clear()
            writer = threading.Thread(target=world.scribble, args=(stop,), daemon=True)
            writer.start()
            said = "busy"
        elif command == "calm":
            stop.set()
            writer.join()
            said = "calm"
        elif command == "audit":
            said = audit(world, arguments[0])
        else:
            return
        print(said, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", default="1", help="what the world is made from")
    parser.add_argument("--trees", type=int, default=12, help="how many trees of five providers")
    parser.add_argument("--consumers", type=int, default=60, help="how many consumers")
    parser.add_argument("--port", type=int, default=0, help="where to listen")
    parser.add_argument("--folder", help="where the database is kept, an empty folder")
    parser.add_argument("--cert", help="a PEM file with a key and its certificate: serve HTTPS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        client = Client(application(f"{options.folder or folder}/placement.sqlite"))

        def serve(environ, start_response):
            with client.lock:
                return client.app(environ, start_response)

        server = Server(("127.0.0.1", options.port), Quiet)
        server.set_app(serve)
        if options.cert:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options.cert)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        world = World(client, options.seed)
        world.fill(options.trees, options.consumers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        consumers = {c for p in world.providers() for c in world.taken(p["uuid"])}
        print(f"listening {server.server_port} filled {len(world.providers())} {len(consumers)}", flush=True)
        obey(world, server.server_port)
        server.shutdown()


if __name__ == "__main__":
    main()
