"""Writes down what an operator and a real API server sent each other, in the form that
`csi/operator/src/deployment/tests/recorded.rs` reads.

Only what passes send is kept: no watches, no leases. A pass that is the same as the one before it is left
out. No certificate and no key is written: each is replaced by a word, and the one of the authority by those
that the test knows. Each body is written once.
"""
import base64
import json
import threading
import urllib.parse

AUTHORITY = {"ca.pem": b"ca", "ca-key.pem": b"ca-key"}
# The first request of every pass.
FIRST = "/apis/pmem-csi.intel.com/v1alpha1/deployments"


class Exchanges:
    def __init__(self):
        self.lock = threading.Lock()
        self.all = []

    def add(self, method, path, accept, request, status, response):
        if not of_pass(path, accept):
            return
        with self.lock:
            self.all.append((method, path, request, status, response))

    def write(self, file, resource, hosts):
        with self.lock:
            recording = Recording(resource, hosts, list(self.all))
        with open(file, "w", encoding="utf-8") as out:
            out.write(recording.text())
        return len(self.all)


def of_pass(path, accept):
    """Whether a pass sends this; lists of watches are in pages, as only those of nodes are in a pass."""
    location, _, query = path.partition("?")
    query = urllib.parse.parse_qs(query)
    if "watch" in query or "/leases" in location or "PartialObjectMetadata" in (accept or ""):
        return False
    return "limit" not in query or (location == "/api/v1/nodes" and "labelSelector" in query)


class Recording:
    def __init__(self, resource, hosts, exchanges):
        self.resource, self.hosts = resource, hosts
        self.words, self.bodies, self.index = {}, [], {}
        self.passes = []
        for method, path, request, status, response in exchanges:
            if path.partition("?")[0] == FIRST:
                self.passes.append([])
            self.passes[-1].append({
                "method": method, "path": path, "request": self.body(request), "status": status,
                "response": self.body(response)})

    def word(self, value):
        """One of the certificates or keys."""
        if value not in self.words:
            text = f"file-{len(self.words)}".encode()
            self.words[value] = base64.b64encode(text).decode()
        return self.words[value]

    def cleaned(self, value):
        if isinstance(value, list):
            return [self.cleaned(one) for one in value]
        if not isinstance(value, dict):
            return value
        value = {key: self.cleaned(one) for key, one in value.items() if key != "managedFields"}
        if "items" in value:
            # It differs from list to list, and passes do not read it.
            value.get("metadata", {}).pop("resourceVersion", None)
        if "caBundle" in value:
            value["caBundle"] = self.word(value["caBundle"])
        metadata = value.get("metadata", {})
        is_secret = "data" in value and (value.get("kind") == "Secret" or "type" in value)
        if is_secret and metadata.get("name") == "berth-csi-authority":
            value["data"] = {name: base64.b64encode(text).decode()
                             for name, text in AUTHORITY.items()}
        elif is_secret:
            value["data"] = {name: self.word(one) for name, one in value["data"].items()}
        return value

    def body(self, body):
        if not body:
            return None
        cleaned = self.cleaned(json.loads(body))
        text = json.dumps(cleaned, sort_keys=True)
        if text not in self.index:
            self.index[text] = len(self.bodies)
            self.bodies.append(text)
        return self.index[text]

    def text(self):
        """A line for each body and each exchange."""
        before = [None, *self.passes]
        kept = [made for made, earlier in zip(self.passes, before) if made != earlier]
        exchanges = [json.dumps(one) for made in kept for one in made]
        return ('{"resource": %s, "hosts": %s,\n"bodies": [\n%s\n],\n"exchanges": [\n%s\n]}\n' % (
            json.dumps(self.resource), json.dumps(self.hosts), ",\n".join(self.bodies),
            ",\n".join(exchanges)))
