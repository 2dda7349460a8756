"""A Kubernetes without kubelets, and a Berth with simulated memory beside it, on one machine.

Everything runs in namespaces of its own (network, processes, mounts), in which only the loopback
device exists: nothing can be reached from outside, and all ends when this program does. Addresses
of the cluster (its services, its machine) are addresses of that device.
"""
import base64
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import time

MACHINE = "10.250.0.1"
SERVICES = "10.96.0.0/24"
SERVICE = "pmem-csi-intel-com-controller"
NAME = f"{SERVICE}.berth.svc"
GIB = 1 << 30
# Reads are not recorded, and of writes only the end.
AUDIT = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}


def enter():
    """Starts this program again inside of namespaces of its own."""
    if os.environ.get("BERTH_INSIDE"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        add_address(MACHINE)
        return
    flags = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        flags.append("--map-root-user")
    environment = {**os.environ, "BERTH_INSIDE": "1"}
    os.execvpe("unshare", ["unshare", *flags, sys.executable, *sys.argv], environment)


def add_address(address):
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)


def wait(what, ready, seconds=120, told=lambda: ""):
    """Waits until something is so, and returns it. Where it does not come, it is told how it is."""
    deadline = time.monotonic() + seconds
    last = None
    while time.monotonic() < deadline:
        try:
            if found := ready():
                return found
        except (OSError, http.client.HTTPException, Refused) as error:
            last = error
        time.sleep(0.2)
    raise SystemExit(f"waited {seconds} s in vain: {what} ({last}) {told()}")


class Refused(Exception):
    def __init__(self, status, body):
        told = json.loads(body) if body.startswith(b"{") else {}
        self.status, self.message = status, told.get("message", body.decode(errors="replace"))
        super().__init__(f"{status}: {self.message}")


