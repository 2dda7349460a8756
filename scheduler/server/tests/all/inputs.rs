//! What is wrong is refused with its reason, and nothing is recorded.

use berth_domain::refusal::Refusal;
use berth_proto::cluster::v1::{RegisterServiceRequest, Service};
use berth_proto::host::v1::{GetHostRequest, ListHostsRequest, ReportHostRequest};
use berth_proto::operation::v1::WaitOperationRequest;
use berth_proto::scheduler::v1::{GetVmRequest, ListVmsRequest, ScheduleMigrationRequest};
use berth_proto::status::from_status;
use berth_proto::types::v1::FarMemory;
use tonic::Status;
use uuid::Uuid;

use crate::common::world::{
    flavor, flavor_request, register, register_request, schedule, vm_request,
};
use crate::common::{Cluster, clusters, hosts, operations, schedulers};

fn refusal(status: Status) -> Refusal {
    from_status(&status)
}

/// Goal: each wrong wish for a VM has its own reason. Method: a table of requests.
#[tokio::test(flavor = "multi_thread")]
async fn wrong_wishes_are_refused_with_their_reason() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 4).await;
    flavor(&channel, "pair", 2).await;
    flavor(&channel, "huge", 6).await;
    schedule(&channel, vm_request("taken", "pair"))
        .await
        .expect("room");

    let mut unknown_host = vm_request("x", "pair");
    unknown_host.requested_host = "hosts/h9".into();
    let mut no_conductor = vm_request("x", "pair");
    no_conductor.conductor = String::new();
    let mut bad_id = vm_request("x", "pair");
    bad_id.request_id = "7".into();
    let mut large_disk = vm_request("x", "pair");
    large_disk.template.as_mut().expect("a template").disks[0].size_gib = 9;
    let table = [
        (vm_request("x", "none"), "FLAVOR_NOT_FOUND"),
        (vm_request("x", "huge"), "NO_VALID_HOST"),
        (vm_request("taken", "pair"), "VM_EXISTS"),
        (vm_request("-x", "pair"), "INVALID_FIELD"),
        (unknown_host, "HOST_NOT_FOUND"),
        (no_conductor, "INVALID_FIELD"),
        (bad_id, "INVALID_FIELD"),
        (large_disk, "INVALID_VM"),
    ];
    for (request, reason) in table {
        let shown = format!("{request:?}");
        let status = schedule(&channel, request).await.expect_err(reason);
        assert_eq!(refusal(status).reason, reason, "{shown}");
    }
    let list = schedulers(&channel)
        .list_vms(ListVmsRequest::default())
        .await;
    assert_eq!(list.expect("a list").into_inner().vms.len(), 1);
}

/// Goal: a refusal for lack of room names the cell and the shortfall.
#[tokio::test(flavor = "multi_thread")]
async fn lack_of_room_is_explained() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 4).await;
    flavor(&channel, "wide", 5).await;
    let status = schedule(&channel, vm_request("x", "wide")).await;
    let told = refusal(status.expect_err("five CPUs of one cell"));
    assert_eq!(told.causes.get("DEDICATED_CPUS"), Some(&1), "{told:?}");
    let missing = told.hosts[0].missing.as_ref().expect("a shortfall");
    assert_eq!((missing.requested, missing.available), (5, 4));
}

/// Goal: a host that comes back smaller is taken as it is, and says which VMs are hit by what; so
/// does the VM.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_came_back_smaller_tells_who_is_hit() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 4).await;
    flavor(&channel, "four", 4).await;
    for vm in ["a", "b"] {
        let request = vm_request(vm, "four");
        schedule(&channel, request).await.expect("room");
    }
    let request = register_request("h1", 1, 4);
    let answer = hosts(&channel).register_host(request).await;
    let host = answer.expect("registered").into_inner().host;
    let host = host.expect("the host");
    assert_eq!((&*host.shape_refused, host.hit_claims.len()), ("", 1));
    let request = GetHostRequest {
        name: "hosts/h1".into(),
        consistency: 0,
    };
    let answer = hosts(&channel).get_host(request).await;
    let hits = answer.expect("a host").into_inner().hits;
    assert!(
        hits[0].reason.starts_with("NUMA node 1 is gone"),
        "{hits:?}"
    );
    let told = |vm: &str| {
        let name = vm.to_owned();
        let consistency = 0;
        let mut vms = schedulers(&channel);
        async move {
            let request = GetVmRequest { name, consistency };
            vms.get_vm(request).await.expect("a vm").into_inner().lost
        }
    };
    assert_eq!(told(&hits[0].vm).await, hits[0].reason);
    let other = if hits[0].vm == "vms/a" {
        "vms/b"
    } else {
        "vms/a"
    };
    assert_eq!(told(other).await, "");
    let status = schedule(&channel, vm_request("c", "four")).await;
    let told = refusal(status.expect_err("no room"));
    assert_eq!(told.reason, "NO_VALID_HOST", "{told:?}");
}

