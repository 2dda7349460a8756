//! Volumes of real guests: as a disk and as an nvdimm, through the whole system.
//!
//! Goal: the guest sees each with its size and serial number; what it writes is in the volume when the guest
//! is gone, and the next guest reads it; who may only read cannot write; nobody else has a volume
//! meanwhile, neither a guest nor a pod, and afterwards a pod does.
//! Method: the memory of the hosts is simulated, with files in the place of devices, and so no DAX is in
//! it; libvirt, QEMU and the guests are real, the nvdimm with its alignment and its label area too. The
//! files are looked at past the guests.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use berth_tests::processes::csi::{self, Csi};
use tonic::Code;

use super::cluster::{System, eventually};
use super::verdict::{hosts_agree, runs_on};

const SECTOR_BYTES: u64 = 512;
/// How much of an nvdimm is its label area.
const LABEL_BYTES: u64 = 2 << 20;

/// The volumes' names and sizes. What is left of the last is little more than a label area.
const VOLUMES: [(&str, &str); 3] = [("data", "64MiB"), ("fast", "64MiB"), ("tiny", "8MiB")];

/// Asks for the volumes, which are made while others need the time.
pub(crate) fn ask_for(system: &System) {
    for (name, size) in VOLUMES {
        let wanted = ["volume", "create", name, "--size", size, "--host", "host-a"];
        system.json(&wanted);
    }
}

/// Returns the id of a volume once it is made.
fn made(system: &System, name: &str) -> String {
    eventually("a volume", || {
        let shown = system.ask(&["volume", "show", name])?;
        let phase = shown["replicas"][0]["phase"].as_str().unwrap_or_default();
        let id = shown["id"].as_str().unwrap_or_default().to_owned();
        let is_ready = phase.eq_ignore_ascii_case("ready");
        is_ready.then_some(id).ok_or_else(|| format!("{shown:#}"))
    })
}

/// Before and afterwards: `a` on `host-a`, which has a CPU left.
pub(crate) fn they_outlive_their_guests(system: &System) {
    let [data, fast, tiny] = VOLUMES.map(|(name, _)| made(system, name));
    let kept = system.volume_dir("host-a").join("sim");
    let block = kept.join("blocks").join(&data);
    let image_of = |volume: &str| kept.join("files").join(volume).join("berth-vm.img");
    let image = image_of(&fast);
    let node = Csi::at(&system.volume_dir("host-a").join("csi.sock"));
    let staged = system.lab.directory().join("staged");
    fs::create_dir(&staged).unwrap();

    let volumes = ["data", "fast:nvdimm", "tiny:nvdimm"].map(|volume| ["--volume", volume]);
    system.boot_with("v", &volumes.concat());
    runs_on(system, "v", "host-a");
    let ask = |vm: &str, question: &str| system.ask_guest(vm, "host-a", question);
    let sectors = |bytes: u64| bytes / SECTOR_BYTES;
    let serial = &data[data.len() - 20..];
    assert_eq!(
        ask("v", "look vda"),
        format!("{} 0 {serial}", sectors(64 << 20))
    );
    let usable = |image: &Path| sectors(fs::metadata(image).unwrap().len() - LABEL_BYTES);
    let memory = usable(&image);
    assert_eq!(ask("v", "look pmem0").trim_end(), format!("{memory} 0"));
    let least = format!("{} 0", usable(&image_of(&tiny)));
    assert_eq!(ask("v", "look pmem1").trim_end(), least);
    assert_eq!(ask("v", "put pmem1 third"), "put");
    assert_eq!(ask("v", "put vda first"), "put");
    assert_eq!(ask("v", "put pmem0 second"), "put");
    is_anothers(system, &node, &data, &staged);
    hosts_agree(system);

    system.json(&["vm", "delete", "v"]);
    assert_eq!([begins(&block), begins(&image)], ["first", "second"]);
    assert_eq!(begins(&image_of(&tiny)), "third");
    // A guest had it as it is: what looks empty may be data, and is not formatted for a pod.
    eventually("it is nobody's", || {
        let refused = node.stage(&data, &staged).unwrap_err();
        let is_free = refused.message().contains("has no file system");
        is_free.then_some(()).ok_or_else(|| refused.to_string())
    });
    assert_eq!(begins(&block), "first");
    let published = staged.with_extension("block");
    node.publish_as(&data, &staged, &published, csi::block())
        .unwrap();
    node.unpublish(&data, &published).unwrap();

    let read_only = ["--volume", "data:disk:ro", "--volume", "fast:nvdimm:ro"];
    system.boot_with("w", &read_only);
    runs_on(system, "w", "host-a");
    assert_eq!(
        ask("w", "look vda"),
        format!("{} 1 {serial}", sectors(64 << 20))
    );
    assert_eq!(ask("w", "look pmem0").trim_end(), format!("{memory} 1"));
    for (disk, word) in [("vda", "first"), ("pmem0", "second")] {
        assert_eq!(ask("w", &format!("got {disk}")), word);
        assert_eq!(ask("w", &format!("put {disk} other")), "failed");
        assert_eq!(ask("w", &format!("got {disk}")), word);
    }
    system.json(&["vm", "delete", "w"]);
    assert_eq!([begins(&block), begins(&image)], ["first", "second"]);
    hosts_agree(system);
}

/// Holds that neither another guest nor a pod is given a volume that `v` has.
#[track_caller]
fn is_anothers(system: &System, node: &Csi, volume: &str, staged: &Path) {
    let refused = system.berth(&[&system.create("w")[..], &["--volume", "data"]].concat());
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("belongs to vm v"), "{refused:?}");
    let refused = node.stage(volume, staged).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("vm v"), "{refused:?}");
}

/// Returns the word that a file begins with.
fn begins(file: &Path) -> String {
    let mut bytes = [0; 16];
    File::open(file).unwrap().read_exact(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}
