//! Volumes of VMs through the whole system: a scheduler, a conductor, a controller of volumes and
//! agents with simulated hypervisors and memory as processes, asked by the real command and through
//! the Container Storage Interface.
//!
//! Goal: a VM goes where its volumes are and stays there, one volume has one VM, and nobody else on the
//! host is given what a guest has, nor a guest what somebody else has.

use std::path::PathBuf;

use berth_proto::agent::v1::compute_agent_service_client::ComputeAgentServiceClient;
use berth_proto::agent::v1::{self as agent, GetAgentInfoRequest};
use berth_proto::csi::v1::{CreateVolumeRequest, TopologyRequirement};
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{DeleteVolumeRequest, GetVolumeRequest, Volume};
use berth_tests::processes::csi::{Csi, block, place, volume_request};
use berth_tests::processes::{Cluster, Host, eventually};
use serde_json::Value;
use tonic::{Code, Status};

use crate::PROGRAMS;

const MIB: i64 = 1 << 20;

/// Two hosts with simulated memory on cell 1, one without, and a flavor.
fn start() -> Cluster {
    let host = |name| Host::new(name).with_volumes("sim", &["region0:4096@1"], "");
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(host("h1"))
        .host(host("h2"))
        .host(Host::new("h3"))
        .start();
    cluster.pinned_flavor("small", 1);
    cluster.pinned_flavor("pair", 2);
    cluster
}

/// Makes a volume on a host and returns its id.
#[track_caller]
fn make(csi: &Csi, name: &str, host: &str) -> String {
    let request = CreateVolumeRequest {
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![place(host)],
            preferred: Vec::new(),
        }),
        ..volume_request(name, 64 * MIB)
    };
    csi.create(&request).unwrap().volume_id
}

fn create<'a>(vm: &'a str, flavor: &'a str, volumes: &[&'a str]) -> Vec<&'a str> {
    let mut words = Cluster::create(vm, flavor);
    words.extend(volumes.iter().flat_map(|volume| ["--volume", *volume]));
    words
}

/// Returns the reason and the message of a refusal.
#[track_caller]
fn refused(cluster: &Cluster, words: &[&str]) -> (String, String) {
    let answer = cluster.berth(words);
    let told: Value = serde_json::from_str(&answer.stderr)
        .unwrap_or_else(|error| panic!("{words:?}: {error}: {answer:#?}"));
    let text = |key: &str| told["error"][key].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

#[track_caller]
fn is_refused(cluster: &Cluster, words: &[&str], reason: &str, saying: &[&str]) {
    let (said, message) = refused(cluster, words);
    assert_eq!(said, reason, "{words:?}: {message}");
    for word in saying {
        assert!(message.contains(word), "{word:?}: {message}");
    }
}

/// Returns the devices that the hypervisor of a host was given for a VM's volumes.
#[track_caller]
fn devices(cluster: &Cluster, host: &str, vm: &str) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(cluster.guests_file(host)).unwrap();
    let guests: Value = serde_json::from_str(&text).unwrap();
    let domains = find(&guests, vm).unwrap_or_else(|| panic!("{vm} is not in {guests:#}"));
    let volumes = domains["volumes"].as_array().cloned().unwrap_or_default();
    let path = |volume: &Value| PathBuf::from(volume["path"].as_str().unwrap());
    volumes.iter().map(path).collect()
}