class Place:
    def __init__(self, folder, kubernetes, berth, etcd):
        self.folder, self.kubernetes, self.berth, self.etcd = folder, kubernetes, berth, etcd
        self.running = {}
        self.trusted = None
        os.makedirs(self.file("logs"), exist_ok=True)

    def file(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.file(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.file(name)

    def start(self, name, command, environment=None):
        with open(self.file("logs", name), "ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder,
                env={**os.environ, **(environment or {})},
            )

    def end(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def tool(self, name):
        """Returns the path of one of Kubernetes' programs."""
        own = os.path.join(self.kubernetes, name)
        found = own if os.path.exists(own) else shutil.which(name)
        return found or sys.exit(f"there is no {name} in {self.kubernetes}; set KUBERNETES_BIN")

    # Berth.

    def own(self, name):
        return os.path.join(self.berth, name)

    def certs(self, *arguments):
        subprocess.run([self.own("berth"), "certs", *arguments], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)

    def shown(self, role, name):
        pair = f"certs/{role}-{name}"
        return ["--tls-ca=certs/ca.pem", f"--tls-cert={pair}.pem", f"--tls-key={pair}-key.pem"]

    def start_berth(self, hosts):
        """Starts a scheduler, and an agent for each host with these regions in GiB."""
        self.certs("init", "certs")
        self.certs("issue", "certs", "--role", "scheduler", "--name", "s1", "--ip", "127.0.0.1")
        self.certs("issue", "certs", "--role", "operator", "--name", "ann")
        # One certificate for Kubernetes and for Berth: the name is that of the service.
        self.certs("issue", "certs", "--role", "csi-controller", "--name", "csi-controller",
                   "--dns", NAME)
        self.start("berth-scheduler", [
            self.own("berth-scheduler"), "--data-dir=scheduler", "--listen=127.0.0.1:7100",
            "--bootstrap", *self.shown("scheduler", "s1")])
        for at, (name, regions) in enumerate(hosts.items()):
            self.certs("issue", "certs", "--role", "agent", "--name", name, "--ip", "127.0.0.1")
            listed = ", ".join(f'"region{i}:{gib * 1024}"' for i, gib in enumerate(regions))
            config = self.write(f"{name}.toml", f"""
name = "{name}"
listen = "127.0.0.1:{7300 + at}"
schedulers = ["127.0.0.1:7100"]
driver = "sim"
disk_gib = 0
[volumes]
manager = "sim"
state_dir = "{self.file(name)}"
csi_endpoint = "unix://{self.file(name)}-csi/csi.sock"
sim_regions = [{listed}]
[tls]
ca = "certs/ca.pem"
cert = "certs/agent-{name}.pem"
key = "certs/agent-{name}-key.pem"
""")
            self.start(f"agent-{name}", [self.own("berth-compute-agent"), f"--config={config}"])
        wait("the hosts are up", lambda: self.up() == len(hosts))

    def ask_berth(self, *arguments):
        shown = self.shown("operator", "ann")
        told = subprocess.run([self.own("berth"), *arguments, *shown, "--output=json"],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        if told.returncode != 0:
            raise OSError(told.stderr)
        # What deletes prints nothing.
        return json.loads(told.stdout) if told.stdout.strip() else None

    def up(self):
        return len(self.ask_berth("volume", "capacity")["hosts"])

    def volumes(self):
        """Returns Berth's volumes by the names that were asked for."""
        return {one["display_name"]: one for one in self.ask_berth("volume", "list")}

    def start_controller(self, port):
        """Starts the controller as its pod would, with its service account's token; the API server
        is at this port."""
        account = self.file("serviceaccount")
        os.makedirs(account, exist_ok=True)
        shutil.copy(self.file("ca.crt"), account)
        self.write("serviceaccount/token", self.kubectl(
            "create", "token", "-n", "berth", SERVICE))
        config = self.write("csi-controller.toml", f"""
csi_endpoint = "unix://{self.file('csi')}/csi.sock"
schedulers = ["127.0.0.1:7100"]
log_filter = "info,berth_csi_controller=debug"
[kubernetes]
listen = "127.0.0.1:8000"
certificate = "certs/csi-controller-csi-controller.pem"
key = "certs/csi-controller-csi-controller-key.pem"
token_file = "{account}/token"
ca_file = "{account}/ca.crt"
[tls]
ca = "certs/ca.pem"
cert = "certs/csi-controller-csi-controller.pem"
key = "certs/csi-controller-csi-controller-key.pem"
""")
        where = {"KUBERNETES_SERVICE_HOST": MACHINE, "KUBERNETES_SERVICE_PORT": str(port)}
        self.start("controller", [self.own("berth-csi-controller"), f"--config={config}"], where)

    # Kubernetes.

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def start_kubernetes(self, audit=False):
        """Starts the control plane; with an audit log, every write is a line of `audit.log`."""
        self.make_keys()
        self.start("etcd", [
            self.etcd, "--data-dir=etcd", "--listen-client-urls=http://127.0.0.1:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
            "--listen-peer-urls=http://127.0.0.1:2380"])
        self.start_api_server(audit)
        # There are no kubelets that say their nodes are alive.
        self.start("kube-controller-manager", [
            self.tool("kube-controller-manager"), f"--kubeconfig={self.kubeconfig('manager')}",
            "--service-account-private-key-file=sa.key", "--root-ca-file=ca.crt",
            "--controllers=*,-node-lifecycle-controller", "--leader-elect=false",
            "--use-service-account-credentials=true", "--bind-address=127.0.0.1"])

    def start_api_server(self, audit=False):
        more = []
        if audit:
            self.write("audit.json", json.dumps(AUDIT))
            more = ["--audit-policy-file=audit.json", "--audit-log-path=audit.log"]
        self.start("kube-apiserver", [
            self.tool("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={MACHINE}", f"--advertise-address={MACHINE}", "--secure-port=6443",
            "--tls-cert-file=apiserver.crt", "--tls-private-key-file=apiserver.key",
            f"--service-cluster-ip-range={SERVICES}", "--authorization-mode=RBAC",
            "--token-auth-file=tokens.csv", "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key", *more])
        wait("the API server is ready", lambda: self.call("GET", "/readyz", raw=True) == b"ok", 300)

    def make_keys(self):
        ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]
        self.openssl("req", "-x509", *ec, "-subj", "/CN=kubernetes", "-keyout", "ca.key",
                     "-out", "ca.crt")
        self.openssl("req", "-x509", *ec, "-subj", "/CN=kube-apiserver", "-CA", "ca.crt",
                     "-CAkey", "ca.key", "-addext", f"subjectAltName=IP:{MACHINE},IP:10.96.0.1",
                     "-addext", "basicConstraints=critical,CA:FALSE",
                     "-keyout", "apiserver.key", "-out", "apiserver.crt")
        self.openssl("genrsa", "-out", "sa.key", "2048")
        self.openssl("rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub")
        self.write("tokens.csv", 'admin,admin,1,"system:masters"\n'
                   "scheduler,system:kube-scheduler,2\n"
                   "manager,system:kube-controller-manager,3\n")
        self.trusted = ssl.create_default_context(cafile=self.file("ca.crt"))

    def kubeconfig(self, token):
        told = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {
                "server": f"https://{MACHINE}:6443",
                "certificate-authority": self.file("ca.crt")}}],
            "users": [{"name": "here", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        }
        return self.write(f"kubeconfig-{token[:16]}", json.dumps(told))

    def kubectl(self, *arguments, **options):
        command = [self.tool("kubectl"), f"--kubeconfig={self.kubeconfig('admin')}", *arguments]
        told = subprocess.run(command, capture_output=True, text=True, check=False,
                              cwd=self.folder, **options)
        if told.returncode != 0:
            sys.exit(f"{' '.join(command)}: {told.stdout}{told.stderr}")
        return told.stdout

    def call(self, method, path, body=None, raw=False):
        connection = http.client.HTTPSConnection(MACHINE, 6443, timeout=60, context=self.trusted)
        headers = {"authorization": "Bearer admin", "user-agent": "berth",
                   "accept": "application/json", "content-type": "application/json"}
        if method == "PATCH":
            headers["content-type"] = "application/merge-patch+json"
        try:
            connection.request(method, path, body and json.dumps(body), headers)
            answer = connection.getresponse()
            told = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise Refused(answer.status, told)
        return told if raw else json.loads(told)

    def start_scheduler(self, name, config):
        self.write(f"{name}.yaml", config)
        port = 10259 + len([one for one in self.running if one.startswith("kube-scheduler")])
        self.start(name, [self.tool("kube-scheduler"), f"--config={name}.yaml",
                          "--bind-address=127.0.0.1", f"--secure-port={port}"])

    def authority(self):
        """Returns what goes into caBundle."""
        with open(self.file("certs/ca.pem"), "rb") as file:
            return base64.b64encode(file.read()).decode()
