#!/usr/bin/env python3
"""Sends the same random calls to OpenStack Placement and to Berth, and compares the answers.

  differential.py --berth target/debug/berth [--seed 1] [--steps 2000] [--keep-going] [-v]

Placement runs inside of this process, on sqlite in memory; Berth as a program. Compared are the
status, the body (candidates, and whatever else has no order, as sets), the error's code and which
headers there are; not the words of an error. At the first difference it prints the seed, the step
and both answers, and ends with status 1. With --keep-going it counts differences by kind instead,
and begins anew with empty servers where they may differ from then on. KEPT are the differences
that are meant.

Needs: pip install openstack-placement==16.0.0 gabbi.
"""
import argparse
import copy
import http.client
import json
import logging
import re
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter, namedtuple
from urllib.parse import parse_qsl, quote

warnings.simplefilter("ignore")
logging.disable()
import webob  # noqa: E402
from oslo_config import cfg  # noqa: E402
from oslo_db.sqlalchemy import engines  # noqa: E402
from oslo_policy import opts as policy_opts  # noqa: E402
from placement import conf, db_api, deploy  # noqa: E402
from placement.db.sqlalchemy import migration, models  # noqa: E402
from sqlalchemy import select  # noqa: E402

from calls import Call, World  # noqa: E402
from suite import START_SECONDS, free_port  # noqa: E402

Answer = namedtuple("Answer", "status body headers")
# Life of one world: long enough to fill, short enough for many beginnings.
STEPS_OF_WORLD = 400
# After so many steps everything that can be read is compared.
STEPS_OF_AUDIT = 50
HEADERS = ["content-type", "location", "openstack-api-version", "cache-control", "vary"]
AUDIT = ["", "/inventories", "/usages", "/aggregates", "/traits", "/allocations"]
ANSWER_SECONDS = 60


def headers_of(call):
    headers = {"x-auth-token": "admin", "x-roles": "admin,service", "accept": "application/json"}
    headers["openstack-api-version"] = f"placement 1.{call.version}"
    if call.body is not None:
        headers["content-type"] = "application/json"
    return headers


def target_of(call):
    return call.path + ("?" + call.query if call.query else "")


class Placement:
    """OpenStack Placement, called without a network."""

    def __init__(self):
        # Otherwise it gives its CPU away after each query, which costs seconds on a busy machine.
        engines._thread_yield = lambda *_: None
        config = cfg.ConfigOpts()
        conf.register_opts(config)
        policy_opts.set_defaults(config, enforce_new_defaults=False)
        config.set_override("connection", "sqlite://", "placement_database")
        config([], default_config_files=[])
        config.set_override("auth_strategy", "noauth2", "api")
        db_api.configure(config)
        self.engine = db_api.get_placement_engine()
        migration.create_schema(self.engine)
        self.application = deploy.loadapp(config)

    def begin(self):
        """Forgets everything that clients made."""
        custom = {"traits": "name", "resource_classes": "name"}
        with self.engine.begin() as connection:
            for table in reversed(models.BASE.metadata.sorted_tables):
                rows = table.delete()
                if table.name in custom:
                    rows = rows.where(table.c.name.like("CUSTOM\\_%", escape="\\"))
                connection.execute(rows)

    def forget_consumers(self):
        """Takes away consumers that have no allocations, and says how many there were."""
        tables = models.BASE.metadata.tables
        used = select(tables["allocations"].c.consumer_id)
        table = tables["consumers"]
        with self.engine.begin() as connection:
            return connection.execute(table.delete().where(table.c.uuid.not_in(used))).rowcount

    def call(self, call):
        request = webob.Request.blank(
            target_of(call), method=call.method, headers=headers_of(call),
            body=b"" if call.body is None else json.dumps(call.body).encode(),
        )
        answer = request.get_response(self.application)
        return Answer(answer.status_int, answer.text, {key.lower() for key in answer.headers})


