#!/usr/bin/env python3
"""Runs `berth-csi-operator` against a real API server, and checks what it makes, reverts and refuses.

  KUBERNETES_BIN=... BERTH_BIN=target/debug tests/long/kubernetes/operate.py

| variable | meaning |
|---|---|
| KUBERNETES_BIN | folder with kube-apiserver and kube-controller-manager; kubectl may be on the PATH |
| BERTH_BIN | folder with Berth's programs; target/debug |
| ETCD | etcd; the one on the PATH |

There is no kubelet: pods never run, and this program marks them as ready. Everything else is real: the
API server with its permissions and audit log, the controllers of DaemonSets and Deployments, garbage
collection, Berth's scheduler with simulated hosts, certificates on all connections.

Needs root or user namespaces, unshare, ip and openssl. Everything runs in namespaces in which there is
only loopback, and ends with this program.
"""
import argparse
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from breaker import Breaker
from exchanges import Exchanges
from objects import node
from place import MACHINE, Place, Refused, enter, wait

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
DEPLOY = os.path.join(ROOT, "deploy/kubernetes/operator")
# Regions in GiB.
HOSTS = {"n1": [64], "n2": [64], "n3": [64], "n4": [64], "n5": [64]}
LABELS = {"n1": {"storage": "pmem"}, "n2": {"storage": "pmem"}, "n3": {"storage": "other"},
          "n4": {"storage": "upgraded"}, "n5": {"storage": "upgraded"}}
ALPHA = "/apis/pmem-csi.intel.com/v1alpha1/deployments"
BETA = "/apis/pmem-csi.intel.com/v1beta1/pmemcsideployments"
OWN = "/apis/berth.internal/v1alpha1/berthstorages"
NAMES = {ALPHA: "Deployment", BETA: "PmemCSIDeployment", OWN: "BerthStorage"}
INSIDE = "/api/v1/namespaces/berth"
APPS = "/apis/apps/v1/namespaces/berth"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OPERATOR = "system:serviceaccount:berth:berth-csi-operator"
BREAKER = 6444
LEASE_MS = 6000
# How long is waited for anything, in seconds; the machine may be busy.
PATIENCE = 240


def check(what, value, expected):
    if value != expected:
        raise SystemExit(f"{what}: expected {expected!r}, got {value!r}")
    print(f"ok: {what}", flush=True)


def objects_of(name):
    """The paths of all objects of a deployment."""
    prefix = name.replace(".", "-")
    controller, agents = f"{prefix}-controller", f"{prefix}-node"
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    return [
        f"{INSIDE}/serviceaccounts/{controller}", f"{INSIDE}/serviceaccounts/{agents}",
        f"{RBAC}/clusterroles/{controller}", f"{RBAC}/clusterrolebindings/{controller}",
        f"{RBAC}/namespaces/berth/roles/{controller}",
        f"{RBAC}/namespaces/berth/rolebindings/{controller}",
        f"/apis/storage.k8s.io/v1/csidrivers/{name}",
        f"{INSIDE}/secrets/{agents}-tls", f"{INSIDE}/configmaps/{agents}",
        f"{APPS}/daemonsets/{agents}",
        f"{INSIDE}/secrets/{controller}-tls", f"{INSIDE}/configmaps/{controller}",
        f"{INSIDE}/services/{controller}", f"{APPS}/deployments/{controller}",
        f"{hooks}/{prefix}",
    ]


class Operators:
    """The operator's processes, each with its log."""

    def __init__(self, place):
        self.place = place
        self.count = 0

    def start(self, port=6443):
        self.count += 1
        name = f"operator-{self.count}"
        place = self.place
        token = place.kubectl("create", "token", "-n", "berth", "berth-csi-operator",
                              "--duration=10h")
        config = json.loads(open(place.kubeconfig("operator"), encoding="utf-8").read())
        config["users"][0]["user"]["token"] = token.strip()
        config["clusters"][0]["cluster"]["server"] = f"https://{MACHINE}:{port}"
        path = place.write(f"kubeconfig-{name}", json.dumps(config))
        place.start(name, [
            place.own("berth-csi-operator"), f"--config={place.file('operator.toml')}",
            *place.shown("reader", "operator")], {"KUBECONFIG": path, "POD_NAME": name})
        def started():
            with open(place.file("logs", name), encoding="utf-8") as log:
                return "started" in log.read()
        wait(f"{name} is started", started)
        return name

    def stop(self, name):
        """Ends it as a kubelet does: it gives up its lease."""
        process = self.place.running.pop(name)
        process.terminate()
        check_exit = process.wait(20)
        if check_exit != 0:
            raise SystemExit(f"{name} ended with {check_exit}")

    def kill(self, name):
        self.place.end(name)


def daemon_node(pod):
    """The node for which the controller of DaemonSets has made a pod."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", []):
        for field in term.get("matchFields", []):
            if field["key"] == "metadata.name":
                return field["values"][0]
    return None


def running(pod):
    """The status that a kubelet reports of a pod that has become ready."""
    # Without the time, no controller ever counts the pod as available.
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    containers = [{"name": one["name"], "image": one["image"], "imageID": "", "ready": True,
                   "restartCount": 0, "state": {"running": {"startedAt": now}}}
                  for one in pod["spec"]["containers"]]
    return {"phase": "Running", "containerStatuses": containers, "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": now}]}


class Kubelet(threading.Thread):
    """Binds each agent's pod to its node and marks every pod as ready, as nothing else does here."""

    def __init__(self, place):
        super().__init__(daemon=True)
        self.place = place

    def run(self):
        while True:
            try:
                self.round()
            except (OSError, Refused, ValueError):
                pass
            time.sleep(0.1)

    def round(self):
        for pod in self.place.call("GET", f"{INSIDE}/pods")["items"]:
            name, state = pod["metadata"]["name"], pod.get("status", {})
            ready = any(c["type"] == "Ready" and c["status"] == "True"
                        for c in state.get("conditions", []))
            node = daemon_node(pod)
            if node and "nodeName" not in pod["spec"]:
                self.place.call("POST", f"{INSIDE}/pods/{name}/binding", {
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"kind": "Node", "name": node}})
            if not ready and "deletionTimestamp" not in pod["metadata"]:
                self.place.call("PATCH", f"{INSIDE}/pods/{name}/status", {"status": running(pod)})
            if "deletionTimestamp" in pod["metadata"]:
                self.place.call("DELETE", f"{INSIDE}/pods/{name}?gracePeriodSeconds=0")


