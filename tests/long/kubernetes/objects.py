"""The objects that a person or a kubelet makes."""

DRIVER = "pmem-csi.intel.com"
LATE = "pmem-csi-sc-late-binding"
NAMESPACE = "testns"
MEMBERS = f"/api/v1/namespaces/{NAMESPACE}"


def node(name, has_driver):
    """Returns a node as a kubelet with its registrar registers it, and its status."""
    labels = {
        "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
    }
    if has_driver:
        labels |= {"storage": "pmem", f"{DRIVER}/node": name}
    room = {"cpu": "8", "ephemeral-storage": "102350Mi", "memory": "16Gi", "pods": "110"}
    said = {"lastHeartbeatTime": "2026-11-01T08:00:00Z", "lastTransitionTime": "2026-11-01T08:00:00Z"}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady",
                 "message": "kubelet is posting ready status", **said}
    status = {
        "capacity": room, "allocatable": room, "conditions": [condition],
        "addresses": [{"type": "InternalIP", "address": "10.250.0.1"},
                      {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.1.0",
            "osImage": "Debian GNU/Linux 12 (bookworm)", "containerRuntimeVersion": "containerd://2.0.0",
            "kubeletVersion": "v1.36.2", "kubeProxyVersion": "", "operatingSystem": "linux",
            "architecture": "amd64",
        },
        "images": [{"names": ["registry.k8s.io/pause:3.10"], "sizeBytes": 320368}],
    }
    spec = {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": spec}, {"status": status}


def csi_node(name):
    drivers = [{"name": DRIVER, "nodeID": name, "topologyKeys": [f"{DRIVER}/node"]}]
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name},
            "spec": {"drivers": drivers}}


def claim_spec(size, storage_class=LATE, modes=("ReadWriteOnce",)):
    return {"accessModes": list(modes), "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}}}


def claim(name, size, storage_class=LATE, modes=("ReadWriteOnce",)):
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": claim_spec(size, storage_class, modes)}


def of_claim(name):
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


def inline(name, size):
    return {"name": name, "csi": {"driver": DRIVER, "fsType": "xfs",
                                  "volumeAttributes": {"size": size}}}


def ephemeral(name, size):
    return {"name": name, "ephemeral": {"volumeClaimTemplate": {
        "metadata": {"labels": {"app": "web"}}, "spec": claim_spec(size)}}}


def pod_spec(volumes, **more):
    mounts = [{"name": one["name"], "mountPath": f"/{one['name']}"} for one in volumes]
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "volumeMounts": mounts,
                 "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    return {"containers": [container], "volumes": volumes, **more}


def pod(name, volumes, labels=None, **more):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}},
            "spec": pod_spec(volumes, **more)}


def deployment(name, volumes, replicas):
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(volumes)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                     "template": template}}