class Berth:
    """Berth, as a program on loopback."""

    def __init__(self, program):
        self.program, self.process = program, None

    def begin(self):
        self.end()
        self.port = free_port()
        listen = f"127.0.0.1:{self.port}"
        command = [self.program, "dev", "--hosts", "0", "--ephemeral"]
        command += ["--placement-listen", listen, "--placement-profile", "default"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                return self.call(Call("GET", "/", "", None, 0))
            except OSError:
                pass
            if self.process.poll() is not None:
                sys.exit(f"differential.py: berth ended with status {self.process.returncode}")
            if time.monotonic() > end:
                sys.exit(f"differential.py: berth did not answer within {START_SECONDS} s")
            time.sleep(0.005)

    def call(self, call):
        body = None if call.body is None else json.dumps(call.body).encode()
        # One connection for each call: Placement can take longer than a server waits for the next.
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        try:
            connection.request(call.method, target_of(call), body=body, headers=headers_of(call))
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        return Answer(answer.status, text, {key.lower() for key, _ in answer.getheaders()})

    def end(self):
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# What is compared.


def plain(value):
    """A JSON value without the order of its lists."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((plain(inner) for inner in value), key=lambda item: json.dumps(item, sort_keys=True))
    return value


def essence(answer):
    """What of an answer must be equal."""
    body = json.loads(answer.body) if answer.body else None
    if isinstance(body, dict) and "errors" in body:
        body = [(error["status"], error["title"], error.get("code")) for error in body["errors"]]
    # An error of Placement has the header `vary` or not, depending on what raised it.
    wanted = HEADERS if answer.status < 400 else HEADERS[:-1]
    headers = {name for name in wanted if name in answer.headers}
    return answer.status, plain(body), headers


def is_search(call):
    return call.path == "/allocation_candidates"


def limit_of(call):
    """The limit of a search whose answer depends on the order in which it goes through hosts."""
    limits = [value for key, value in parse_qsl(call.query) if key == "limit"]
    return int(limits[-1]) if is_search(call) and limits and limits[-1].isdecimal() else None


def as_limited(theirs, ours, everything):
    """Placement's answer with Berth's choice: so many, each one of all that there are."""
    status, body, headers = theirs
    chosen = ours[1]
    if ours[0] != 200 or status != 200 or everything[0] != 200:
        return theirs
    requests, summaries = everything[1]["allocation_requests"], everything[1]["provider_summaries"]
    fits = (
        len(chosen["allocation_requests"]) == len(body["allocation_requests"])
        and all(request in requests for request in chosen["allocation_requests"])
        and all(summaries.get(key) == value for key, value in chosen["provider_summaries"].items())
    )
    return (status, chosen, headers) if fits else theirs


def difference(call, theirs, ours):
    """A name for the kind of a difference, or nothing."""
    if theirs == ours:
        return None
    where = re.sub(r"[0-9a-f-]{36}", "U", call.path)
    if theirs[0] != ours[0]:
        return f"{call.method} {where}: status {theirs[0]}, here {ours[0]}"
    if theirs[1] != ours[1]:
        return f"{call.method} {where}: {theirs[0]}, another body"
    return f"{call.method} {where}: {theirs[0]}, headers {sorted(theirs[2] - ours[2])}, here {sorted(ours[2] - theirs[2])}"


# The differences that are meant.


def groups(call):
    """The parameters of a search: {suffix: {parameter: [values]}}, and those without a group."""
    found, rest = {}, {}
    for key, value in parse_qsl(call.query):
        match = re.fullmatch(r"(resources|required|member_of|in_tree)(.*)", key)
        if match:
            found.setdefault(match[2], {}).setdefault(match[1], []).append(value)
        else:
            rest[key] = value
    return found, rest


def classes(group):
    return {part.split(":")[0] for part in group.get("resources", [""])[-1].split(",")} - {""}


def adds_in_place(call, theirs, ours, ask):
    if not is_search(call):
        return False
    found, rest = groups(call)
    own = classes(found.get("", {}))
    others = set().union(*(classes(group) for suffix, group in found.items() if suffix))
    return bool(own & others) and rest.get("group_policy") != "none" and theirs[0] == ours[0] == 200


def sharing_below_root(call, theirs, ours, ask):
    """Several classes without a suffix, where a provider that shares has a parent."""
    if not is_search(call) or (theirs[0], ours[0]) != (500, 200) or len(classes(groups(call)[0].get("", {}))) < 2:
        return False
    sharing = ask("GET", "/resource_providers", "required=MISC_SHARES_VIA_AGGREGATE").body
    return any(provider["parent_provider_uuid"] for provider in json.loads(sharing)["resource_providers"])


def one_anchor(call, theirs, ours, ask):
    """Berth has more, each with the unsuffixed group from sharing providers alone."""
    found, _ = groups(call)
    if not is_search(call) or len(found) < 2 or "" not in found or theirs[0] != 200 or ours[0] != 200:
        return False
    known, mine = (body["allocation_requests"] for body in (theirs[1], ours[1]))
    summaries = ours[1]["provider_summaries"]
    shares = {key for key, value in summaries.items() if "MISC_SHARES_VIA_AGGREGATE" in value.get("traits", [])}
    more = [request for request in mine if request not in known]
    if call.version >= 34:
        from_shares = all(shares.issuperset(request["mappings"][""]) for request in more)
    else:
        from_shares = all(shares.intersection(request["allocations"]) for request in more)
    return from_shares and all(request in mine for request in known)


def without_resources(call, theirs, ours, ask):
    found, _ = groups(call)
    bare = [group for group in found.values() if "resources" not in group]
    return is_search(call) and theirs[0] == ours[0] == 200 and any(
        "in_tree" in group
        or not any(
            not part.startswith("!")
            for part in [*group.get("member_of", []), *",".join(group.get("required", [])).split(",")]
            if part
        )
        for group in bare
    )


def looks_up_late(call, theirs, ours, ask):
    """Nothing is found, and the query names a class or a trait that does not exist."""
    if not is_search(call) or (theirs[0], ours[0]) != (200, 400) or theirs[1]["allocation_requests"]:
        return False
    named = {"resource_classes": set(), "traits": set()}
    for key, value in parse_qsl(call.query):
        if key.startswith("resources"):
            named["resource_classes"] |= {part.split(":")[0] for part in value.split(",")}
        if key.startswith(("required", "root_required")):
            named["traits"] |= {part.strip().lstrip("!") for part in value.removeprefix("in:").split(",")}
    return any(
        ask("GET", f"/{kind}/{quote(name, safe='')}").status == 404
        for kind, names in named.items() for name in names
    )


def inventories(call):
    """The sets of inventories in a body."""
    if call.path == "/reshaper":
        return [provider["inventories"] for provider in call.body["inventories"].values()]
    if call.method == "PUT" and call.path.endswith("/inventories"):
        return [call.body["inventories"]]
    return [{"": call.body}] if "/inventories" in call.path and call.body else []


def reserves_too_much(call, theirs, ours, ask):
    if theirs[0] not in (200, 201, 204, 409) or ours[0] != 400:
        return False
    records = [record for one in inventories(call) for record in one.values()]
    return any(record.get("reserved", 0) > record["total"] for record in records)


def small_letters(call, theirs, ours, ask):
    if (theirs[0], ours[0]) != (500, 400):
        return False
    return any(name and not re.fullmatch("[A-Z0-9_]+", name) for one in inventories(call) for name in one)


def two_faults(call, theirs, ours, ask):
    """A late consumer, and a fault that Placement tells as Berth does once nobody is late."""
    if call.path != "/reshaper" or (theirs[0], ours[0]) != (409, 400):
        return False
    body = copy.deepcopy(call.body)
    for consumer, update in body["allocations"].items():
        known = json.loads(ask("GET", f"/allocations/{consumer}").body)
        update["consumer_generation"] = known.get("consumer_generation")
    if body == call.body:
        return False
    # It is refused again, so that nothing changes; if it is not, it is a difference.
    again = ask("POST", "/reshaper", "", body, call.version)
    return essence(again)[:2] == ours[:2]


Kept = namedtuple("Kept", "applies reason")
LEFT_OVER = "consumer-left-over"
# The order of the list is the order of the search.
KEPT = {
    "adds-in-place": Kept(adds_in_place, "the unsuffixed group and another ask for one class, without group_policy=none: Placement adds up amounts in records that its candidates share"),
    "sharing-below-root": Kept(sharing_below_root, "a sharing provider that is not a root: Placement answers 500"),
    "one-anchor": Kept(one_anchor, "the whole unsuffixed group comes from sharing providers: Placement joins it with the other groups for one of its anchors only"),
    "without-resources": Kept(without_resources, "a group without resources that only forbids, or names a tree: Placement finds nothing, or does not look at the tree"),
    "looks-up-late": Kept(looks_up_late, "an unknown class or trait: Placement refuses it only if the search gets that far"),
    "reserves-too-much": Kept(reserves_too_much, "more reserved than there is: Placement refuses it, but not in POST /reshaper, and not where a ratio below 1 rounds the capacity to 0"),
    "small-letters": Kept(small_letters, "a class in small letters: Placement can answer 500"),
    "two-faults": Kept(two_faults, "a reshape that is both late and wrong: Placement tells of the consumer's generation first"),
    LEFT_OVER: Kept(lambda *_: False, "a PUT that is refused or empty: Placement can leave a new consumer that nobody sees, and that is new no more"),
}


def kept(call, theirs, ours, ask):
    for name, kind in KEPT.items():
        if kind.applies(call, theirs, ours, ask):
            return name
    return None


class Run:
    """Worlds one after the other, until the steps are done."""

    def __init__(self, options):
        self.options = options
        self.placement, self.berth = Placement(), Berth(options.berth)
        self.kinds, self.kept, self.statuses = Counter(), Counter(), Counter()
        self.step, self.calls, self.found = 0, 0, 0

    def all_steps(self):
        number = 0
        while self.step < self.options.steps and not self.over():
            self.begin(f"{self.options.seed}/{number}")
            self.life(min(STEPS_OF_WORLD, self.options.steps - self.step))
            number += 1

    def over(self):
        return self.kinds and not self.options.keep_going

    def begin(self, seed):
        self.placement.begin()
        self.berth.begin()
        self.world, self.seed, self.apart = World(seed, self.placement.call), seed, False

    def life(self, steps):
        for call in self.world.first():
            self.compare(call)
        for number in range(steps):
            self.step += 1
            self.compare(self.world.next())
            if (number + 1) % STEPS_OF_AUDIT == 0 and not self.apart:
                self.audit()
            if self.apart or self.over():
                return

    def audit(self):
        for provider in self.world.existing():
            for part in AUDIT:
                self.compare(Call("GET", f"/resource_providers/{provider}{part}", "", None, 39))
        for consumer in self.world.consumers:
            self.compare(Call("GET", f"/allocations/{consumer}", "", None, 39))
        for path in ("/resource_providers", "/resource_classes", "/traits"):
            self.compare(Call("GET", path, "", None, 39))
        for project in ("red", "blue"):
            self.compare(Call("GET", "/usages", f"project_id={project}", None, 39))

    def compare(self, call):
        if self.over():
            return
        self.calls += 1
        raw = [server.call(call) for server in (self.placement, self.berth)]
        if call.method != "GET" and "alloc" in json.dumps([call.path, call.body]):
            # A consumer that is left without allocations cannot be seen, and its next PUT with the
            # generation null is refused all the same; without it the servers stay alike.
            self.kept[LEFT_OVER] += self.placement.forget_consumers()
        theirs, ours = map(essence, raw)
        self.statuses[theirs[0]] += 1
        if is_search(call) and theirs[0] == 200 and theirs[1]["allocation_requests"]:
            self.found += 1
        if theirs != ours and limit_of(call):
            rest = "&".join(part for part in call.query.split("&") if not part.startswith("limit="))
            # Another choice is no difference; a fault that is meant shows without the limit, too.
            every = call._replace(query=rest)
            both = [essence(server.call(every)) for server in (self.placement, self.berth)]
            theirs = as_limited(theirs, ours, both[0])
            if theirs != ours and both[0] != both[1]:
                call, (theirs, ours) = every, both
        kind = difference(call, theirs, ours)
        if kind is None:
            return
        # A write that went two ways: whatever follows would only repeat it.
        self.apart = call.method != "GET" and theirs[0] != ours[0]
        meant = kept(call, theirs, ours, self.ask)
        if meant:
            self.kept[meant] += 1
            return
        self.kinds[kind] += 1
        if self.options.verbose or self.kinds[kind] == 1:
            self.tell(kind, call, raw, (theirs, ours))

    def ask(self, method, path, query="", body=None, version=39):
        """Asks Placement for more, to know a difference for what it is."""
        return self.placement.call(Call(method, path, query, body, version))

    def tell(self, kind, call, raw, pair):
        print(f"DIFFERENCE {kind}\nseed {self.seed} step {self.step}")
        print(f"{call.method} {target_of(call)} at 1.{call.version}")
        if call.body is not None:
            print(f"  body {json.dumps(call.body)}")
        for name, answer, (_, body, _) in zip(("placement", "berth"), raw, pair):
            print(f"  {name}: {answer.status} {answer.body.strip()}")
        theirs, ours = (set_of(body) for _, body, _ in pair)
        for name, only in (("placement", theirs - ours), ("berth", ours - theirs)):
            for line in sorted(only)[:10]:
                print(f"  only {name}: {line}")
        sys.stdout.flush()


def set_of(body):
    """The parts of a body, each as a line."""
    parts = body.items() if isinstance(body, dict) else [("", body)]
    lines = []
    for key, inner in parts:
        many = inner.items() if isinstance(inner, dict) else inner if isinstance(inner, list) else [inner]
        lines += [f"{key}: {json.dumps(one, sort_keys=True)}" for one in many]
    return set(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--berth", required=True, help="the program `berth`")
    parser.add_argument("--seed", default="1", help="what the calls are made from")
    parser.add_argument("--steps", type=int, default=2000, help="how many calls")
    parser.add_argument("--keep-going", action="store_true", help="count differences by kind")
    parser.add_argument("-v", "--verbose", action="store_true", help="show each difference")
    run = Run(parser.parse_args())
    began = time.monotonic()
    try:
        run.all_steps()
    finally:
        run.berth.end()
    for kind, count in run.kinds.most_common():
        print(f"{count} x {kind}")
    for name, count in run.kept.most_common():
        print(f"{count} x kept, {name}: {KEPT[name].reason}")
    statuses = ", ".join(f"{count} x {status}" for status, count in sorted(run.statuses.items()))
    print(f"statuses: {statuses}")
    print(
        f"{run.step} steps, {run.calls} answers compared, {sum(run.kinds.values())} differences, "
        f"{sum(run.kept.values())} kept, {run.found} searches found candidates; seed {run.options.seed}, {time.monotonic() - began:.0f} s"
    )
    sys.exit(1 if run.kinds else 0)


if __name__ == "__main__":
    main()
