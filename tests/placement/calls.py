"""Random calls of OpenStack Placement's REST API, from a seed.

Small pools of names and ids, so that calls meet: most are right, some are late (a generation that
was), some are wrong in one place. What the API now holds is asked of one of the servers.
"""
import json
import random
import uuid
from collections import namedtuple
from urllib.parse import quote

Call = namedtuple("Call", "method path query body version")

CLASSES = ["VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_GOLD", "CUSTOM_IRON"]
TRAITS = ["HW_CPU_X86_AVX", "HW_CPU_X86_SSE", "CUSTOM_RED", "CUSTOM_BLUE"]
SHARING = "MISC_SHARES_VIA_AGGREGATE"
TYPES = ["INSTANCE", "MIGRATION"]
PROJECTS, USERS = ["red", "blue"], ["ann", "bob"]
LATEST = 39
# More make Placement slow: without a limit it goes through every product.
PROVIDERS = 9
# What may stand where something else should.
BAD = [-1, 0, 1, 1.0, 1.5, 2**31, 2**62, True, None, "", "x", "VCPU", [], {}, [1], {"a": 1}]
BAD_TEXTS = ["", "x", "-1", "0", "!", "in:", "in:,", "VCPU", "VCPU:", "VCPU:0", "VCPU:a", "!in:x",
             "CUSTOM_NONE", "!CUSTOM_NONE", "in:CUSTOM_NONE,CUSTOM_RED", "CUSTOM_RED,", "a,b", "VCPU:1,,"]
SUFFIXES = ["1", "2", "_A", "_B"]