/// Returns the record of a guest, wherever it stands.
fn find<'v>(value: &'v Value, vm: &str) -> Option<&'v Value> {
    if value["vm"] == vm {
        return Some(value);
    }
    match value {
        Value::Array(all) => all.iter().find_map(|one| find(one, vm)),
        Value::Object(all) => all.values().find_map(|one| find(one, vm)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn volume(cluster: &Cluster, id: &str) -> Volume {
    let answer = cluster.at_scheduler(|channel| {
        let name = format!("volumes/{id}");
        async move {
            let request = GetVolumeRequest {
                name,
                ..Default::default()
            };
            VolumeServiceClient::new(channel).get_volume(request).await
        }
    });
    answer.unwrap().volume.unwrap()
}

fn delete_volume(cluster: &Cluster, id: &str) -> Result<(), Status> {
    let answer = cluster.at_scheduler(|channel| {
        let name = format!("volumes/{id}");
        async move {
            let request = DeleteVolumeRequest {
                name,
                ..Default::default()
            };
            VolumeServiceClient::new(channel)
                .delete_volume(request)
                .await
        }
    });
    answer.map(drop)
}

fn staging(cluster: &Cluster, name: &str) -> PathBuf {
    let folder = cluster.folder().join(format!("staged-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[track_caller]
fn is_in_use(answer: Result<(), Status>) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("in use"), "{status:?}");
}

#[test]
fn a_vm_goes_where_its_volumes_are_and_stays() {
    let mut cluster = start();
    let csi = cluster.add_csi_controller();
    let data = make(&csi, "data", "h1");
    let fast = make(&csi, "fast", "h1");
    let other = make(&csi, "other", "h2");

    // Where they are not, and where they are not together.
    let elsewhere = [&create("a", "pair", &["data"])[..], &["--host", "h2"]].concat();
    is_refused(&cluster, &elsewhere, "VOLUME_ELSEWHERE", &[&data, "h1"]);
    let apart = create("a", "pair", &["data", "other"]);
    is_refused(
        &cluster,
        &apart,
        "VOLUMES_APART",
        &["h1", "h2", &data, &other],
    );
    let unknown = create("a", "pair", &["nothing"]);
    is_refused(&cluster, &unknown, "VOLUME_NOT_FOUND", &["nothing"]);

    let nvdimm = format!("{fast}:nvdimm");
    cluster.run(&create("a", "pair", &["data", &nvdimm]));
    let shown = cluster.json(&["vm", "show", "a"]);
    assert_eq!(shown["vm"]["host"], "h1", "{shown:#}");
    let has = &shown["vm"]["spec"]["volumes"];
    assert_eq!(has[0]["volume"], *data, "{shown:#}");
    assert_eq!(has[0]["attached_as"], "disk");
    assert_eq!(has[1]["attached_as"], "nvdimm");
    let cell = &shown["claims"][0]["assignment"]["cells"][0]["host_cell"];
    assert_eq!(cell, 1, "near its nvdimm: {shown:#}");
    assert_eq!(volume(&cluster, &data).attached_vm, "vms/a");
    let of_volume = cluster.json(&["volume", "show", "data"]);
    assert_eq!(of_volume["attached_vm"], "a", "{of_volume:#}");
    let given = devices(&cluster, "h1", "a");
    assert_eq!(given.len(), 2, "{given:?}");
    assert!(std::fs::metadata(&given[1]).unwrap().len() > 32 << 20);

    // Nothing moves it, and each says why.
    let why = &["data", &data, "h1"][..];
    is_refused(&cluster, &["vm", "migrate", "a"], "VOLUMES_ARE_LOCAL", why);
    let cold = ["vm", "migrate", "a", "--cold"];
    is_refused(&cluster, &cold, "VOLUMES_ARE_LOCAL", why);
    let to_h3 = ["vm", "migrate", "a", "--host", "h3"];
    is_refused(&cluster, &to_h3, "VOLUMES_ARE_LOCAL", why);
    let drained = cluster.berth(&["host", "drain", "h1", "--dry-run"]);
    let said = format!("{}{}", drained.stdout, drained.stderr);
    assert!(said.contains("volumes do not leave their host"), "{said}");
    let verified = cluster.berth(&["verify"]);
    let said = format!("{}{}", verified.stdout, verified.stderr);
    assert!(said.contains("volumes do not leave their host"), "{said}");

    // What can be done where it is.
    cluster.run(&["vm", "reboot", "a"]);
    cluster.run(&["vm", "resize", "a", "--flavor", "small", "--no-verify"]);
    let shown = cluster.json(&["vm", "show", "a"]);
    assert_eq!(shown["vm"]["host"], "h1", "{shown:#}");
    cluster.run(&["vm", "shelve", "a"]);
    assert_eq!(volume(&cluster, &data).attached_vm, "vms/a");
    cluster.run(&["vm", "unshelve", "a"]);
    let shown = cluster.json(&["vm", "show", "a"]);
    assert_eq!(shown["vm"]["host"], "h1", "{shown:#}");
    assert_eq!(devices(&cluster, "h1", "a").len(), 2);

    // It outlives the VM, and not the other way round.
    let status = delete_volume(&cluster, &data).unwrap_err();
    assert!(status.message().contains("belongs to vm a"), "{status:?}");
    let status = csi.delete(&data).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    cluster.run(&["vm", "delete", "a"]);
    assert_eq!(volume(&cluster, &data).attached_vm, "");
    csi.delete(&data).unwrap();
    csi.delete(&fast).unwrap();
}

/// Goal: of two that ask for one volume at the same time one gets it.
#[test]
fn one_of_two_gets_a_volume() {
    let mut cluster = start();
    let csi = cluster.add_csi_controller();
    for round in 0..3 {
        let name = format!("v{round}");
        make(&csi, &name, "h1");
        let vms = [format!("a{round}"), format!("b{round}")];
        let boot = |vm: &str| cluster.berth(&create(vm, "small", &[&name]));
        let answers = std::thread::scope(|scope| {
            let boots = vms.each_ref().map(|vm| scope.spawn(|| boot(vm)));
            boots.map(|boot| boot.join().unwrap())
        });
        let lost: Vec<_> = answers.iter().filter(|a| a.status != Some(0)).collect();
        assert_eq!(lost.len(), 1, "{answers:#?}");
        assert!(lost[0].stderr.contains("VOLUME_ATTACHED"), "{answers:#?}");
    }
}

/// Goal: on the host too a volume is used by a guest or by pods, never by both, whoever was killed.
#[test]
fn guests_and_pods_keep_out_of_each_others_way() {
    let mut cluster = start();
    let csi = cluster.add_csi_controller();
    let node = cluster.csi_node("h1");
    let id = make(&csi, "data", "h1");
    let staged = staging(&cluster, "data");

    // A pod was first.
    node.stage(&id, &staged).unwrap();
    is_refused(
        &cluster,
        &create("a", "small", &["data"]),
        "VOLUME_IN_USE",
        &[&id],
    );
    cluster.run(&["vm", "delete", "a"]);
    node.unstage(&id, &staged).unwrap();

    cluster.run(&create("a", "small", &["data"]));
    is_in_use(node.stage(&id, &staged));

    // The agent is killed; the guest is there again, and its volume is its own.
    let programs = cluster.programs.clone();
    let agent = cluster.agent("h1");
    agent.kill();
    agent.start(&programs);
    cluster.wait();
    let node = cluster.csi_node("h1");
    is_in_use(node.stage(&id, &staged));

    cluster.run(&["vm", "delete", "a"]);
    eventually("it is nobody's", || node.stage(&id, &staged));
    node.unstage(&id, &staged).unwrap();
    csi.delete(&id).unwrap();
}

/// Goal: a VM has its volume while it is off too, whatever is started anew meanwhile and whether or not a
/// scheduler can be asked; and a pod that was first keeps it.
#[test]
fn a_vm_that_is_off_keeps_its_volume() {
    let mut cluster = start();
    let csi = cluster.add_csi_controller();
    let node = cluster.csi_node("h1");
    let id = make(&csi, "data", "h1");
    // Nobody but the scheduler tells its agent that it is to be made.
    let wanted = [
        "volume", "create", "free", "--size", "64MiB", "--host", "h1",
    ];
    let free = cluster.json(&[&wanted[..], &["--wait"]].concat());
    let free = free["id"].as_str().expect("an id").to_owned();
    let staged = staging(&cluster, "data");
    cluster.run(&create("a", "small", &["data"]));
    cluster.run(&["vm", "stop", "a", "--timeout", "0"]);
    let is_of_vm = |node: &Csi| {
        let status = node.stage(&id, &staged).unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        assert!(status.message().contains("vm a"), "{status:?}");
    };
    is_of_vm(&node);

    // The host and its agent begin anew: nothing runs there, and it is known all the same.
    let programs = cluster.programs.clone();
    let agent = cluster.agent("h1");
    agent.kill();
    agent.start(&programs);
    cluster.wait();
    let node = cluster.csi_node("h1");
    is_of_vm(&node);

    // What is written down counts while nobody can be asked; other volumes are given.
    cluster.schedulers[0].kill();
    is_of_vm(&node);
    let other = staging(&cluster, "free");
    node.stage(&free, &other).unwrap();
    node.unstage(&free, &other).unwrap();
    cluster.schedulers[0].start(&programs);
    cluster.wait();

    cluster.run(&["vm", "start", "a"]);
    is_of_vm(&node);
    cluster.run(&["vm", "delete", "a"]);
    // A guest had it as it is, so a pod has it so too: it is not formatted.
    let target = staged.with_extension("block");
    let publish = || node.publish_as(&id, &staged, &target, block());
    eventually("it is nobody's", publish);
    // The pod was first now.
    is_refused(
        &cluster,
        &create("b", "small", &["data"]),
        "VOLUME_IN_USE",
        &[&id],
    );
    cluster.run(&["vm", "delete", "b"]);
    node.unpublish(&id, &target).unwrap();
}

/// Goal: a host without a hypervisor has volumes for pods, and never a VM.
#[test]
fn a_host_without_guests_has_volumes_alone() {
    let volumes = |host: Host| host.with_volumes("sim", &["region0:4096@1"], "");
    let mut cluster = Cluster::builder(PROGRAMS)
        .schedulers(1)
        .conductors(1)
        .host(volumes(Host::without_guests("v1")))
        .host(volumes(Host::new("h1")))
        .start();
    let csi = cluster.add_csi_controller();
    cluster.pinned_flavor("small", 1);
    let shown = cluster.json(&["host", "show", "v1"]);
    assert_eq!(shown["host"]["report"]["driver"], "none", "{shown:#}");
    let mut said = cluster.programs.command("berth");
    said.args(["host", "show", "v1", "--scheduler", &cluster.addresses()]);
    let said = String::from_utf8(said.output().unwrap().stdout).unwrap();
    assert!(said.contains("runs no VMs"), "{said}");
    let listed = cluster.json(&["host", "list"]);
    let v1 = listed.as_array().into_iter().flatten();
    let v1 = v1.into_iter().find(|one| one["host"]["name"] == "v1");
    let offered = &v1.expect("it is listed")["capacity"];
    for class in ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB"] {
        assert!(offered[class].is_null(), "{class}: {offered:#}");
    }

    // It is never chosen, not by name either, nor for the sake of its volumes.
    let id = make(&csi, "there", "v1");
    let named = [&create("a", "small", &[])[..], &["--host", "v1"]].concat();
    is_refused(&cluster, &named, "HOST_RUNS_NO_VMS", &["v1", "runs no VMs"]);
    let (_, message) = refused(&cluster, &create("a", "small", &["there"]));
    assert!(message.contains("HOST_RUNS_NO_VMS"), "{message}");
    cluster.run(&create("a", "small", &[]));
    let shown = cluster.json(&["vm", "show", "a"]);
    assert_eq!(shown["vm"]["host"], "h1", "{shown:#}");
    let (_, message) = refused(&cluster, &["vm", "migrate", "a"]);
    assert!(message.contains("HOST_RUNS_NO_VMS"), "{message}");
    // Who plans gets along with it.
    cluster.run(&["score"]);
    cluster.run(&["balance"]);
    let more = cluster.json(&["capacity", "small", "--no-n1"]);
    assert!(!more.to_string().contains("\"v1\""), "{more:#}");
    // Nor does it count where a host fails.
    let verified = cluster.berth(&["verify"]);
    assert_eq!(verified.status, Some(4), "{verified:#?}");
    assert!(
        verified.stdout.contains("HOST_RUNS_NO_VMS"),
        "{verified:#?}"
    );

    // Pods have its volumes.
    let (node, staged) = (cluster.csi_node("v1"), staging(&cluster, "there"));
    node.stage(&id, &staged).unwrap();
    node.unstage(&id, &staged).unwrap();

    // No call about a guest is answered with "it is not here".
    let info = cluster.at_agent("v1", |channel| async move {
        let request = GetAgentInfoRequest::default();
        ComputeAgentServiceClient::new(channel)
            .get_agent_info(request)
            .await
    });
    assert_eq!(info.unwrap().driver, "none");
    no_guests_are_told_of(&cluster);
}

/// Holds that the agent of `v1` refuses every call that is about guests, however little is said in it.
#[track_caller]
fn no_guests_are_told_of(cluster: &Cluster) {
    macro_rules! refuses {
        ($($call:ident $request:ident),+) => { $(
            let answer = cluster.at_agent("v1", |channel| async move {
                let request = agent::$request::default();
                ComputeAgentServiceClient::new(channel).$call(request).await
            });
            let status = answer.map(drop).unwrap_err();
            let call = stringify!($call);
            assert_eq!(status.code(), Code::FailedPrecondition, "{call}: {status:?}");
            assert!(status.message().contains("runs no VMs"), "{call}: {status:?}");
        )+ };
    }
    refuses!(
        spawn_vm SpawnVmRequest,
        destroy_vm DestroyVmRequest,
        start_vm StartVmRequest,
        stop_vm StopVmRequest,
        settle_vm SettleVmRequest,
        get_domain GetDomainRequest,
        list_domains ListDomainsRequest,
        check_can_live_migrate_destination CheckCanLiveMigrateDestinationRequest,
        check_can_live_migrate_source CheckCanLiveMigrateSourceRequest,
        fit_live_migration FitLiveMigrationRequest,
        pre_live_migration PreLiveMigrationRequest,
        live_migration LiveMigrationRequest,
        abort_live_migration AbortLiveMigrationRequest,
        force_complete_live_migration ForceCompleteLiveMigrationRequest,
        rollback_live_migration_at_destination RollbackLiveMigrationAtDestinationRequest,
        post_live_migration_at_source PostLiveMigrationAtSourceRequest,
        get_transfer GetTransferRequest,
        wait_transfer WaitTransferRequest,
        make_disks MakeDisksRequest,
        copy_disk CopyDiskRequest,
        publish_image PublishImageRequest,
        drop_image DropImageRequest,
        fetch_disks FetchDisksRequest,
        drop_disks DropDisksRequest,
        read_disks ReadDisksRequest,
        read_console ReadConsoleRequest
    );
}
