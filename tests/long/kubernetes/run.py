#!/usr/bin/env python3
"""Runs a real Kubernetes (API server, scheduler, controller manager) with Berth's extender and
webhook, and checks where pods go. What is said on the wire can be written down (--record DIR).

  KUBERNETES_BIN=... BERTH_BIN=target/debug tests/long/kubernetes/run.py

| variable | what |
|---|---|
| KUBERNETES_BIN | folder with kube-apiserver, kube-scheduler, kube-controller-manager, kubectl; with csi-provisioner in it, volumes are made and deleted too |
| BERTH_BIN | folder with Berth's programs; target/debug |
| ETCD | etcd; the one on the PATH |

Needs root or user namespaces, unshare, ip and openssl. Everything runs in namespaces in which there
is only loopback, and ends with this program, at the latest after half an hour.
"""
import argparse
import json
import os
import shutil
import signal
import socket
import tempfile

from objects import (
    DRIVER, MEMBERS, NAMESPACE, claim, csi_node, deployment, ephemeral, inline, node,
    of_claim, pod,
)
from place import MACHINE, SERVICE, Place, Refused, add_address, enter, wait
from record import Recorder, forward

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
DEPLOY = os.path.join(ROOT, "deploy/kubernetes")
MARK = f"{DRIVER}/scheduler"
# Regions in GiB. The node `plain` is no host of Berth's.
HOSTS = {"narrow": [8], "wide": [64], "double": [64, 64]}
CONTROLLER = ("127.0.0.1", 8000)
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
PODS = f"{MEMBERS}/pods"
CLAIMS = f"{MEMBERS}/persistentvolumeclaims"


def check(what, found, expected):
    if found != expected:
        raise SystemExit(f"{what}: expected {expected!r}, found {found!r}")
    print(f"ok: {what}" + (f": {found}" if isinstance(found, str) else ""), flush=True)


