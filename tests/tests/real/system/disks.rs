//! Disks that travel while their guest is off, between hosts that keep them to themselves.

use std::path::Path;
use std::process::Command;

use berth_domain::vm;

use super::cluster::{PATIENCE, System};
use super::verdict::{domains, hosts_agree, runs_on};

/// Says whether two disks have the same contents, images below them included, as a guest sees them.
#[track_caller]
fn assert_equal(one: &Path, other: &Path) {
    let mut command = Command::new("qemu-img");
    command.args(["compare", "-U", "-f", "qcow2", "-F", "qcow2"]);
    let compared = command.arg(one).arg(other).output().expect("qemu-img");
    assert!(compared.status.success(), "{compared:?}");
}

/// Returns what a layer says of the image that it lies over.
#[track_caller]
fn image_of(disk: &Path) -> String {
    let mut command = Command::new("qemu-img");
    command.args(["info", "-U", "--output=json"]).arg(disk);
    let told = command.output().expect("qemu-img").stdout;
    let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
    told["full-backing-filename"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// A guest has written something; it is there after a cold migration to a host that does not see where it
/// was written, and after the way back.
pub(crate) fn they_travel_and_are_kept_until_it_is_confirmed(system: &System) {
    let head = ["vm", "create", "d", "--flavor", "pinned-disk"];
    let add = [
        "image",
        "add",
        "disk",
        "--host",
        "host-a",
        "--host-file",
        "disk.qcow2",
    ];
    let image = system.json(&add)["file_name"].as_str().unwrap().to_owned();
    let place = ["--host", "host-a", "--disk", "disk:1"];
    let given = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = given.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().expect("a plain path").to_owned()
    };
    let (user_data, key) = (file("user-data", USER_DATA), file("key.pub", KEY));
    let first_boot = ["--user-data", &user_data, "--ssh-key", &key];
    system.json(&[&head[..], &place, &first_boot].concat());
    let boots = |host: &str| {
        let console = system.console("d");
        console.wait_for("disk vda", PATIENCE).unwrap();
        console.wait_for_count_above(2, PATIENCE).unwrap();
        assert!(domains(system, host).contains("d"));
    };
    boots("host-a");
    has_its_seed(system, "host-a");
    assert_eq!(system.ask_guest("d", "host-a", "store berth"), "stored");
    let (here, there) = (
        system.directory("d", "host-a"),
        system.directory("d", "host-b"),
    );
    assert!(here.join("disk0.qcow2").exists() && !there.exists());

    system.json(&[
        "vm", "migrate", "d", "--cold", "--verify", "--host", "host-b",
    ]);
    assert_eq!(system.vm("d").vm.state, vm::State::Resized);
    boots("host-b");
    assert_eq!(system.ask_guest("d", "host-b", "recall"), "berth");
    has_its_seed(system, "host-b");
    let (old, new) = (here.join("disk0.qcow2"), there.join("disk0.qcow2"));
    assert_equal(&old, &new);
    // It came with the guest, and the layer lies over it there.
    let fetched = system.images("host-b").join(&image);
    assert_eq!(image_of(&new), fetched.display().to_string());
    let original = system.images("host-a").join("disk.qcow2");
    assert!(std::fs::read(&fetched).unwrap() == std::fs::read(original).unwrap());
    system.json(&["vm", "confirm-resize", "d"]);
    assert!(!here.exists(), "{} is left", here.display());
    runs_on(system, "d", "host-b");
    hosts_agree(system);

    assert_eq!(system.ask_guest("d", "host-b", "store quay"), "stored");
    // A guest of this test does not power off by itself, and a move would wait for that.
    system.json(&["vm", "stop", "d", "--timeout", "0"]);
    system.json(&["vm", "migrate", "d", "--cold"]);
    system.json(&["vm", "start", "d"]);
    boots("host-a");
    assert_eq!(system.ask_guest("d", "host-a", "recall"), "quay");
    assert!(!there.exists(), "{} is left", there.display());
    runs_on(system, "d", "host-a");
    has_its_seed(system, "host-a");
    hosts_agree(system);
}

/// What a guest has written is in an image that is made of its disk, and in a guest that another host makes
/// from it.
pub(crate) fn a_snapshot_boots_on_another_host(system: &System) {
    system.json(&["vm", "snapshot", "d", "golden.qcow2"]);
    let file = ["--host", "host-a", "--host-file", "golden.qcow2"];
    let added = system.json(&[&["image", "add", "golden"][..], &file].concat());
    assert_eq!(added["format"], "qcow2", "{added:#}");
    let head = ["vm", "create", "e", "--flavor", "pinned-disk"];
    system.json(&[&head[..], &["--host", "host-b", "--disk", "golden:1"]].concat());
    let console = system.console("e");
    console.wait_for("disk vda", PATIENCE).unwrap();
    console.wait_for_count_above(2, PATIENCE).unwrap();
    assert_eq!(system.ask_guest("e", "host-b", "recall"), "quay");
    let shown = system.json(&["image", "show", "golden"]);
    assert_eq!(shown["copies"], serde_json::json!(["host-a", "host-b"]));
    let in_use = system.ask(&["image", "remove", "golden"]).unwrap_err();
    assert!(in_use.to_string().contains("IMAGE_IN_USE"), "{in_use}");
    system.json(&["vm", "delete", "e"]);
    system.json(&["image", "remove", "golden"]);
    hosts_agree(system);
}

const USER_DATA: &str = "#cloud-config\npassword: quetzalcoatlus\n";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 ann@example\n";

/// The guest reads what it was given, and nothing else on the host has it.
fn has_its_seed(system: &System, host: &str) {
    let read = |file: &str| system.ask_guest("d", host, &format!("seed {file}"));
    assert_eq!(
        read("user-data").trim(),
        USER_DATA.trim().replace('\n', " ")
    );
    let meta_data = read("meta-data");
    let uid = system.vm("d").vm.uid;
    for part in [format!("instance-id: \"{uid}\""), KEY.trim().to_owned()] {
        assert!(meta_data.contains(&part), "{part}: {meta_data}");
    }
    // What libvirt stores of it, and Berth's record with it.
    let stored = system.machine(host).outside("/run/libvirt/qemu/d.xml");
    let stored = std::fs::read_to_string(stored).expect("a domain that runs");
    let shown = system.json(&["vm", "show", "d"]).to_string();
    for text in [stored, shown] {
        assert!(text.contains("seed"), "{text}");
        assert!(!text.contains("quetzalcoatlus"), "{text}");
    }
}
