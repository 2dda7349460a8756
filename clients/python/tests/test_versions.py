"""Conductors of earlier builds are not called for what they would drop without a word."""

import pytest
from berth_client.proto.conductor.v1.conductor_service_pb2 import CreateVmRequest
from berth_client.proto.type.v1.vm_spec_pb2 import VmTemplate
from cluster import Cluster, eventually

import berth_client
from berth_client import types
from berth_client._template import version_needed

# Each field of a template, and the service version that a conductor needs for it.
NEEDED = [
    (VmTemplate(flavor="flavors/a", disks=[types.Disk()], nics=[types.Nic()]), 0),
    (VmTemplate(project="default"), 0),
    (VmTemplate(server_group="serverGroups/a"), 3),
    (VmTemplate(availability_zone="a"), 3),
    (VmTemplate(volumes=[types.VolumeAttachment()]), 3),
    (VmTemplate(project="a"), 4),
    (VmTemplate(restart_policy=types.RestartPolicy()), 4),
    (VmTemplate(restart_policy=types.RestartPolicy(), availability_zone="a"), 4),
    (VmTemplate(first_boot=types.FirstBoot(user_data=b"#!/bin/sh")), 4),
    (VmTemplate(labels={"team": "blue"}), 4),
    (VmTemplate(description="orders"), 4),
    (VmTemplate(protected=True), 4),
]


@pytest.mark.parametrize(("template", "needed"), NEEDED)
def test_parameters_need_versions(template: VmTemplate, needed: int) -> None:
    assert version_needed(CreateVmRequest(template=template)) == needed
    assert version_needed(template) == 0


def test_every_field_of_a_template_is_known() -> None:
    # A new one may need a conductor that knows it: add it to the cases above.
    assert set(VmTemplate.DESCRIPTOR.fields_by_name) == {
        "availability_zone", "boot", "description", "disks", "first_boot", "flavor",
        "image_properties", "labels", "nics", "project", "protected", "restart_policy",
        "server_group", "volumes",
    }


def test_a_conductor_that_is_too_old_is_not_called() -> None:
    with Cluster(schedulers=1, hosts=1, conductor_version=3) as own, own.client() as client:
        client.flavors.create("small", vcpus=1, memory_mib=256)
        with pytest.raises(berth_client.FailedPrecondition) as raised:
            client.vms.create("b", flavor="small", kernel="vmlinuz", project="other")
        assert raised.value.reason == "SERVICE_VERSION_TOO_OLD"
        assert raised.value.hint == "upgrade a conductor"
        own.add_conductor(1)
        eventually("second conductor", lambda: len(client.cluster.conductors()) == 2)
        client.vms.create("b", flavor="small", kernel="vmlinuz", project="other").wait(30)
        assert client.vms.show("b").project == "other"