/// Goal: an explanation decides nothing. Method: explain, list, schedule the same.
#[tokio::test(flavor = "multi_thread")]
async fn validate_only_explains_and_records_nothing() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 4).await;
    flavor(&channel, "pair", 2).await;
    let mut request = vm_request("x", "pair");
    request.validate_only = true;
    request.conductor = String::new();
    request.lease_ttl = None;
    let explained = schedule(&channel, request).await.expect("room");
    assert_eq!(explained.operation, None);
    assert_eq!(
        explained.explanation.expect("an explanation").host,
        "hosts/h1"
    );
    let list = schedulers(&channel)
        .list_vms(ListVmsRequest::default())
        .await;
    assert!(list.expect("a list").into_inner().vms.is_empty());
    schedule(&channel, vm_request("x", "pair"))
        .await
        .expect("room");
}

/// Goal: impossible flavors and topologies are refused with every fault named.
#[tokio::test(flavor = "multi_thread")]
async fn impossible_flavors_and_hosts_are_refused() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let specs = [("hw:cpu_polcy", "dedicated"), ("hw:numa_nodes", "0")];
    let request = flavor_request("bad", 2, &specs);
    let status = schedulers(&channel).create_flavor(request).await;
    let told = refusal(status.expect_err("two faults"));
    assert_eq!(told.reason, "INVALID_FLAVOR");
    assert!(told.message.contains("hw:cpu_polcy"), "{told}");
    assert!(told.message.contains("hw:numa_nodes"), "{told}");

    let mut twice = register_request("h1", 2, 4);
    let report = twice.report.as_mut().expect("a report");
    let topology = report.topology.as_mut().expect("a topology");
    topology.cells[1].dedicated_cpus = "3-7".into();
    let status = hosts(&channel).register_host(twice).await;
    let told = refusal(status.expect_err("CPU 3 is in two cells"));
    assert_eq!(told.reason, "INVALID_FIELD", "{told}");
}

/// Goal: far memory is no part of what a guest can get. Method: the memory of a host is small near its
/// CPUs and large elsewhere; a guest that floats, and one with a NUMA node, each larger than what is
/// near.
#[tokio::test(flavor = "multi_thread")]
async fn far_memory_is_given_to_no_guest() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let far_memory = |id| FarMemory {
        id,
        memory_mib: 65_536,
    };
    let mut request = register_request("h1", 1, 8);
    let topology = request
        .report
        .as_mut()
        .and_then(|report| report.topology.as_mut());
    let topology = topology.expect("a topology");
    topology.cells[0].memory_mib = 8192;
    topology.cells[0].shared_cpus = "0-3".into();
    topology.cells[0].dedicated_cpus = "4-7".into();
    topology.cells[0].pages[0].total = 8192 * 256;
    topology.far_memory = vec![far_memory(1), far_memory(2)];
    hosts(&channel)
        .register_host(request.clone())
        .await
        .expect("registered");

    let list = hosts(&channel)
        .list_hosts(ListHostsRequest::default())
        .await;
    let list = list.expect("hosts").into_inner();
    assert_eq!(list.hosts[0].capacity["MEMORY_MB"], 8192);
    for (name, specs) in [("floats", &[][..]), ("nodes", &[("hw:numa_nodes", "1")])] {
        let mut flavor = flavor_request(name, 1, specs);
        flavor.flavor.as_mut().expect("a flavor").memory_mib = 40_000;
        schedulers(&channel)
            .create_flavor(flavor)
            .await
            .expect("a flavor");
        let status = schedule(&channel, vm_request(name, name)).await;
        let refused = refusal(status.expect_err("more than is near"));
        assert_eq!(refused.reason, "NO_VALID_HOST", "{refused:?}");
        let missing = refused.hosts[0].missing.as_ref().expect("a shortfall");
        assert_eq!(
            (missing.requested, missing.available),
            (40_000, 8192),
            "{refused:?}"
        );
    }

    let get = GetHostRequest {
        name: "hosts/h1".into(),
        consistency: 0,
    };
    let host = hosts(&channel)
        .get_host(get)
        .await
        .expect("a host")
        .into_inner()
        .host;
    let topology = host
        .and_then(|host| host.report)
        .and_then(|report| report.topology);
    assert_eq!(topology.expect("a topology").far_memory.len(), 2);

    let report = request.report.as_mut().expect("a report");
    let topology = report.topology.as_mut().expect("a topology");
    topology.cells[0].memory_mib = 0;
    topology.cells[0].pages.clear();
    let status = hosts(&channel).register_host(request).await;
    let refused = refusal(status.expect_err("no memory is near"));
    assert_eq!(refused.reason, "INVALID_FIELD", "{refused:?}");
    assert!(
        refused.message.contains("in NUMA nodes without CPUs"),
        "{refused}"
    );
}

