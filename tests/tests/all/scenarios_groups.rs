//! Goal: server groups, zones, aggregates and policies hold through the whole system, also where
//! many ask at once.
//!
//! Method: schedulers, a conductor and simulated hosts in this process, each with a port of its
//! own; the real command asks them, and many clients at once where the point is concurrency.

use std::collections::BTreeSet;
use std::ops::Deref;

use berth_proto::conductor::v1::{CreateVmRequest, MigrateVmRequest};
use berth_proto::status::from_status;
use berth_proto::types::v1 as wire;
use berth_tests::processes::eventually;
use berth_tests::small::{Small, text};
use serde_json::Value;

use crate::PROGRAMS;

/// A Berth with a small flavor.
struct World(Small);

impl Deref for World {
    type Target = Small;

    fn deref(&self) -> &Small {
        &self.0
    }
}

impl World {
    /// Starts one with so many hosts, and makes a small flavor.
    fn with_hosts(hosts: u16) -> Self {
        let world = Self(Small::with_hosts(PROGRAMS, hosts));
        let small = ["--vcpus", "1", "--memory-mib", "64"];
        world.done(&[&["flavor", "create", "small"][..], &small].concat());
        world
    }

    /// Boots a VM and returns its host.
    #[track_caller]
    fn boot(&self, vm: &str, more: &[&str]) -> String {
        let told = self.done(&[&boot(vm)[..], more].concat());
        text(&told["vm"]["host"])
    }

    /// Returns the refusal of a boot.
    #[track_caller]
    fn refused(&self, vm: &str, more: &[&str]) -> Value {
        self.0.refused(&[&boot(vm)[..], more].concat())
    }

    /// Returns where each member of a group holds claims.
    #[track_caller]
    fn members(&self, group: &str) -> Vec<(String, Vec<String>)> {
        let told = self.done(&["server-group", "show", group]);
        let members = told["members"].as_array().unwrap().iter();
        let hosts = |m: &Value| m["hosts"].as_array().unwrap().iter().map(text).collect();
        members.map(|m| (text(&m["vm"]), hosts(m))).collect()
    }
}

fn boot(vm: &str) -> [&str; 9] {
    let kernel = ["--kernel", "vmlinuz", "--initrd", "initrd.gz"];
    let [a, b, c, d] = kernel;
    ["vm", "create", vm, "--flavor", "small", a, b, c, d]
}

#[test]
fn a_server_group_keeps_vms_apart_or_together() {
    let world = World::with_hosts(3);
    let create = ["server-group", "create", "web", "--policy", "anti-affinity"];
    let made = world.done(&create);
    assert_eq!(made["max_server_per_host"], 1, "{made}");
    let in_web = ["--server-group", "web"];
    let hosts: BTreeSet<String> = ["a", "b", "c"].map(|vm| world.boot(vm, &in_web)).into();
    assert_eq!(hosts.len(), 3, "{hosts:?}");
    let error = world.refused("d", &in_web);
    assert_eq!(error["reason"], "NO_VALID_HOST");
    assert_eq!(error["causes"]["ANTI_AFFINITY"], 3, "{error}");
    let nearest = hosts.first().unwrap();
    assert_eq!(
        text(&error["message"]),
        format!(
            "none of the 3 hosts can take the guest (3 with enough members of its server group); \
             nearest is host {nearest}: it has 1 member of server group web, whose anti-affinity \
             allows 1 a host"
        )
    );
    let kept = world.berth(&["server-group", "delete", "web"]).refused(1);
    kept.saying(&["SERVER_GROUP_IN_USE", "has 3 members"]);

    let create = ["server-group", "create", "pair", "--policy", "affinity"];
    world.done(&create);
    let first = world.boot("p1", &["--server-group", "pair"]);
    for vm in ["p2", "p3"] {
        assert_eq!(world.boot(vm, &["--server-group", "pair"]), first);
    }
    let moved = world.berth(&["vm", "migrate", "p1"]).refused(1);
    moved.saying(&["AFFINITY", "the members of server group pair are on host"]);
    assert_eq!(world.members("pair").len(), 3);
    let missing = world.refused("x", &["--server-group", "nobody"]);
    assert_eq!(missing["reason"], "SERVER_GROUP_NOT_FOUND");
    let wrong = ["server-group", "create", "w", "--policy", "affinity"];
    let wrong = [&wrong[..], &["--max-server-per-host", "2"]].concat();
    let wrong = world.berth(&wrong).refused(1);
    wrong.saying(&["max_server_per_host", "only for anti-affinity"]);
}