class Run:
    def __init__(self, place):
        self.place = place
        self.operators = Operators(place)
        self.operator = None
        self.breaker = None

    # Helpers.

    def get(self, path):
        try:
            return self.place.call("GET", path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def make(self, api, name, spec, **metadata):
        version = api.removeprefix("/apis/").rsplit("/", 1)[0]
        return self.place.call("POST", f"{api}?fieldValidation=Strict", {
            "apiVersion": version, "kind": NAMES[api], "metadata": {"name": name, **metadata},
            "spec": spec})

    def status(self, api, name):
        return self.get(f"{api}/{name}").get("status", {})

    def wait_phase(self, api, name, phase, text=""):
        def look():
            status = self.status(api, name)
            is_it = status.get("phase") == phase and text in status.get("reason", "")
            return status if is_it else None
        return wait(f"{name} is {phase} {text}", look, PATIENCE, lambda: self.status(api, name))

    def drop(self, api, name):
        """Deletes a deployment, and waits for the garbage collector."""
        self.place.call("DELETE", f"{api}/{name}")
        wait(f"{name} is deleted", lambda: not self.get(f"{api}/{name}"), PATIENCE,
             lambda: self.status(api, name))
        for path in objects_of(name):
            wait(f"{path} is deleted", lambda path=path: not self.get(path))

    def writes(self, start=0):
        """The writes of the operators so far, without renewals of the lease."""
        made = []
        with open(self.place.file("audit.log"), encoding="utf-8") as file:
            file.seek(start)
            for line in file:
                if not line.endswith("\n"):
                    break
                entry = json.loads(line)
                target = entry.get("objectRef", {})
                if entry["user"]["username"] == OPERATOR and target.get("resource") != "leases":
                    made.append((entry["verb"], target.get("resource"), target.get("name"),
                                 entry.get("responseStatus", {}).get("code")))
        return made

    def position(self):
        return os.path.getsize(self.place.file("audit.log"))

    def events(self, name):
        path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}"
        return [(one["reason"], one["message"]) for one in self.place.call("GET", path)["items"]]

    def settled(self, seconds=1.0):
        """Waits until the operator has made no write for so long."""
        last, since = self.position(), time.monotonic()
        while time.monotonic() - since < seconds:
            time.sleep(0.1)
            if self.writes(last):
                last, since = self.position(), time.monotonic()

    # The setup.

    def start(self):
        place = self.place
        place.start_berth(HOSTS)
        place.certs("issue", "certs", "--role", "reader", "--name", "operator")
        place.start_kubernetes(audit=True)
        self.configure(LEASE_MS)
        apply = ["apply", "--server-side", "--validate=strict", "-f"]
        for name in ["crds", "rbac", "operator"]:
            place.kubectl(*apply, f"{DEPLOY}/{name}.yaml")
            print(f"ok: {name}.yaml is accepted", flush=True)
        # Its pods would be marked as ready, and are not what runs here.
        place.kubectl("delete", "-n", "berth", "deployment", "berth-csi-operator")
        for api in NAMES:
            wait(f"{api} is served", lambda api=api: self.get(api))
        for name, labels in LABELS.items():
            made, status = node(name, False)
            made["metadata"]["labels"] |= labels
            place.call("POST", "/api/v1/nodes", made)
            place.call("PATCH", f"/api/v1/nodes/{name}/status", status)
            place.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        Kubelet(place).start()
        self.breaker = Breaker(place.file("apiserver.crt"), place.file("apiserver.key"),
                               place.file("ca.crt"), (MACHINE, 6443))
        self.breaker.listen(MACHINE, BREAKER)
        self.operator = self.operators.start()

    def configure(self, lease_ms):
        self.place.write("operator.toml", f"""
schedulers = ["127.0.0.1:7100"]
namespace = "berth"
image = "berth:test"
lease_ms = {lease_ms}
poll_ms = 500
log_filter = "info,berth_csi_operator=debug,kube_client=off"
""")

    def make_authority(self):
        self.place.kubectl("create", "secret", "generic", "-n", "berth", "berth-csi-authority",
                           "--from-file=certs/ca.pem", "--from-file=certs/ca-key.pem")

    def record(self, file):
        """Writes down what an operator sends over the whole life of one deployment."""
        self.operators.stop(self.operator)
        self.make_authority()
        # A pass in which the lease is lost, or that fails for another reason, is not one to be repeated.
        self.configure(60_000)
        operator, name = self.operators.start(BREAKER), "rec.example"
        wait("it leads", lambda: self.holder() == operator)
        self.settled()
        self.breaker.exchanges = Exchanges()
        drivers = "/apis/storage.k8s.io/v1/csidrivers"
        self.place.call("POST", drivers, {
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": name},
            "spec": {"attachRequired": True}})
        self.make(BETA, name, {"nodeSelector": {"storage": "other"}, "maxUnavailable": 1})
        self.wait_phase(BETA, name, "Failed", "is not owned by this deployment")
        self.place.call("DELETE", f"{drivers}/{name}")
        self.wait_phase(BETA, name, "Running")
        self.settled()
        agents = f"{APPS}/daemonsets/rec-example-node"
        self.place.call("PATCH", f"{agents}?fieldManager=other", {
            "spec": {"template": {"spec": {"hostNetwork": False}}}})
        wait("the edit is reverted", lambda: self.get(
            agents)["spec"]["template"]["spec"].get("hostNetwork"))
        self.wait_phase(BETA, name, "Running")
        self.settled()
        self.place.call("PATCH", f"{BETA}/{name}", {"spec": {"image": "berth:2", "mutatePods": "Never"}})
        wait("the agent is upgraded", lambda: self.pod_of("rec-example-node", "berth:2"))
        self.wait_phase(BETA, name, "Running")
        self.settled()
        self.drop(BETA, name)
        self.settled()
        self.operators.stop(operator)
        with open(self.place.file("logs", operator), encoding="utf-8") as log:
            faults = [line for line in log if "a pass failed" in line or "lost leadership" in line]
        check("no pass failed", faults, [])
        count = self.breaker.exchanges.write(file, name, ["n3"])
        print(f"{count} exchanges in {file}, {os.path.getsize(file)} bytes", flush=True)

    def pod_of(self, agents, image):
        """The pod of these agents with this image, if there is one."""
        for pod in self.place.call("GET", f"{INSIDE}/pods")["items"]:
            if pod["metadata"]["name"].startswith(f"{agents}-") and any(
                    one["image"] == image for one in pod["spec"]["containers"]):
                return pod
        return None

    # The cases.

    def without_authority(self):
        self.make(OWN, "early.example", {})
        status = self.wait_phase(OWN, "early.example", "Failed", "no secret berth-csi-authority")
        ready = [c["status"] for c in status["conditions"] if c["type"] == "CertsReady"]
        check("without an authority no certificate is made, and it says so", ready, ["False"])
        check("and one event says it", [r for r, _ in self.events("early.example")], ["Failed"])
        self.make_authority()
        self.wait_phase(OWN, "early.example", "Running")
        print("ok: with the authority it is deployed", flush=True)
        self.drop(OWN, "early.example")
        print("ok: all its objects are deleted with it", flush=True)

    def specified(self):
        """The example of the specification, as it is typed."""
        self.place.kubectl("create", "-f", f"{ROOT}/csi/operator/testdata/specification.yaml")
        self.wait_phase(ALPHA, "pmem-csi.intel.com", "Running")
        owners = {tuple(o["kind"] for o in self.get(p)["metadata"]["ownerReferences"])
                  for p in objects_of("pmem-csi.intel.com")}
        check("a Deployment of v1alpha1 runs, and owns its 15 objects", owners, {("Deployment",)})
        check("its events", sorted(r for r, _ in self.events("pmem-csi.intel.com")),
              ["NewDeployment", "Running"])
        table = self.place.kubectl("get", "deployments.pmem-csi.intel.com")
        check("kubectl shows its columns", table.split()[:7], [
            "NAME", "DEVICEMODE", "NODESELECTOR", "IMAGE", "STATUS", "AGE", "pmem-csi.intel.com"])
        cert = self.get(f"{INSIDE}/secrets/pmem-csi-intel-com-node-tls")["data"]
        check("each selected node has a certificate", sorted(cert), [
            "agent-n1-key.pem", "agent-n1.pem", "agent-n2-key.pem", "agent-n2.pem", "ca.pem"])

    def quiet(self, minutes):
        self.settled()
        start = self.position()
        time.sleep(minutes * 60)
        check(f"no write in {minutes} quiet minutes", self.writes(start), [])

    def deleted(self):
        for path in objects_of("pmem-csi.intel.com"):
            before = self.get(path)["metadata"]["uid"]
            begun = time.monotonic()
            self.place.call("DELETE", f"{path}?propagationPolicy=Background")
            while True:
                now = self.get(path)
                if now and now["metadata"]["uid"] != before:
                    break
                if time.monotonic() - begun > 10:
                    raise SystemExit(f"{path} does not come back")
                time.sleep(0.01)
            took = time.monotonic() - begun
            print(f"ok: {path.rsplit('/', 2)[-2]} came back after {took * 1000:.0f} ms", flush=True)
            self.slowest = max(getattr(self, "slowest", 0), took)
            self.settled(0.5)
        check("each of 15 deleted objects comes back within a second", self.slowest < 1, True)

    def conflicts(self, name):
        """Edits of others: where, what, what shows it, and what that is when it is reverted."""
        prefix = name.replace(".", "-")
        return [
            (f"{APPS}/deployments/{prefix}-controller",
             {"spec": {"replicas": 3}}, lambda o: o["spec"]["replicas"], 1),
            (f"{APPS}/daemonsets/{prefix}-node",
             {"spec": {"template": {"spec": {"hostNetwork": False}}}},
             lambda o: o["spec"]["template"]["spec"].get("hostNetwork"), True),
        ]

    def edited(self):
        for path, edit, value, expected in self.conflicts("pmem-csi.intel.com"):
            begun = time.monotonic()
            self.place.call("PATCH", f"{path}?fieldManager=someone-else", edit)
            wait(f"{path} is reverted", lambda: value(self.get(path)) == expected, 10)
            took = time.monotonic() - begun
            check(f"a conflicting edit of {path.rsplit('/', 2)[-2]} is reverted within a second",
                  took < 1, True)
            self.settled(0.5)

    def fields_of(self, name):
        """Each field of a deployment: its new value, what shows its effect, and what that is then."""
        prefix = name.replace(".", "-")
        agents, controller = f"{APPS}/daemonsets/{prefix}-node", f"{APPS}/deployments/{prefix}-controller"
        files = f"{INSIDE}/configmaps/{prefix}-node"
        def container(path, index, key):
            return lambda: self.get(path)["spec"]["template"]["spec"]["containers"][index].get(key)
        def text():
            return self.get(files)["data"]["compute-agent.toml"]
        few = {"requests": {"cpu": "1", "memory": "1Gi"}}
        return {
            "image": ("berth:other", container(agents, 0, "image"), "berth:other"),
            "imagePullPolicy": ("Always", container(controller, 0, "imagePullPolicy"), "Always"),
            "provisionerImage": ("p:1", container(controller, 1, "image"), "p:1"),
            "nodeRegistrarImage": ("r:1", container(agents, 1, "image"), "r:1"),
            "controllerDriverResources": (few, container(controller, 0, "resources"), few),
            "nodeDriverResources": (few, container(agents, 0, "resources"), few),
            "provisionerResources": (few, container(controller, 1, "resources"), few),
            "nodeRegistrarResources": (few, container(agents, 1, "resources"), few),
            "controllReplicas": (2, lambda: self.get(controller)["spec"]["replicas"], 2),
            "logLevel": (5, lambda: 'log_filter = "debug"' in text(), True),
            "logFormat": ("json", lambda: 'log_format = "json"' in text(), True),
            "nodeSelector": ({"storage": "other", "kubernetes.io/os": "linux"}, lambda: self.get(
                agents)["spec"]["template"]["spec"]["nodeSelector"],
                {"storage": "other", "kubernetes.io/os": "linux"}),
            "pmemPercentage": (50, lambda: "fsdax_percent = 50" in text(), True),
            "labels": ({"team": "blue"}, lambda: self.get(agents)["metadata"]["labels"].get("team"),
                       "blue"),
            "kubeletDir": ("/var/lib/other", lambda: "--kubelet-registration-path=/var/lib/other"
                           f"/plugins/{name}/csi.sock" in container(agents, 1, "args")(), True),
        }

    def updates(self):
        """15 fields and all at once, on defaults and on values, running and stopped: 64."""
        name = "up.example"
        fields = self.fields_of(name)
        values = {
            "image": "berth:value", "imagePullPolicy": "Never", "provisionerImage": "p:0",
            "nodeRegistrarImage": "r:0", "controllReplicas": 1, "logLevel": 1, "logFormat": "text",
            "pmemPercentage": 90, "labels": {"team": "red"}, "kubeletDir": "/var/lib/values",
        }
        done = 0
        for base in ({}, values):
            base = {**base, "nodeSelector": {"storage": "other"}}
            for is_running in (True, False):
                for changed in [*[[field] for field in fields], list(fields)]:
                    self.make(BETA, name, base)
                    self.wait_phase(BETA, name, "Running")
                    if not is_running:
                        self.operators.stop(self.operator)
                    self.place.call("PATCH", f"{BETA}/{name}?fieldValidation=Strict", {
                        "spec": {field: fields[field][0] for field in changed}})
                    if not is_running:
                        self.operator = self.operators.start()
                    for field in changed:
                        _, value, expected = fields[field]
                        wait(f"{field} has its effect", lambda: value() == expected, PATIENCE,
                             lambda: (base, is_running, value(), expected))
                    generation = self.get(f"{BETA}/{name}")["metadata"]["generation"]
                    wait("the status is about it", lambda: self.status(
                        BETA, name).get("observedGeneration") == generation)
                    self.wait_phase(BETA, name, "Running")
                    self.drop(BETA, name)
                    done += 1
        check("updates that had their effect", done, 64)

    def validated(self):
        def accepted(spec):
            try:
                self.place.call("POST", f"{BETA}?dryRun=All&fieldValidation=Strict", {
                    "apiVersion": "pmem-csi.intel.com/v1beta1", "kind": "PmemCSIDeployment",
                    "metadata": {"name": "valid.example"}, "spec": spec})
            except Refused as refused:
                return refused.status
            return True
        for spec, expected in [
            ({"pmemPercentage": 50}, True), ({"pmemPercentage": 0}, True),
            ({"pmemPercentage": 101}, 422), ({"deviceMode": "lvm"}, True),
            ({"deviceMode": "direct"}, True), ({"deviceMode": "noSuchMode"}, 422),
            ({"logFormat": "text"}, True), ({"logFormat": "json"}, True),
            ({"logFormat": "other"}, 422), ({"unknownField": 1}, 400),
            ({"nodeDriverResources": {"limits": {"cpu": "much"}}}, 422),
            ({"nodeDriverResources": {"limits": {"cpu": 1}}}, True),
        ]:
            check(f"{json.dumps(spec)}: {expected}", accepted(spec), expected)
        half = {"registryCert": base64.b64encode(b"x").decode()}
        try:
            self.make(ALPHA, "half.example", half)
        except Refused as refused:
            check("a certificate without its key is refused by the API server",
                  (refused.status, "given together" in refused.message), (422, True))
        else:
            raise SystemExit("half a pair was accepted")
        try:
            self.make(OWN, "n" * 64, {})
        except Refused as refused:
            check("a name that is too long is refused", refused.status, 422)
        else:
            raise SystemExit("a name of 64 characters was accepted")

    def foreign(self):
        """An object of another owner in the way."""
        path = "/apis/storage.k8s.io/v1/csidrivers"
        self.place.call("POST", path, {
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": "taken.example"}, "spec": {"attachRequired": True}})
        self.make(BETA, "taken.example", {"nodeSelector": {"storage": "other"}})
        self.wait_phase(BETA, "taken.example", "Failed", "CSIDriver taken.example exists")
        self.settled()
        check("a foreign object is not touched",
              self.get(f"{path}/taken.example")["spec"]["attachRequired"], True)
        failed = [m for r, m in self.events("taken.example") if r == "Failed"]
        check("one event names it", (len(failed), "CSIDriver" in failed[0]), (1, True))
        self.place.call("DELETE", f"{path}/taken.example")
        self.wait_phase(BETA, "taken.example", "Running")
        print("ok: it recovers when the foreign object is deleted", flush=True)
        self.drop(BETA, "taken.example")

    def spec_with_certificates(self, prefix):
        """A spec with its own certificates, for the service of this deployment. The agents' is for all
        nodes: only one of this name may be."""
        place, names = self.place, (f"{prefix}-registry", "pmem-node-controller")
        place.certs("issue", "certs", "--role", "csi-controller", "--name", names[0],
                    "--dns", f"{prefix}-controller.berth.svc")
        if not os.path.exists(place.file("certs", f"agent-{names[1]}.pem")):
            place.certs("issue", "certs", "--role", "agent", "--name", names[1], "--dns", "n3")
        def read(file):
            with open(place.file("certs", file), "rb") as opened:
                return base64.b64encode(opened.read()).decode()
        return {
            "nodeSelector": {"storage": "other"}, "caCert": read("ca.pem"),
            "registryCert": read(f"csi-controller-{names[0]}.pem"),
            "registryKey": read(f"csi-controller-{names[0]}-key.pem"),
            "nodeControllerCert": read(f"agent-{names[1]}.pem"),
            "nodeControllerKey": read(f"agent-{names[1]}-key.pem"),
        }

    def given_certificates(self):
        place, name = self.place, "given.example"
        spec = self.spec_with_certificates("given-example")
        self.make(ALPHA, name, {**spec, "registryKey": spec["nodeControllerKey"]})
        self.wait_phase(ALPHA, name, "Failed", "the key is not that of the certificate")
        print("ok: a key of another certificate is a fault", flush=True)
        place.call("PATCH", f"{ALPHA}/{name}", {"spec": spec})
        self.wait_phase(ALPHA, name, "Running")
        data = self.get(f"{INSIDE}/secrets/given-example-controller-tls")["data"]
        check("given certificates are used as they are", data["cert.pem"], spec["registryCert"])
        self.drop(ALPHA, name)

    def several(self):
        self.make(OWN, "second.example", {"nodeSelector": {"storage": "other"}})
        self.wait_phase(OWN, "second.example", "Running")
        self.make(BETA, "third.example", {"nodeSelector": {"kubernetes.io/os": "linux"}})
        self.wait_phase(BETA, "third.example", "Failed", "selects the same nodes")
        check("two deployments run, and one that selects their nodes is refused",
              self.get(f"{APPS}/daemonsets/third-example-node"), None)
        self.place.call("PATCH", f"{BETA}/third.example", {"spec": {"nodeSelector": {"no": "node"}}})
        wait("the third is deployed", lambda: self.get(f"{APPS}/daemonsets/third-example-node"))
        self.drop(BETA, "third.example")
        long = "a-name-with.many.dots-in-it.and-63-characters-altogether.example"[:63]
        self.make(BETA, long, {"nodeSelector": {"no": "node"}})
        wait("a driver with dots and the longest name is deployed",
             lambda: self.get(f"/apis/storage.k8s.io/v1/csidrivers/{long}"))
        self.settled()
        check("and is not refused", self.status(BETA, long).get("phase") != "Failed", True)
        self.place.call("DELETE", f"{BETA}/{long}")
        wait("it is deleted", lambda: not self.get(f"{BETA}/{long}"))
        self.drop(OWN, "second.example")

    def volumes(self):
        place, name = self.place, "vol.example"
        self.make(BETA, name, {"nodeSelector": {"storage": "other"}})
        self.wait_phase(BETA, name, "Running")
        place.ask_berth("volume", "create", "data", "--size=1GiB", "--host=n3", "--wait")
        place.call("PATCH", f"{BETA}/{name}", {"spec": {"deviceMode": "direct"}})
        self.wait_phase(BETA, name, "Failed", "while there are volumes: data")
        check("another device mode is refused with the volume, and the agents stay", "manager = \"lvm\""
              in self.get(f"{INSIDE}/configmaps/vol-example-node")["data"]["compute-agent.toml"], True)
        place.call("PATCH", f"{BETA}/{name}", {"spec": {"deviceMode": "lvm"}})
        self.wait_phase(BETA, name, "Running")
        place.call("PATCH", f"{BETA}/{name}", {"spec": {"nodeSelector": {"no": "node"}}})
        self.wait_phase(BETA, name, "Failed", "data on n3")
        print("ok: a selector that leaves the volume's node out is refused", flush=True)
        place.call("PATCH", f"{BETA}/{name}", {"spec": {"nodeSelector": {"no": None, "storage": "other"}}})
        self.wait_phase(BETA, name, "Running")
        place.call("DELETE", f"{BETA}/{name}")
        self.wait_phase(BETA, name, "Failed", "the deletion waits for volumes: data")
        agents = f"{APPS}/daemonsets/vol-example-node"
        place.call("DELETE", agents)
        wait("the agents come back while the deletion waits", lambda: self.get(agents))
        print("ok: a deletion waits for the volume, and the agents are kept", flush=True)
        place.ask_berth("volume", "delete", "data")
        wait("the deletion goes on without the volume", lambda: not self.get(f"{BETA}/{name}"), PATIENCE,
             lambda: self.status(BETA, name))
        for path in objects_of(name):
            wait(f"{path} is deleted", lambda path=path: not self.get(path))
        print("ok: without the volume all is deleted", flush=True)
        self.make(BETA, name, {"nodeSelector": {"storage": "other"}})
        self.wait_phase(BETA, name, "Running")
        place.ask_berth("volume", "create", "kept", "--size=1GiB", "--host=n3", "--wait")
        place.call("DELETE", f"{BETA}/{name}")
        self.wait_phase(BETA, name, "Failed", "the deletion waits for volumes: kept")
        place.call("PATCH", f"{BETA}/{name}", {
            "metadata": {"annotations": {"berth.internal/delete-with-volumes": "true"}}})
        wait("the annotation lets the deletion go on", lambda: not self.get(f"{BETA}/{name}"))
        print("ok: with the annotation it does not wait", flush=True)
        place.ask_berth("volume", "delete", "kept")

    def upgrades(self):
        """Agents are replaced one by one, and none while a volume on its node is being made."""
        place, name = self.place, "grade.example"
        self.make(BETA, name, {"nodeSelector": {"storage": "upgraded"}, "maxUnavailable": 2})
        self.wait_phase(BETA, name, "Running")
        def nodes(image):
            pods = place.call("GET", f"{INSIDE}/pods")["items"]
            agents = [pod for pod in pods if pod["metadata"]["name"].startswith("grade-example-node-")
                      and "deletionTimestamp" not in pod["metadata"]]
            return sorted(pod["spec"].get("nodeName", "") for pod in agents
                          if pod["spec"]["containers"][0]["image"] == image)
        def upgrade(image, **more):
            start = self.position()
            place.call("PATCH", f"{BETA}/{name}", {"spec": {"image": image, **more}})
            return start
        def deletions(start):
            return [verb for verb, resource, *_ in self.writes(start)
                    if (verb, resource) == ("delete", "pods")]
        # An agent that is suspended does not make its volume.
        agent = place.running["agent-n4"]
        agent.send_signal(signal.SIGSTOP)
        place.ask_berth("volume", "create", "busy", "--size=1GiB", "--host=n4")
        start = upgrade("berth:2")
        wait("the other node is upgraded", lambda: nodes("berth:2") == ["n5"], PATIENCE,
             lambda: self.status(BETA, name))
        self.wait_phase(BETA, name, "Initializing", "n4 (busy)")
        self.settled(5)
        check("a node that makes a volume keeps its agent", (nodes("berth:test"), len(deletions(start))),
              (["n4"], 1))
        agent.send_signal(signal.SIGCONT)
        wait("the volume's node is upgraded", lambda: nodes("berth:2") == ["n4", "n5"], PATIENCE,
             lambda: self.status(BETA, name))
        self.wait_phase(BETA, name, "Running")
        check("and loses it when the volume is made", len(deletions(start)), 2)
        start = upgrade("berth:3", maxUnavailable=1)
        seen = set()
        def done():
            seen.add(tuple(nodes("berth:3")))
            return len(nodes("berth:3")) == 2
        wait("both are upgraded", done, PATIENCE, lambda: self.status(BETA, name))
        check("one after the other", (len(deletions(start)), len(seen & {("n4",), ("n5",)})), (2, 1))
        self.wait_phase(BETA, name, "Running")
        place.ask_berth("volume", "delete", "busy")
        self.drop(BETA, name)

    def generated(self):
        """A deployment of generated files, without the operator, and then the operator with the same name."""
        place, name, folder = self.place, "plain.example", self.place.file("generated")
        agents, controller = f"{APPS}/daemonsets/plain-example-node", f"{APPS}/deployments/plain-example-controller"
        os.makedirs(folder, exist_ok=True)
        spec = {"nodeSelector": {"storage": "upgraded"}, "schedulers": ["127.0.0.1:7100"]}
        def deploy(image):
            resource = {"apiVersion": "berth.internal/v1alpha1", "kind": "BerthStorage",
                        "metadata": {"name": name}, "spec": {**spec, "image": image}}
            path = place.write("plain.yaml", json.dumps(resource))
            subprocess.run([place.own("berth-csi-operator"), "manifests", f"--resource={path}",
                            f"--directory={folder}", "--namespace=berth"], check=True)
            for file in ["rbac", "csi-driver", "node", "controller", "webhook"]:
                place.kubectl("apply", "--server-side", "--validate=strict", "-f", f"{folder}/{file}.yaml")
            def rolled_out():
                node, part = self.get(agents), self.get(controller)
                status, counts = node.get("status", {}), part.get("status", {})
                return (status.get("observedGeneration") == node["metadata"]["generation"]
                        and status.get("updatedNumberScheduled") == status.get("numberReady") == 2
                        and counts.get("updatedReplicas") == counts.get("readyReplicas") == 1)
            wait(f"agents and controller of {image}", rolled_out, PATIENCE, lambda: self.get(agents)["status"])
        deploy("berth:1")
        print("ok: five generated files are accepted, and their pods are made", flush=True)
        deploy("berth:2")
        print("ok: with another image Kubernetes replaces the pods", flush=True)
        self.make(OWN, name, spec)
        self.wait_phase(OWN, name, "Failed", "exists and is not owned by this deployment")
        self.settled()
        check("the operator leaves what it has not made", "ownerReferences" in self.get(agents)["metadata"],
              False)
        for path in objects_of(name):
            if self.get(path) and "ownerReferences" not in self.get(path)["metadata"]:
                place.call("DELETE", f"{path}?propagationPolicy=Background")
        self.wait_phase(OWN, name, "Running")
        print("ok: and deploys the resource when that is deleted", flush=True)
        self.drop(OWN, name)

    def created(self, name, start):
        """How often each object of a deployment was created since then."""
        prefix = name.replace(".", "-")
        counts = {}
        for verb, resource, target, code in self.writes(start):
            if code == 201 and resource != "events" and target and (
                    target.startswith(prefix) or target == name):
                counts[(resource, target)] = counts.get((resource, target), 0) + 1
        return counts

    def killed(self):
        """The operator is killed by each of its writes, and started again."""
        self.operators.stop(self.operator)
        name, at = "kill.example", 0
        while True:
            at += 1
            operator = self.operators.start(BREAKER)
            hit = threading.Event()
            def act(operator=operator, hit=hit):
                self.operators.kill(operator)
                hit.set()
            self.breaker.arm(at, act)
            start = self.position()
            self.make(BETA, name, {"nodeSelector": {"storage": "other"}})
            wait("the operator is killed or done", lambda: hit.is_set() or self.status(
                BETA, name).get("phase") == "Running")
            if not hit.is_set():
                # It has made all its writes before this one.
                self.breaker.arm(10**9, None)
                self.operators.kill(operator)
            self.operator = self.operators.start()
            self.wait_phase(BETA, name, "Running")
            counts = self.created(name, start)
            if len(counts) != 15 or set(counts.values()) != {1}:
                raise SystemExit(f"killed at write {at}: {counts}")
            events = [reason for reason, _ in self.events(name)]
            if len(events) != len(set(events)):
                raise SystemExit(f"killed at write {at}: {events}")
            self.drop(BETA, name)
            self.forget_events(name)
            self.operators.stop(self.operator)
            if not hit.is_set():
                break
        check("killed at each write, it finished, and no object was created twice", at > 15, True)
        print(f"    {at - 1} writes", flush=True)
        self.operator = self.operators.start()

    def restarted(self):
        """The operator is killed by a write of each case, its response lost, and started again."""
        self.operators.stop(self.operator)
        self.operator, name, done = self.operators.start(BREAKER), "again.example", []
        def case(what, act, is_done, at=1, api=BETA, of=name):
            wait("it leads", lambda: self.holder() == self.operator)
            self.settled()
            hit, victim, start = threading.Event(), self.operator, self.position()
            def kill():
                self.operators.kill(victim)
                hit.set()
            self.breaker.arm(at, kill)
            act()
            wait(f"{what}: the operator is killed", hit.is_set)
            self.operator = self.operators.start(BREAKER)
            wait(f"{what}: its successor finishes", is_done, PATIENCE, lambda: self.status(api, of))
            twice = {key: times for key, times in self.created(of, start).items() if times > 1}
            check(f"{what}: an operator was killed, the next one finished, nothing was created twice",
                  twice, {})
            done.append(what)
        def runs(api, of):
            found = self.get(f"{api}/{of}")
            status = found.get("status", {})
            return (status.get("phase"), status.get("observedGeneration")) == (
                "Running", found["metadata"]["generation"])
        def create(api, of, spec, at=8):
            case(f"creation of {of}", lambda: self.make(api, of, spec), lambda: runs(api, of), at, api, of)
        create(BETA, name, {"nodeSelector": {"storage": "other"}})
        fields = self.fields_of(name)
        defaults = {field: None for field in fields} | {"nodeSelector": {"kubernetes.io/os": None}}
        for changed in [*[[field] for field in fields], list(fields)]:
            def has_effect(changed=changed):
                values = [fields[field][1]() == fields[field][2] for field in changed]
                return all(values) and runs(BETA, name)
            case(f"update of {', '.join(changed)}", lambda changed=changed: self.place.call(
                "PATCH", f"{BETA}/{name}", {"spec": {f: fields[f][0] for f in changed}}), has_effect)
            self.place.call("PATCH", f"{BETA}/{name}", {"spec": defaults})
            wait("the field has its default", lambda: runs(BETA, name))
        for path in objects_of(name):
            case(f"deletion of {path.rsplit('/', 2)[-2]}", lambda path=path: self.place.call(
                "DELETE", f"{path}?propagationPolicy=Background"), lambda path=path: (
                    self.get(path) and "deletionTimestamp" not in self.get(path)["metadata"]
                    and runs(BETA, name)))
        for path, edit, value, expected in self.conflicts(name):
            case(f"conflicting edit of {path.rsplit('/', 2)[-2]}", lambda path=path, edit=edit: (
                self.place.call("PATCH", f"{path}?fieldManager=someone-else", edit)),
                lambda path=path, value=value, expected=expected: (
                    value(self.get(path)) == expected and runs(BETA, name)))
        self.drop(BETA, name)
        drivers, of = "/apis/storage.k8s.io/v1/csidrivers", "blocked.example"
        self.place.call("POST", drivers, {
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": of},
            "spec": {"attachRequired": True}})
        case("a foreign object", lambda: self.make(BETA, of, {"nodeSelector": {"storage": "other"}}),
             lambda: "CSIDriver" in self.status(BETA, of).get("reason", ""), 8, of=of)
        case("a foreign object that is deleted", lambda: self.place.call("DELETE", f"{drivers}/{of}"),
             lambda: runs(BETA, of), of=of)
        self.drop(BETA, of)
        create(ALPHA, "own.example", self.spec_with_certificates("own-example"))
        create(OWN, "many.dots.in-a.name.example", {"nodeSelector": {"storage": "upgraded"}})
        check("two deployments beside each other", runs(ALPHA, "own.example"), True)
        self.drop(OWN, "many.dots.in-a.name.example")
        self.drop(ALPHA, "own.example")
        print(f"    {len(done)} cases", flush=True)
        self.operators.stop(self.operator)
        self.operator = self.operators.start()

    def forget_events(self, name):
        path = "/api/v1/namespaces/default/events"
        self.place.call("DELETE", f"{path}?fieldSelector=involvedObject.name%3D{name}")

    def two(self):
        """Two operators: the active one is killed at each write, and the other one takes over."""
        self.operators.stop(self.operator)
        name, at = "two.example", 0
        while True:
            at += 1
            leader = self.operators.start(BREAKER)
            wait("it leads", lambda: self.holder() == leader)
            other = self.operators.start()
            hit = threading.Event()
            def act(leader=leader, hit=hit):
                self.operators.kill(leader)
                hit.set()
            self.breaker.arm(at, act)
            start = self.position()
            self.make(BETA, name, {"nodeSelector": {"storage": "other"}})
            wait("the leader is killed or done", lambda: hit.is_set() or self.status(
                BETA, name).get("phase") == "Running")
            if not hit.is_set():
                self.breaker.arm(10**9, None)
                self.operators.kill(leader)
            self.wait_phase(BETA, name, "Running")
            if hit.is_set():
                wait("the other one leads", lambda: self.holder() == other)
            counts = self.created(name, start)
            if len(counts) != 15 or set(counts.values()) != {1}:
                raise SystemExit(f"leader killed at write {at}: {counts}")
            self.drop(BETA, name)
            self.operators.stop(other)
            if not hit.is_set():
                break
        check("the leader killed at each write, the other one finished, and no object was created twice",
              at > 15, True)
        print(f"    {at - 1} writes", flush=True)
        self.operator = self.operators.start()

    def holder(self):
        path = "/apis/coordination.k8s.io/v1/namespaces/berth/leases/berth-csi-operator"
        lease = self.get(path)
        return lease and lease["spec"]["holderIdentity"].split("_")[0]

    def refused_writes(self):
        self.operators.stop(self.operator)
        operator = self.operators.start(BREAKER)
        for status in (409, 429, 500):
            self.breaker.refuse(status, 4)
            start = self.position()
            self.make(BETA, "busy.example", {"nodeSelector": {"storage": "other"}})
            self.wait_phase(BETA, "busy.example", "Running")
            counts = self.created("busy.example", start)
            check(f"four writes that are answered with {status}: nothing lost, nothing twice",
                  (len(counts), set(counts.values())), (15, {1}))
            failed = [one for one in self.events("busy.example") if one[0] == "Failed"]
            check("and no event blames the resource", failed, [])
            self.drop(BETA, "busy.example")
            self.forget_events("busy.example")
        self.operators.stop(operator)
        self.operator = self.operators.start()

    def suspended(self):
        """The API server hangs, and ends: all watches are closed."""
        path = f"{INSIDE}/configmaps/pmem-csi-intel-com-node"
        process = self.place.running["kube-apiserver"]
        process.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_MS / 1000 * 2)
        process.send_signal(signal.SIGCONT)
        wait("the operator leads again", lambda: self.place.call("GET", path))
        self.place.call("DELETE", path)
        wait("after a suspension drift is corrected", lambda: self.get(path))
        print("ok: an API server that hung is used again", flush=True)
        self.place.end("kube-apiserver")
        self.place.start_api_server(audit=True)
        self.place.call("DELETE", path)
        wait("after a restart drift is corrected", lambda: self.get(path))
        print("ok: closed watches are opened again", flush=True)
        self.wait_phase(ALPHA, "pmem-csi.intel.com", "Running")

    def closed(self):
        """All watches are closed again and again, and drift is corrected meanwhile."""
        self.operators.stop(self.operator)
        operator, path = self.operators.start(BREAKER), f"{INSIDE}/configmaps/pmem-csi-intel-com-node"
        wait("it leads", lambda: self.holder() == operator)
        self.settled()
        closed = 0
        for _ in range(5):
            closed += self.breaker.close_watches()
            self.place.call("DELETE", path)
            wait("drift is corrected", lambda: self.get(path), PATIENCE)
        check("watches were closed five times, and drift was corrected each time", closed >= 25, True)
        self.settled()
        start = self.position()
        self.breaker.close_watches()
        self.settled(5)
        check("watches that are opened again cause no write", self.writes(start), [])
        self.operators.stop(operator)
        self.operator = self.operators.start()


STEPS = ["without_authority", "specified", "quiet", "deleted", "edited", "validated", "foreign",
         "given_certificates", "several", "volumes", "upgrades", "generated", "updates", "restarted",
         "killed", "two", "refused_writes", "suspended", "closed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quiet-minutes", type=float, default=10, metavar="N",
                        help="how long no write may be made [default: 10]")
    parser.add_argument("--only", metavar="STEP,...",
                        help="only these: " + ", ".join(STEPS) + "; the first two are always made")
    parser.add_argument("--record", metavar="FILE",
                        help="run no step, but write down what an operator and the API server send")
    parser.add_argument("--keep", metavar="DIR", help="work in this folder and leave it")
    arguments = parser.parse_args()
    enter()
    signal.alarm(7200)
    folder = arguments.keep or tempfile.mkdtemp(prefix="berth-operator-")
    place = Place(os.path.abspath(folder), os.environ.get("KUBERNETES_BIN", ""),
                  os.path.abspath(os.environ.get("BERTH_BIN", "target/debug")),
                  os.environ.get("ETCD", "etcd"))
    begun = time.monotonic()
    try:
        run = Run(place)
        run.start()
        if arguments.record:
            run.record(os.path.abspath(arguments.record))
            return
        chosen = set(arguments.only.split(",")) if arguments.only else set(STEPS)
        for step in STEPS:
            if step == "quiet" and step in chosen:
                run.quiet(arguments.quiet_minutes)
            elif step in STEPS[:2] or step in chosen:
                getattr(run, step)()
        print(f"all passed in {time.monotonic() - begun:.0f} s")
    finally:
        for name in list(place.running):
            place.end(name)
        if not arguments.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
