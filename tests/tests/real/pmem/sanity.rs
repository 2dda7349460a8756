//! The public conformance suite of the Container Storage Interface against an agent with real devices.
//!
//! What this is not: a part of every run. The suite is built by hand, and its program is told in
//! `BERTH_CSI_SANITY`; see `tests/long/README.md`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use berth_domain::volume::{DeviceMode, net_bytes};
use berth_tests::lab::CSI_SANITY;

use super::agent::{HOST, World};
use super::device::MIB;
use super::scenarios::make_namespaces;
use super::volumes::without_udev;
use super::{PATIENCE, SANITY, SELF, machine_with_volumes};
use crate::harness::FINISHED;

/// Where it is in the emulated machine.
const INSIDE: &str = "/lab/csi-sanity";

/// How many times longer it may take than anything else.
const LONGER: u32 = 4;

pub(crate) fn the_public_suite_passes_on_real_devices() {
    let suite = std::env::var_os(CSI_SANITY).expect("it was looked for");
    let directory = tempfile::tempdir().unwrap();
    let (machine, _) = machine_with_volumes(directory.path(), SANITY);
    let machine = machine.file(Path::new(&suite), INSIDE);
    let outcome = machine.run(&[SELF], PATIENCE * LONGER).unwrap();
    println!("{}", outcome.console);
    assert_eq!(outcome.status, Some(0), "the console is above");
    assert!(outcome.console.contains(FINISHED), "the console is above");
}

/// Runs the suite in both modes, with file systems and with devices, with and without calls that
/// publish volumes on nodes.
pub(crate) fn play() {
    make_namespaces();
    without_udev();
    let mut world = World::start(DeviceMode::Direct, 0);
    let direct = net_bytes(DeviceMode::Direct, 96 * MIB);
    let mut failed = Vec::new();
    let mut run = |world: &mut World, mode: DeviceMode, access, publishes, size| {
        let told = format!("controller_publish = {publishes}\nask_timeout_ms = 600000\n");
        let controller = world.cluster.csi_controller_with(&told);
        println!("the suite in mode {mode}, {access}, controller_publish = {publishes}");
        if !passes(world, &controller, access, size) {
            failed.push(format!("{mode} {access} {publishes}"));
        }
        world.nothing_is_left_but(&[]);
    };
    run(&mut world, DeviceMode::Direct, "mount", false, direct);
    run(&mut world, DeviceMode::Direct, "block", true, direct);
    world.kill_agent("to change modes");
    world.change_mode(DeviceMode::Direct, DeviceMode::Lvm);
    world.start_agent();
    world.serves();
    run(&mut world, DeviceMode::Lvm, "mount", true, 64 * MIB);
    run(&mut world, DeviceMode::Lvm, "block", true, 64 * MIB);
    assert!(failed.is_empty(), "{failed:?}");
}

fn passes(world: &World, controller: &Path, access: &str, size_bytes: u64) -> bool {
    let node = world.cluster.volume_dir(HOST).join("csi.sock");
    let folder = world.cluster.folder().join("suite");
    std::fs::create_dir_all(&folder).unwrap();
    let mut suite = Command::new(INSIDE)
        .arg(format!("-csi.endpoint=unix://{}", node.display()))
        .arg(format!(
            "-csi.controllerendpoint=unix://{}",
            controller.display()
        ))
        .arg(format!("-csi.mountdir={}", folder.join("target").display()))
        .arg(format!(
            "-csi.stagingdir={}",
            folder.join("staging").display()
        ))
        .arg(format!("-csi.testvolumesize={size_bytes}"))
        .arg(format!("-csi.testvolumeaccesstype={access}"))
        .args(["-ginkgo.no-color", "-ginkgo.succinct"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for line in BufReader::new(suite.stdout.take().unwrap()).lines() {
        println!("  {}", line.unwrap());
    }
    suite.wait().unwrap().success()
}