/// 64 users want to be on a host alone, and there are 32 hosts; then all that are there want to
/// move at once.
#[test]
fn crowds_do_not_break_anti_affinity() {
    let world = World::with_hosts(32);
    let create = ["server-group", "create", "web", "--policy", "anti-affinity"];
    world.done(&create);
    let outcomes = world.runtime.block_on(async {
        let client = world.session().conductor().await.unwrap();
        let boots = (0..64).map(|number| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let answer = client.create_vm(member(&format!("vm{number}"))).await;
                answer
                    .map(drop)
                    .map_err(|status| from_status(&status).reason)
            })
        });
        let boots: Vec<_> = boots.collect();
        let mut outcomes = Vec::new();
        for boot in boots {
            outcomes.push(boot.await.unwrap());
        }
        outcomes
    });
    let (taken, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((taken.len(), refused.len()), (32, 32));
    let why: BTreeSet<_> = refused.into_iter().map(|no| no.unwrap_err()).collect();
    assert_eq!(why, ["NO_VALID_HOST".to_owned()].into());
    let booted = eventually("32 VMs run", || {
        let vms = world.done(&["vm", "list"]);
        let vms = vms.as_array().cloned().unwrap_or_default();
        let active = vms.iter().filter(|vm| vm["state"] == "Active").count();
        let all = (active == 32 && vms.len() == 32).then_some(vms);
        all.ok_or_else(|| format!("{active} run"))
    });
    let hosts: BTreeSet<_> = booted.iter().map(|vm| text(&vm["host"])).collect();
    assert_eq!(hosts.len(), 32, "each on a host of its own");

    // Eight leave, so that there is somewhere to go; the others go there all at once.
    let (leaving, staying) = booted.split_at(8);
    for vm in leaving {
        world.done(&["vm", "delete", &text(&vm["name"])]);
    }
    let moving = world.runtime.block_on(async {
        let client = world.session().conductor().await.unwrap();
        let moves = staying.iter().map(|vm| {
            let mut client = client.clone();
            let request = MigrateVmRequest {
                vm: format!("vms/{}", text(&vm["name"])),
                ..Default::default()
            };
            tokio::spawn(async move { client.migrate_vm(request).await.is_ok() })
        });
        let moves: Vec<_> = moves.collect();
        let mut begun = 0;
        for one in moves {
            begun += usize::from(one.await.unwrap());
        }
        begun
    });
    assert!(moving >= 8, "{moving} found a host");
    eventually("all have settled", || {
        apart(&world.members("web"));
        let vms = world.done(&["vm", "list"]);
        let vms = vms.as_array().cloned().unwrap_or_default();
        let settled = vms.iter().filter(|vm| vm["state"] == "Active").count();
        (settled == 24).then_some(()).ok_or(settled)
    });
    apart(&world.members("web"));
}

/// No two members hold a claim on one host, be it only for a migration.
#[track_caller]
fn apart(members: &[(String, Vec<String>)]) {
    let claims: Vec<&String> = members.iter().flat_map(|(_, hosts)| hosts).collect();
    let hosts: BTreeSet<_> = claims.iter().collect();
    assert_eq!(hosts.len(), claims.len(), "{members:?}");
}