/// Goal: under what is no address no program registers, so that an operator's terminal is not
/// reached through one either. Method: what a terminal acts on, and other forms.
#[tokio::test(flavor = "multi_thread")]
async fn programs_register_under_addresses() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    for address in [
        "",
        "h1",
        "h1:7300",
        "http://h1:7300/path",
        "http://h1\u{1b}[2J:7300",
        "http://h1:7300\nh2  UP",
        "http://h\u{202e}1:7300",
    ] {
        let mut request = register_request("h1", 1, 2);
        let report = request.report.as_mut().expect("a report");
        report.agent_address = address.to_owned();
        let status = hosts(&channel).register_host(request).await;
        let refused = refusal(status.expect_err(address));
        assert_eq!(refused.reason, "INVALID_FIELD", "{address:?}");
        assert_eq!(
            refused.metadata["field"], "report.agent_address",
            "{address:?}"
        );

        let service = Service {
            name: "services/c1".to_owned(),
            address: address.to_owned(),
            service_version: 2,
            register_time: None,
        };
        let request = RegisterServiceRequest {
            service: Some(service),
            request_id: Uuid::now_v7().to_string(),
        };
        let status = clusters(&channel).register_service(request).await;
        let refused = refusal(status.expect_err(address));
        assert_eq!(refused.reason, "INVALID_FIELD", "{address:?}");
        assert_eq!(refused.metadata["field"], "service.address", "{address:?}");
    }
}

/// Goal: what an image says is judged with the flavor, kept with the VM, and refused by its name.
#[tokio::test(flavor = "multi_thread")]
async fn properties_of_the_image_count() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    register(&channel, "h1", 2, 4).await;
    flavor(&channel, "pair", 2).await;
    let specs = [("hw:emulator_threads_policy", "isolate")];
    for request in [
        flavor_request("open", 2, &specs),
        flavor_request("pmem", 1, &[("hw:pmem", "128G")]),
        flavor_request("gpu", 1, &[("pci_passthrough:alias", "gpu:1")]),
    ] {
        let answer = schedulers(&channel).create_flavor(request).await;
        answer.expect("of use with some image");
    }
    let request = |vm: &str, flavor: &str, properties: &[(&str, &str)]| {
        let mut request = vm_request(vm, flavor);
        let template = request.template.as_mut().expect("a template");
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        template.image_properties = properties.iter().map(owned).collect();
        request
    };
    for (flavor, properties, words) in [
        (
            "pair",
            &[("hw_numa_nodes", "x")][..],
            "image_properties.hw_numa_nodes = \"x\"",
        ),
        (
            "pair",
            &[("hw_mem_page_size", "2MB")],
            "image_properties.hw_mem_page_size = \"2MB\"",
        ),
        (
            "open",
            &[],
            "extra_specs.hw:emulator_threads_policy = \"isolate\"",
        ),
        (
            "gpu",
            &[],
            "extra_specs.pci_passthrough:alias = \"gpu\": is not a PCI alias",
        ),
    ] {
        let status = schedule(&channel, request("bad", flavor, properties)).await;
        let told = refusal(status.expect_err(words));
        assert_eq!(told.reason, "INVALID_VM", "{told}");
        assert!(told.message.contains(words), "{told}");
    }

    let dedicated = [("hw_cpu_policy", "dedicated"), ("hw_disk_bus", "scsi")];
    let answer = schedule(&channel, request("good", "open", &dedicated)).await;
    let vm = answer.expect("room for three").vm.expect("the vm");
    let spec = vm.spec.expect("its specification");
    assert_eq!(spec.image_properties["hw_disk_bus"], "scsi");
    let topology = spec.topology.expect("dedicated CPUs make a cell");
    assert_eq!(topology.cells[0].dedicated_vcpus, [0, 1]);
}

/// Goal: unknown names are told as such, whatever is asked of them.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_names_are_not_found() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let request = GetHostRequest {
        name: "hosts/h9".into(),
        consistency: 0,
    };
    let told = refusal(
        hosts(&channel)
            .get_host(request)
            .await
            .expect_err("no host"),
    );
    assert_eq!(told.reason, "HOST_NOT_FOUND");
    let request = WaitOperationRequest {
        name: format!("operations/{}", Uuid::new_v4()),
        timeout: None,
    };
    let status = operations(&channel).wait_operation(request).await;
    assert_eq!(
        refusal(status.expect_err("none")).reason,
        "OPERATION_NOT_FOUND"
    );
    let request = ScheduleMigrationRequest {
        vm: "vms/none".into(),
        conductor: "services/c1".into(),
        lease_ttl: vm_request("x", "y").lease_ttl,
        ..Default::default()
    };
    let status = schedulers(&channel).schedule_migration(request).await;
    assert_eq!(refusal(status.expect_err("none")).reason, "VM_NOT_FOUND");
    let request = ReportHostRequest {
        name: "hosts/h9".into(),
        incarnation: Uuid::new_v4().to_string(),
        memory_signals: None,
    };
    let answer = hosts(&channel).report_host(request).await;
    assert!(!answer.expect("an answer").into_inner().known);
}