class World:
    """One random life of a server."""

    def __init__(self, seed, ask):
        self.random = random.Random(seed)
        self.ask = ask
        self.providers = self.ids(PROVIDERS)
        self.aggregates = self.ids(3)
        self.consumers = self.ids(6)

    def ids(self, count):
        return [str(uuid.UUID(int=self.random.getrandbits(128), version=4)) for _ in range(count)]

    # Chance, in words.

    def one(self, items):
        return self.random.choice(items)

    def often(self, chance):
        return self.random.random() < chance

    def some(self, items, most):
        return self.random.sample(items, self.random.randint(1, min(most, len(items))))

    def version(self, first=0):
        """Mostly one that has the thing; often the latest."""
        if self.often(0.03):
            return self.random.randint(0, LATEST)
        return LATEST if self.often(0.5) else self.random.randint(first, LATEST)

    # What is there now.

    def read(self, path):
        return json.loads(self.ask(Call("GET", path, "", None, LATEST)).body or "{}")

    def existing(self):
        return [provider["uuid"] for provider in self.read("/resource_providers")["resource_providers"]]

    def provider(self):
        existing = [] if self.often(0.05) else self.existing()
        return self.one(existing or self.providers)

    def generation(self, provider):
        now = self.read(f"/resource_providers/{provider}").get("generation", 0)
        return now if self.often(0.92) else max(0, now + self.one([-1, 1]))

    # The calls.

    def first(self):
        """What makes the names that the others use."""
        for name in CLASSES[3:]:
            yield Call("PUT", f"/resource_classes/{name}", "", None, LATEST)
        for name in TRAITS[2:]:
            yield Call("PUT", f"/traits/{name}", "", None, LATEST)
        yield from self.trees()

    def trees(self):
        """Two of them, so that the first searches find something."""
        for number, provider in enumerate(self.providers[:6]):
            parent = self.one(self.providers[number % 2 : number : 2]) if number > 1 else None
            path = f"/resource_providers/{provider}"
            body = {"name": f"p{number}", "uuid": provider, "parent_provider_uuid": parent}
            yield Call("POST", "/resource_providers", "", body, LATEST)
            total = {name: {"total": 16} for name in self.some(CLASSES, 5)}
            body = {"resource_provider_generation": 0, "inventories": total}
            yield Call("PUT", f"{path}/inventories", "", body, LATEST)

    def next(self):
        kinds = {
            self.make_provider: 8, self.change_provider: 5, self.delete_provider: 2,
            self.read_provider: 5, self.list_providers: 6, self.set_inventories: 12,
            self.one_inventory: 8, self.delete_inventories: 2, self.set_traits: 7,
            self.set_aggregates: 7, self.names: 5, self.allocate: 14, self.allocate_many: 5,
            self.delete_allocations: 3, self.read_allocations: 3, self.usages: 4,
            self.reshape: 3, self.candidates: 45,
        }
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        call = kind()
        if call.body is not None and self.often(0.08):
            call = call._replace(body=self.spoil(call.body))
        return call

    def make_provider(self):
        version = self.version()
        number = self.random.randrange(len(self.providers))
        body = {"name": f"p{number}", "uuid": self.providers[number]}
        if version >= 14 and self.often(0.6):
            body["parent_provider_uuid"] = self.provider() if self.often(0.9) else None
        if self.often(0.05):
            body["name"] = f"p{self.random.randrange(PROVIDERS)}"
        return Call("POST", "/resource_providers", "", body, version)

    def change_provider(self):
        version, provider = self.version(), self.provider()
        number = self.providers.index(provider)
        body = {"name": self.one([f"p{number}", f"q{number}", f"p{self.random.randrange(PROVIDERS)}"])}
        if version >= 14 and self.often(0.7):
            body["parent_provider_uuid"] = self.provider() if self.often(0.7) else None
        return Call("PUT", f"/resource_providers/{provider}", "", body, version)

    def delete_provider(self):
        return Call("DELETE", f"/resource_providers/{self.provider()}", "", None, self.version())

    def read_provider(self):
        part = self.one(["", "/inventories", "/usages", "/aggregates", "/traits", "/allocations"])
        if part == "/inventories" and self.often(0.5):
            part += f"/{self.one(CLASSES)}"
        return Call("GET", f"/resource_providers/{self.provider()}{part}", "", None, self.version(6))

    def list_providers(self):
        version, query = self.version(4), []
        wanted = self.some(["name", "uuid", "member_of", "resources", "in_tree", "required"], 2)
        for key in wanted:
            query.append((key, self.value_of(key, version)))
        return Call("GET", "/resource_providers", text_of(query), None, version)

    def inventory(self):
        total = self.one([1, 4, 8, 16])
        inventory = {"total": total}
        if self.often(0.3):
            inventory["reserved"] = self.one([0, 1, total, total + 1])
        if self.often(0.2):
            inventory["allocation_ratio"] = self.one([1, 1.5, 16.0, 0.3, 0.1])
        if self.often(0.2):
            inventory["min_unit"] = self.one([1, 2])
        if self.often(0.2):
            inventory["max_unit"] = self.one([1, 4, total])
        if self.often(0.1):
            inventory["step_size"] = self.one([1, 2])
        return inventory

    def inventories(self, provider):
        classes = self.some(CLASSES, 3)
        if self.often(0.03):
            classes.append("CUSTOM_NONE")
        own = {name: self.inventory() for name in classes}
        if self.often(0.7):
            # What is in use stays, as otherwise most would be refused.
            usages = self.read(f"/resource_providers/{provider}/usages").get("usages", {})
            own.update({name: self.inventory() for name, used in usages.items() if used})
        return {"resource_provider_generation": self.generation(provider), "inventories": own}

    def set_inventories(self):
        provider = self.provider()
        path = f"/resource_providers/{provider}/inventories"
        return Call("PUT", path, "", self.inventories(provider), self.version())

    def one_inventory(self):
        provider, name = self.provider(), self.one(CLASSES + ["CUSTOM_NONE"])
        path, version = f"/resource_providers/{provider}/inventories", self.version()
        body, verb = self.inventory(), self.one(["POST", "POST", "PUT", "PUT", "DELETE"])
        if verb == "DELETE":
            return Call(verb, f"{path}/{name}", "", None, version)
        if verb == "PUT" or self.often(0.2):
            body["resource_provider_generation"] = self.generation(provider)
        if verb == "PUT":
            return Call(verb, f"{path}/{name}", "", body, version)
        return Call(verb, path, "", {**body, "resource_class": name}, version)

    def delete_inventories(self):
        path = f"/resource_providers/{self.provider()}/inventories"
        return Call("DELETE", path, "", None, self.version(5))

    def set_traits(self):
        provider, version = self.provider(), self.version(6)
        path = f"/resource_providers/{provider}/traits"
        if self.often(0.1):
            return Call("DELETE", path, "", None, version)
        traits = self.some(TRAITS, 3) if self.often(0.9) else []
        if self.often(0.25):
            traits.append(SHARING)
        if self.often(0.04):
            traits.append(self.one(["CUSTOM_NONE", traits[0] if traits else "x"]))
        body = {"traits": traits, "resource_provider_generation": self.generation(provider)}
        return Call("PUT", path, "", body, version)

    def set_aggregates(self):
        provider, version = self.provider(), self.version(1)
        body = self.some(self.aggregates, 2) if self.often(0.9) else []
        if version >= 19:
            body = {"aggregates": body, "resource_provider_generation": self.generation(provider)}
        return Call("PUT", f"/resource_providers/{provider}/aggregates", "", body, version)

    def names(self):
        """Custom classes and traits."""
        version, verb = self.version(7), self.one(["GET", "GET", "PUT", "PUT", "DELETE"])
        if self.often(0.5):
            name = self.one([*TRAITS, "CUSTOM_NONE", "CUSTOM_EXTRA", "bad", "CUSTOM_bad"])
            if self.often(0.3):
                keys = [("name", self.one(["in:CUSTOM_RED,HW_CPU_X86_AVX", "startswith:CUSTOM", "x"]))]
                if self.often(0.5):
                    keys.append(("associated", self.one(["true", "false", "True", "x"])))
                return Call("GET", "/traits", text_of(keys), None, version)
            # CUSTOM_NONE is never made, so that there is a name that is unknown.
            verb = "GET" if name == "CUSTOM_NONE" else verb
            return Call(verb, f"/traits/{name}", "", None, version)
        name = self.one([*CLASSES, "CUSTOM_NONE", "CUSTOM_EXTRA", "bad"])
        verb = "GET" if name == "CUSTOM_NONE" else verb
        if self.often(0.15):
            body = {"name": self.one(["CUSTOM_EXTRA", "CUSTOM_GOLD", "VCPU", "x"])}
            return Call("POST", "/resource_classes", "", body, version)
        if self.often(0.15):
            body = {"name": self.one(["CUSTOM_EXTRA", "CUSTOM_GOLD", "VCPU", "x"])}
            path = f"/resource_classes/{self.one(['CUSTOM_EXTRA', 'VCPU'])}"
            return Call("PUT", path, "", body, self.random.randint(2, 6))
        return Call(verb, f"/resource_classes/{name}", "", None, version)

    def allocation(self, consumer, version):
        """The body of PUT /allocations/{consumer}."""
        takes = {}
        for _ in range(self.one([1, 1, 2, 3])):
            provider = self.provider()
            has = list(self.read(f"/resource_providers/{provider}/inventories").get("inventories", {}))
            classes = self.some(has, 2) if has and self.often(0.95) else [self.one(CLASSES)]
            takes[provider] = {name: self.one([1, 1, 1, 2, 3, 4]) for name in classes}
        body = {"allocations": {own: {"resources": what} for own, what in takes.items()}}
        if version < 12:
            body["allocations"] = [
                {"resource_provider": {"uuid": own}, "resources": what} for own, what in takes.items()
            ]
        elif version >= 28 and self.often(0.1):
            body["allocations"] = {}
        if version >= 8:
            body.update(project_id=self.one(PROJECTS), user_id=self.one(USERS))
        if version >= 28:
            now = self.read(f"/allocations/{consumer}").get("consumer_generation")
            body["consumer_generation"] = now if self.often(0.9) else self.one([None, 0, 1, 7])
        if version >= 34 and self.often(0.1):
            body["mappings"] = {"": list(takes)}
        if version >= 38:
            body["consumer_type"] = self.one([*TYPES, "unknown"] if self.often(0.1) else TYPES)
        return body

    def allocate(self):
        version, consumer = self.version(), self.one(self.consumers)
        return Call("PUT", f"/allocations/{consumer}", "", self.allocation(consumer, version), version)

    def many(self, version):
        consumers = self.some(self.consumers, 3)
        return {consumer: self.allocation(consumer, max(version, 13)) for consumer in consumers}

    def allocate_many(self):
        version = self.version(13)
        return Call("POST", "/allocations", "", self.many(version), version)

    def delete_allocations(self):
        path = f"/allocations/{self.one(self.consumers)}"
        return Call("DELETE", path, "", None, self.version())

    def read_allocations(self):
        return Call("GET", f"/allocations/{self.one(self.consumers)}", "", None, self.version())

    def usages(self):
        version, query = self.version(9), [("project_id", self.one([*PROJECTS, "nobody"]))]
        if self.often(0.4):
            query.append(("user_id", self.one(USERS)))
        if version >= 38 and self.often(0.6):
            query.append(("consumer_type", self.one([*TYPES, "all", "unknown", "bad", "NONE"])))
        return Call("GET", "/usages", text_of(query), None, version)

    def reshape(self):
        version = self.version(30)
        providers = {self.provider() for _ in range(self.one([1, 2, 3]))}
        inventories = {provider: self.inventories(provider) for provider in sorted(providers)}
        for record in (one for own in inventories.values() for one in own["inventories"].values()):
            if self.often(0.95):
                record["reserved"] = 0
        allocations = self.many(max(version, 30)) if self.often(0.7) else {}
        body = {"inventories": inventories, "allocations": allocations}
        return Call("POST", "/reshaper", "", body, version)

    def value_of(self, key, version):
        """A value of a parameter of a query."""
        if self.often(0.03):
            return self.one(BAD_TEXTS)
        if key == "resources":
            amounts = {name: self.one([1, 1, 1, 2, 3]) for name in self.some(CLASSES, self.one([1, 1, 2, 3]))}
            return ",".join(f"{name}:{amount}" for name, amount in amounts.items())
        if key in ("required", "root_required"):
            if version >= 39 and key == "required" and self.often(0.25):
                return "in:" + ",".join(self.some(TRAITS, 3))
            signs = ["", "", "!"] if version >= 22 else [""]
            return ",".join(self.one(signs) + name for name in self.some(TRAITS, self.one([1, 1, 2])))
        if key == "member_of":
            sign = "!" if version >= 32 and self.often(0.25) else ""
            if self.often(0.5):
                return f"{sign}in:" + ",".join(self.some(self.aggregates, 2))
            return sign + self.one(self.aggregates)
        if key in ("in_tree", "uuid"):
            return self.provider()
        return f"p{self.random.randrange(PROVIDERS)}"

    def group(self, suffix, version):
        query = []
        if version < 36 or not suffix or self.often(0.8):
            query.append((f"resources{suffix}", self.value_of("resources", version)))
        # Most groups ask for little, so that something is found.
        for key, first, repeats in (("required", 17, 39), ("member_of", 21, 24)):
            times = self.one([0, 0, 1, 1, 2]) if version >= repeats else self.one([0, 1])
            if version >= first and self.often(0.4):
                query += [(key + suffix, self.value_of(key, version)) for _ in range(times)]
        if version >= 31 and self.often(0.12):
            query.append((f"in_tree{suffix}", self.value_of("in_tree", version)))
        return query

    def candidates(self):
        version, query, suffixes = self.version(10), [], []
        if version >= 25 and self.often(0.5):
            named = SUFFIXES if version >= 33 else SUFFIXES[:2]
            suffixes = sorted(self.some(named, self.one([1, 2, 3])))
        if not suffixes or self.often(0.6):
            query += self.group("", version)
        for suffix in suffixes:
            query += self.group(suffix, version)
        if suffixes and self.often(0.9):
            query.append(("group_policy", self.one(["none", "none", "isolate"])))
        if version >= 36 and suffixes:
            without = [suffix for suffix in suffixes if f"resources{suffix}" not in dict(query)]
            if without or self.often(0.4):
                together = sorted({*without, *self.some(suffixes, 3)})
                query.append(("same_subtree", ",".join(together)))
        if version >= 35 and self.often(0.12):
            query.append(("root_required", self.value_of("root_required", version)))
        if version >= 16 and self.often(0.15):
            query.append(("limit", self.one(["1", "2", "5", "1000"])))
        if self.often(0.02):
            query.append((self.one(["bad", "limit", "in_tree", "same_subtree"]), self.one(BAD_TEXTS)))
        return Call("GET", "/allocation_candidates", text_of(query), None, version)

    def spoil(self, body):
        """A copy that is wrong in one place."""
        body = json.loads(json.dumps(body))
        # Without a uuid each server would take one of its own.
        places = [place for place in inner(body) if place[1] != "uuid"]
        if not places:
            return self.one(BAD)
        where, key = self.one(places)
        change = self.one(["set", "set", "drop", "add"])
        if change == "set":
            where[key] = self.one(BAD)
        elif change == "drop":
            del where[key]
        elif isinstance(where, dict):
            where[self.one(["x", "VCPU", "generation", "CUSTOM_NONE"])] = self.one(BAD)
        else:
            where.append(self.one(BAD))
        return body


def inner(value):
    """Every place inside of a JSON value."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from inner(value[key])


def text_of(query):
    return "&".join(f"{key}={quote(value, safe=':,!')}" for key, value in query)
