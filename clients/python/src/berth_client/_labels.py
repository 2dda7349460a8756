"""Labels that select VMs."""

from collections.abc import Iterable

from berth_client.proto.scheduler.v1.vm_pb2 import Vm


def list_of(texts: Iterable[str]) -> list[str]:
    """Returns texts as a list; a single text is refused, of which each character would be one."""
    if isinstance(texts, str):
        raise TypeError(f"a list of texts is required, as [{texts!r}]")
    return list(texts)


def has_labels(vm: Vm, labels: Iterable[str]) -> bool:
    """Returns whether a VM has all of these labels, each `key` or `key=value`."""
    for label in labels:
        key, separator, value = label.partition("=")
        if key not in vm.labels or (separator and vm.labels[key] != value):
            return False
    return True