fn member(vm: &str) -> CreateVmRequest {
    let kernel = wire::KernelBoot {
        kernel: "vmlinuz".to_owned(),
        initrd: "initrd.gz".to_owned(),
        cmdline: String::new(),
    };
    CreateVmRequest {
        vm: format!("vms/{vm}"),
        template: Some(wire::VmTemplate {
            flavor: "flavors/small".to_owned(),
            boot: Some(wire::BootSource {
                source: Some(wire::boot_source::Source::Kernel(kernel)),
            }),
            server_group: "serverGroups/web".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

#[test]
fn a_policy_that_is_set_changes_the_next_choice() {
    let world = World::with_hosts(3);
    let shown = world.done(&["policy", "show"]);
    assert_eq!(shown["settings"]["scheduling.hosts"], "spread", "{shown}");
    assert_eq!(shown["generation"], 0);
    let spread: BTreeSet<String> = ["a", "b", "c"].map(|vm| world.boot(vm, &[])).into();
    assert_eq!(spread.len(), 3, "{spread:?}");
    let set = ["policy", "set", "scheduling.hosts=pack"];
    let told = world.done(&[&set[..], &["scheduling.weight.pci=500"]].concat());
    assert_eq!(told["settings"]["scheduling.weight.pci"], "500", "{told}");
    let packed: BTreeSet<String> = ["d", "e", "f"].map(|vm| world.boot(vm, &[])).into();
    assert_eq!(packed.len(), 1, "{packed:?}");
    let late = [
        "policy",
        "set",
        "scheduling.hosts=spread",
        "--generation",
        "0",
    ];
    let late = world.berth(&late).refused(1);
    late.saying(&["POLICY_GENERATION", "is at generation 1, not 0"]);
    let wrong = [
        "policy",
        "set",
        "scheduling.host=pack",
        "scheduling.cells=x",
    ];
    let wrong = world.berth(&wrong).refused(1);
    wrong.saying(&[
        "known keys are scheduling.hosts, scheduling.cells",
        "must be spread or pack",
    ]);
}

#[test]
fn zones_and_aggregates_say_where_guests_go() {
    let world = World::with_hosts(3);
    let [a, b, c] = ["host-a", "host-b", "host-c"];
    world.done(&["aggregate", "create", "rack1", "--zone", "east"]);
    world.done(&["aggregate", "add-host", "rack1", a, b]);
    world.done(&["aggregate", "create", "rack2", "--zone", "west"]);
    world.done(&["aggregate", "add-host", "rack2", c]);
    let zones = world.done(&["availability-zone", "list"]);
    assert_eq!(zones[0]["zone"], "east", "{zones}");
    assert_eq!(zones[0]["hosts"].as_array().map(Vec::len), Some(2));
    let second = world
        .berth(&["aggregate", "add-host", "rack2", a])
        .refused(1);
    second.saying(&[
        "HOST_IN_OTHER_ZONE",
        "host host-a is in availability zone east",
    ]);
    for vm in ["w1", "w2"] {
        assert_eq!(world.boot(vm, &["--availability-zone", "west"]), c);
    }
    let missing = world.refused("x", &["--availability-zone", "north"]);
    assert_eq!(missing["reason"], "AVAILABILITY_ZONE_NOT_FOUND");
    // The only host of the zone cannot leave it, and its guests cannot leave the host.
    let kept = world
        .berth(&["aggregate", "remove-host", "rack2", c])
        .refused(1);
    kept.saying(&["ZONE_IN_USE", "2 VMs, among them w1"]);
    let moved = world.berth(&["vm", "migrate", "w1"]).refused(1);
    moved.saying(&["AVAILABILITY_ZONE", "it is in availability zone east"]);

    let spec = ["--spec", "aggregate_instance_extra_specs:ssd=true"];
    let quick = [
        "flavor",
        "create",
        "quick",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ];
    world.done(&[&quick[..], &spec].concat());
    let mut boot_quick = boot("q");
    boot_quick[4] = "quick";
    let refused = world.berth(&boot_quick).refused(1);
    refused.saying(&["AGGREGATE_METADATA", "none of its aggregates says ssd=true"]);
    world.done(&["aggregate", "create", "fast", "--metadata", "ssd=false"]);
    world.done(&["aggregate", "add-host", "fast", b]);
    assert_eq!(world.berth(&boot_quick).status, Some(1));
    world.done(&["aggregate", "set", "fast", "ssd=true"]);
    assert_eq!(text(&world.done(&boot_quick)["vm"]["host"]), b);
    let fast = world.done(&["aggregate", "show", "fast"]);
    let provider = world.done(&["host", "show", b])["host"]["provider"].clone();
    let shown = world.done(&["provider", "show", &text(&provider)]);
    let told = shown.to_string();
    assert!(told.contains(&text(&fast["id"])), "{told} {fast}");
}

#[test]
fn an_image_asks_for_a_kind_of_machine() {
    let world = World::with_hosts(1);
    let own = std::env::consts::ARCH;
    let property = |text: &str| ["--image-property".to_owned(), text.to_owned()];
    let here = property(&format!("hw_architecture={own}"));
    let here: Vec<&str> = here.iter().map(String::as_str).collect();
    world.boot("a", &here);
    world.boot("b", &["--image-property", "hw_vm_mode=hvm"]);
    let error = world.refused("c", &["--image-property", "hw_architecture=s390x"]);
    assert_eq!(error["causes"]["IMAGE_PROPERTIES"], 1, "{error}");
    let why = format!("the image asks for hw_architecture=s390x, it has {own}");
    assert!(text(&error["message"]).contains(&why), "{error}");
    let error = world.refused("c", &["--image-property", "img_hv_type=kvm"]);
    let why = "the image asks for img_hv_type=kvm, it has fake";
    assert!(text(&error["message"]).contains(why), "{error}");
    let error = world.refused("c", &["--image-property", "hw_architecture=z80"]);
    assert_eq!(error["reason"], "INVALID_VM");
    assert!(
        text(&error["message"]).contains("must be one of aarch64"),
        "{error}"
    );
}