class Run:
    def __init__(self, place, recorded):
        self.place, self.recorded = place, recorded
        # At which port the controller finds the API server.
        self.api_server = 6443
        # What Kubernetes asks the controller, and what the controller asks the API server.
        self.recorder = None
        self.told = None

    def deploy(self):
        """Applies deploy/kubernetes to the API server, with its own validation."""
        apply = ["apply", "--server-side", "--validate=strict", "-f"]
        for name in ["rbac", "csi-driver", "storage-classes", "controller", "node"]:
            self.place.kubectl(*apply, f"{DEPLOY}/{name}.yaml")
            print(f"ok: {name}.yaml is accepted", flush=True)
        pair = "certs/csi-controller-csi-controller"
        self.place.kubectl("create", "secret", "generic", "-n", "berth", f"{SERVICE}-tls",
                           "--from-file=ca.pem=certs/ca.pem", f"--from-file=cert.pem={pair}.pem",
                           f"--from-file=key.pem={pair}-key.pem")
        with open(f"{DEPLOY}/webhook.yaml", encoding="utf-8") as file:
            webhook = file.read().replace('caBundle: ""', f'caBundle: "{self.place.authority()}"')
        self.webhook = self.place.write("webhook.yaml", webhook)

    def start(self):
        place = self.place
        place.start_berth(HOSTS)
        place.start_kubernetes()
        self.deploy()
        service = place.call("GET", f"/api/v1/namespaces/berth/services/{SERVICE}")
        # What kube-proxy would do: the service's address, and the port of each node.
        ways = [(service["spec"]["clusterIP"], 443),
                ("127.0.0.1", service["spec"]["ports"][0]["nodePort"])]
        add_address(ways[0][0])
        if self.recorded:
            self.start_recorders()
        place.start_controller(self.api_server)
        for way in ways:
            self.recorder.listen(*way) if self.recorded else forward(*way, CONTROLLER)
        wait("the controller answers", self.controller_answers)
        place.kubectl("apply", "--server-side", "--validate=strict", "-f", self.webhook)
        print("ok: webhook.yaml is accepted", flush=True)
        self.start_schedulers()
        self.register_nodes()
        place.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        wait("the namespace has its account", lambda: self.exists(
            f"{MEMBERS}/serviceaccounts/default"))
        if os.path.exists(os.path.join(place.kubernetes, "csi-provisioner")):
            self.start_provisioner()

    def start_recorders(self):
        place, key = self.place, "certs/csi-controller-csi-controller"
        self.told = Recorder(place.file("apiserver.crt"), place.file("apiserver.key"),
                             place.file("ca.crt"), (MACHINE, 6443))
        self.api_server = 6444
        self.told.listen(MACHINE, self.api_server)
        self.recorder = Recorder(place.file(f"{key}.pem"), place.file(f"{key}-key.pem"),
                                 place.file("certs/ca.pem"), CONTROLLER)

    def controller_answers(self):
        with socket.create_connection(CONTROLLER):
            return True

    def exists(self, path):
        try:
            return self.place.call("GET", path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def start_schedulers(self):
        """Two: one as in deploy/kubernetes, and one that sends whole nodes."""
        place = self.place
        with open(f"{DEPLOY}/scheduler-config.yaml", encoding="utf-8") as file:
            config = file.read()
        for path, own in [("/etc/kubernetes/scheduler.conf", place.kubeconfig("scheduler")),
                          ("/etc/kubernetes/pki/berth-ca.crt", place.file("certs/ca.pem"))]:
            assert path in config
            config = config.replace(path, own)
        config += "leaderElection:\n  leaderElect: false\n"
        place.start_scheduler("kube-scheduler", config)
        whole = config.replace("nodeCacheCapable: true", "nodeCacheCapable: false")
        whole += "profiles:\n  - schedulerName: whole-nodes\n"
        place.start_scheduler("kube-scheduler-whole", whole)

    def register_nodes(self):
        for name in [*HOSTS, "plain"]:
            made, status = node(name, name in HOSTS)
            self.place.call("POST", "/api/v1/nodes", made)
            self.place.call("PATCH", f"/api/v1/nodes/{name}/status", status)
            # New nodes are not ready until the controller of their lives says so, who is not here.
            self.place.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
            if name in HOSTS:
                self.place.call("POST", "/apis/storage.k8s.io/v1/csinodes", csi_node(name))

    def start_provisioner(self):
        """Starts it as in controller.yaml, with the account of the pod that it shares."""
        place = self.place
        with open(place.file("serviceaccount/token"), encoding="utf-8") as file:
            token = file.read()
        config = place.kubeconfig(token)
        place.start("csi-provisioner", [
            place.tool("csi-provisioner"), f"--kubeconfig={config}",
            f"--csi-address={place.file('csi/csi.sock')}", "--strict-topology=true",
            "--leader-election=true", "--leader-election-namespace=berth", "--timeout=2m"])

    # What is looked at.

    def make(self, *objects):
        for one in objects:
            path = {"Pod": PODS, "PersistentVolumeClaim": CLAIMS}.get(one["kind"])
            path = path or f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
            self.place.call("POST", path, one)

    def pod(self, name):
        return self.place.call("GET", f"{PODS}/{name}")

    def is_marked(self, name):
        resources = self.pod(name)["spec"]["containers"][0]["resources"]
        return [resources.get(list, {}).get(MARK) for list in ("limits", "requests")] == ["1", "1"]

    def decided(self, name, claim_name=None):
        """Waits for the node that the scheduler decides on. Without a provisioner it stops at the
        claim, on which it writes the node."""
        def look():
            if found := self.pod(name)["spec"].get("nodeName"):
                return found
            if claim_name is None or "csi-provisioner" in self.place.running:
                return None
            made = self.place.call("GET", f"{CLAIMS}/{claim_name}")
            notes = made["metadata"].get("annotations", {})
            return notes.get("volume.kubernetes.io/selected-node")
        return wait(f"pod {name} has a node", look, told=lambda: self.pod(name)["status"])

    def refused(self, name):
        """Waits for what the scheduler says of a pod that it does not find a node for."""
        def look():
            for condition in self.pod(name).get("status", {}).get("conditions", []):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return condition["message"]
            return None
        return wait(f"pod {name} is refused", look)

    def drop(self, *names):
        """Removes pods with their claims, as a kubelet that has ended them would."""
        for name in names:
            self.place.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
            wait(f"pod {name} is gone", lambda: not self.exists(f"{PODS}/{name}"))

    # What is checked.

    def own_pods(self):
        """Berth's own pods come through the webhook unseen, and go where they belong."""
        def placed():
            pods = self.place.call("GET", "/api/v1/namespaces/berth/pods")["items"]
            placed = {one["metadata"]["name"]: one["spec"].get("nodeName") for one in pods}
            return placed if len(placed) == 5 and all(placed.values()) else None
        placed = wait("Berth's own pods have nodes", placed)
        nodes = [node for name, node in placed.items() if name.startswith("pmem-csi-intel-com-node")]
        check("two controllers, and a node's part where the label is", sorted(nodes), sorted(HOSTS))

    def placement(self):
        self.make(pod("two-inline", [inline("a", "50Gi"), inline("b", "50Gi")]))
        check("two of 50 GiB go to two regions of 64", self.decided("two-inline"), "double")
        self.make(claim("large", "40Gi"), pod("one-large", [of_claim("large")]))
        check("a claim of 40 GiB goes to a host with room",
              self.decided("one-large", "large") in ("wide", "double"), True)
        check("its pod is marked", self.is_marked("one-large"), True)
        tried = self.place.call("POST", f"{PODS}?dryRun=All", pod("dry", [inline("a", "1Gi")]))
        limits = tried["spec"]["containers"][0]["resources"]["limits"]
        check("and so is one that is only tried", limits, {MARK: "1"})
        self.make(claim("huge", "200Gi"), pod("one-huge", [of_claim("huge")]))
        told = self.refused("one-huge")
        print(f"    {told}")
        check("200 GiB fit nowhere, and it is said where and why", all(
            part in told for part in ["0/4 nodes are available", "PMEM"]), True)
        self.make(pod("nothing", []))
        check("a pod without volumes is not marked", self.is_marked("nothing"), False)
        self.decided("nothing")
        if self.recorded:
            check("and the extender is not asked about it",
                  self.recorder.of_pod("/filter", "nothing"), [])
        self.make(pod("made-for-it", [ephemeral("scratch", "2Gi")], {"app": "web"}))
        check("a claim made for its pod fits anywhere but on the plain node",
              self.decided("made-for-it", "made-for-it-scratch") in HOSTS, True)

    def whole_nodes(self):
        more = {"schedulerName": "whole-nodes"}
        self.make(claim("whole", "5Gi"), pod("by-nodes", [of_claim("whole")], **more))
        check("with whole nodes: 5 GiB go to a host", self.decided("by-nodes", "whole") in HOSTS, True)
        if self.recorded:
            told = json.loads(self.recorder.of_pod("/filter", "by-nodes")[0][1])
            check("whole nodes were sent", (told["NodeNames"], len(told["Nodes"]["items"])), (None, 4))
        self.make(pod("huge-by-nodes", [inline("a", "100Gi")], **more))
        check("with whole nodes: 100 GiB in one piece fit nowhere",
              "0/4 nodes" in self.refused("huge-by-nodes"), True)

    def deployments(self):
        self.make(deployment("web", [inline("cache", "1Gi"), ephemeral("scratch", "1Gi")], 2))
        def pods():
            found = self.place.call("GET", f"{PODS}?labelSelector=app%3Dweb")["items"]
            found = [one for one in found if one["metadata"].get("generateName")]
            return found if len(found) == 2 else None
        made = wait("the pods are made", pods)
        for one in made:
            name = one["metadata"]["name"]
            check("a deployment's pod is marked", self.is_marked(name), True)
            self.decided(name, f"{name}-scratch")

    def failures(self):
        """What happens while no controller runs."""
        self.place.end("controller")
        self.make_refused(pod("while-down", [inline("a", "1Gi")]))
        ignored = {f"{DRIVER}/webhook": "ignore"}
        self.make(pod("ignored", [], ignored))
        self.decided("ignored")
        print("ok: a pod that is to be ignored is made and placed all the same", flush=True)
        # Marked by hand: the extender is asked about it and does not answer.
        marked = pod("marked", [inline("a", "1Gi")], ignored)
        marked["spec"]["containers"][0]["resources"] = {"limits": {MARK: "1"}, "requests": {MARK: "1"}}
        self.make(marked)
        told = self.refused("marked")
        print(f"    {told}")
        self.place.start_controller(self.api_server)
        wait("the controller answers", self.controller_answers)
        if "csi-provisioner" in self.place.running:
            # It ended with the controller beside it, and is started again as a kubelet does.
            self.place.end("csi-provisioner")
            self.start_provisioner()
        check("with a controller again it is placed", self.decided("marked") in HOSTS, True)
        self.make(pod("after", [inline("a", "1Gi")]))
        check("and new pods are made", self.is_marked("after"), True)

    def make_refused(self, one):
        try:
            self.make(one)
        except Refused as refused:
            print(f"    {refused.message}")
            check("without a controller no pod is made",
                  f"pod-hook.{DRIVER}" in refused.message, True)
        else:
            raise SystemExit("a pod was made although nobody looked at it")

    def wrong(self):
        """What is wrong with a pod is told to whoever looks at the pod."""
        self.make(pod("bad-size", [inline("a", "much")]))
        told = self.refused("bad-size")
        print(f"    {told}")
        check("a size that is none is told", "must be a size" in told, True)
        self.make(pod("too-early", [of_claim("later")]))
        told = self.refused("too-early")
        check("a pod is made before its claim, unmarked", self.is_marked("too-early"), False)
        print(f"    {told}")

    def provisioning(self):
        """With Kubernetes' own provisioner: volumes are made where the pod goes, and deleted."""
        if "csi-provisioner" not in self.place.running:
            print("no csi-provisioner in KUBERNETES_BIN: no volume is made")
            return
        self.make(claim("data", "10Gi"), pod("with-data", [of_claim("data")]))
        chosen = self.decided("with-data")
        name, hosts = self.bound("data")
        check("the volume is where its pod is", hosts, [chosen])
        check("Berth has it there", self.hosts_of(name), [chosen])
        self.made_at_once()
        self.no_room_on_the_node()
        self.drop("with-data")
        for claimed in ["data", "at-once", "cached"]:
            self.removed(claimed)

    def made_at_once(self):
        at_once = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                   "metadata": {"name": "at-once"}, "provisioner": DRIVER,
                   "volumeBindingMode": "Immediate"}
        self.place.call("POST", CLASSES, at_once)
        self.make(claim("at-once", "3Gi", "at-once"))
        name, hosts = self.bound("at-once")
        check("a class without late binding: made at once, on one host",
              (len(hosts), self.hosts_of(name)), (1, hosts))
        self.make(claim("cached", "2Gi", "pmem-csi-sc-cache", ["ReadWriteMany"]))
        name, hosts = self.bound("cached")
        check("a cache volume is on two hosts", (len(hosts), self.hosts_of(name)), (2, hosts))
        self.make(claim("never", "500Gi", "at-once"))
        told = wait("the claim is refused", lambda: self.said_of("never", "ProvisioningFailed"))
        print(f"    {told}")
        check("500 GiB at once: refused for want of room", "ResourceExhausted" in told, True)
        self.place.call("DELETE", f"{CLAIMS}/never")

    def no_room_on_the_node(self):
        """A pod that the extender was not asked about, sent to a node without room: the provisioner
        gives the node back, and the claim is not bound to it for ever."""
        ignored = {f"{DRIVER}/webhook": "ignore"}
        self.make(claim("misled", "30Gi"), pod(
            "misled", [of_claim("misled")], ignored,
            affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": {"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["narrow"]}]}}]}}))
        told = wait("the claim is refused there", lambda: self.said_of("misled", "ProvisioningFailed"))
        print(f"    {told}")
        check("a node without room is given back", "ResourceExhausted" in told, True)
        self.drop("misled")
        self.place.call("DELETE", f"{CLAIMS}/misled")

    def said_of(self, name, reason):
        events = self.place.call("GET", f"{MEMBERS}/events?fieldSelector=involvedObject.name%3D{name}")
        return next((one["message"] for one in events["items"] if one["reason"] == reason), None)

    def bound(self, name):
        """Waits for the volume of a claim; returns its name, and the hosts that it can be used on."""
        def look():
            made = self.place.call("GET", f"{CLAIMS}/{name}")
            return made if made["status"]["phase"] == "Bound" else None
        volume = wait(f"claim {name} is bound", look)["spec"]["volumeName"]
        found = self.place.call("GET", f"/api/v1/persistentvolumes/{volume}")
        hosts = []
        for term in found["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]:
            for rule in term["matchExpressions"]:
                assert (rule["key"], rule["operator"]) == (f"{DRIVER}/node", "In"), rule
                hosts += rule["values"]
        return volume, sorted(hosts)

    def hosts_of(self, name):
        parts = self.place.volumes()[name]["replicas"]
        return sorted(part["host"] for part in parts)

    def removed(self, name):
        volume = self.place.call("GET", f"{CLAIMS}/{name}")["spec"]["volumeName"]
        self.place.call("DELETE", f"{CLAIMS}/{name}")
        wait(f"volume {volume} is gone from Kubernetes",
             lambda: not self.exists(f"/api/v1/persistentvolumes/{volume}"))
        wait(f"volume {volume} is gone from Berth", lambda: volume not in self.place.volumes())
        print(f"ok: claim {name} was deleted, and its volume with it", flush=True)

    def record(self, folder):
        """Writes down what was said, byte for byte, and what the API server holds of it."""
        os.makedirs(folder, exist_ok=True)
        def write(name, data):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(data)
        for name, path, about in [
            ("filter-names", "/filter", "one-large"), ("filter-names-refused", "/filter", "one-huge"),
            ("prioritize-names", "/prioritize", "one-large"),
            ("filter-names-inline", "/filter", "two-inline"),
            ("filter-names-ephemeral", "/filter", "made-for-it"),
            ("filter-nodes", "/filter", "by-nodes"),
            ("filter-nodes-refused", "/filter", "huge-by-nodes"),
            ("prioritize-nodes", "/prioritize", "by-nodes"),
            ("filter-names-wrong", "/filter", "bad-size"),
            ("review-claim", "/pod/mutate", "one-large"),
            ("review-inline", "/pod/mutate", "two-inline"),
            ("review-ephemeral", "/pod/mutate", "made-for-it"),
            ("review-nothing", "/pod/mutate", "nothing"),
            ("review-unknown-claim", "/pod/mutate", "too-early"),
        ]:
            calls = self.recorder.of_pod(path, about)
            assert calls, f"nobody asked {path} about {about}"
            write(f"{name}.json", calls[0][1])
            write(f"{name}.answer.json", calls[0][3])
        made = [call for call in self.recorder.so_far()
                if call[0].startswith("/pod/mutate") and b'"generateName":"web-' in call[1]]
        write("review-deployment.json", made[0][1])
        write("review-deployment.answer.json", made[0][3])
        # What the API server told the controller first of each object.
        told = {}
        for path, _, status, answer in self.told.so_far():
            if status == 200:
                told.setdefault(path, answer.decode())
        write("api-server.json", json.dumps(told, indent=1).encode())
        hosts = {one["host"]: [region["capacity_bytes"] for region in one["regions"]]
                 for one in self.place.ask_berth("volume", "capacity")["hosts"]}
        write("hosts.json", json.dumps(hosts).encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="DIR")
    parser.add_argument("--keep", metavar="DIR", help="work in this folder and leave it")
    arguments = parser.parse_args()
    enter()
    signal.alarm(1800)
    folder = arguments.keep or tempfile.mkdtemp(prefix="berth-kubernetes-")
    place = Place(os.path.abspath(folder), os.environ.get("KUBERNETES_BIN", ""),
                  os.path.abspath(os.environ.get("BERTH_BIN", "target/debug")),
                  os.environ.get("ETCD", "etcd"))
    try:
        run = Run(place, arguments.record is not None)
        run.start()
        for step in [run.own_pods, run.placement, run.whole_nodes, run.deployments, run.wrong,
                     run.failures, run.provisioning]:
            step()
        if arguments.record:
            run.record(arguments.record)
        print("all is as it should be")
    finally:
        for name in list(place.running):
            place.end(name)
        if not arguments.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
