//! All of Berth on the machine with NVDIMMs: a guest is given a namespace, leaves it, and the agent
//! is killed while it erases.
//!
//! The guest is one of QEMU's inside of QEMU. What it writes is written past it, by mapping the
//! device: its own memory is what the agent must not leave to others, whoever wrote it.

use std::fs;
use std::path::Path;

use berth_domain::claim::Claim;
use serde_json::Value;

use super::SECRET;
use super::device::{Device, MIB};
use super::scenarios::make_namespaces;
use crate::site::{Site, eventually, list};

/// What the agent is told.
const TOLD: &str = "cpu_dedicated_set = \"0-5\"\npmem_namespaces = \"64m:ns0|ns2,BIG:ns1\"";

const HOST: &str = "host-a";

/// The size of `ns1`.
const BIG_BYTES: u64 = 124 * MIB;

/// How often an erase is begun until one is caught in its middle.
const TRIES: u32 = 10;

/// Tells the story.
pub(crate) fn play() {
    make_namespaces();
    let mut site = Site::start(&[(HOST, TOLD)]);
    site.flavor("big", "1", "32", &["hw:pmem=big"]);
    site.flavor("two", "1", "32", &["hw:pmem=64M,64m"]);
    println!("an agent with namespaces is registered");
    site.json(&Site::create("two", "two", HOST));
    let (claim, _) = site.is_active("two", HOST);
    let mut names = given(&claim);
    names.sort();
    assert_eq!(names, ["ns0", "ns2"]);
    println!("a guest has two namespaces");
    is_refused(&site, "three", "two");
    assert!((0..TRIES).any(|_| killed_in_the_middle(&mut site)));
    eventually("everything to be erased", || match releasing(&site) {
        names if names.is_empty() => Ok(()),
        names => Err(format!("{names:?}")),
    });
    println!("everything is erased and nobody's");
}

fn given(claim: &Claim) -> Vec<&str> {
    let devices = claim.assignment.pmem.iter();
    devices.map(|device| device.name.as_str()).collect()
}

/// Returns the namespaces that no VM has and nobody can be given yet, as `berth host show` tells.
fn releasing(site: &Site) -> Vec<String> {
    let shown = site.json(&["host", "show", HOST]);
    let claims = list(&shown["claims"]);
    let left = claims.iter().filter(|claim| claim["state"] == "Releasing");
    let devices = left.flat_map(|claim| list(&claim["assignment"]["pmem"]));
    let name = |device: Value| device["name"].as_str().unwrap().to_owned();
    devices.map(name).collect()
}

fn is_refused(site: &Site, vm: &str, flavor: &str) {
    let answer = site.berth(&Site::create(vm, flavor, HOST));
    assert_ne!(answer.status, Some(0), "{answer:?}");
    assert!(answer.stderr.contains("free pmem namespaces"), "{answer:?}");
}

/// Makes a VM with `ns1` as soon as it can be given.
fn gets_the_big_one(site: &Site, vm: &str) -> Claim {
    eventually("the namespace to be given", || {
        let answer = site.berth(&Site::create(vm, "big", HOST));
        match answer.status {
            Some(0) => Ok(()),
            _ if answer.stderr.contains("free pmem namespaces") => Err(answer.stderr),
            _ => panic!("{answer:?}"),
        }
    });
    let (claim, _) = site.is_active(vm, HOST);
    assert_eq!(given(&claim), ["ns1"]);
    claim
}

/// Returns whether the agent was caught in the middle of an erase.
fn killed_in_the_middle(site: &mut Site) -> bool {
    let claim = gets_the_big_one(site, "a");
    let path = claim.assignment.pmem[0].path.clone();
    is_mapped_by_qemu(site, "a", &path);
    let device = Device::map(Path::new(&path), BIG_BYTES);
    device.fill(SECRET);
    drop(device);
    site.json(&["vm", "delete", "a"]);
    println!("a guest that wrote into {path} is deleted");
    // This program looks from outside of the host's own processes, which are all that the agent
    // sees: that it has the device open for a moment does not keep it from being erased.
    eventually("the erase to begin", || match look(&path, 0) == SECRET {
        true => Err("its first byte is still there".to_owned()),
        false => Ok(()),
    });
    site.kill_agent(HOST);
    let is_middle = look(&path, BIG_BYTES - MIB) == SECRET;
    println!("the agent was killed in the middle of an erase: {is_middle}");
    if is_middle {
        // Nobody can say that it is erased.
        assert_eq!(releasing(site), ["ns1"]);
        is_refused(site, "b", "big");
    }
    site.start_agent(HOST, &[]);
    site.waits_for(HOST, "registered");
    gets_the_big_one(site, "c");
    let device = Device::map(Path::new(&path), BIG_BYTES);
    assert!(!device.holds(SECRET), "somebody else reads it");
    drop(device);
    println!("another guest has it, and nothing of what was written");
    site.json(&["vm", "delete", "c"]);
    is_middle
}

fn look(path: &str, offset: u64) -> Vec<u8> {
    Device::map(Path::new(path), BIG_BYTES).read(offset, SECRET.len())
}

/// The device is what the guest really has: its hypervisor maps it.
fn is_mapped_by_qemu(site: &Site, domain: &str, device: &str) {
    let machine = site.machine(HOST);
    let pid = machine.qemu_pid(domain).unwrap();
    let maps = machine.outside(format!("/proc/{pid}/maps"));
    let maps = fs::read_to_string(maps).unwrap();
    assert!(maps.lines().any(|line| line.ends_with(device)), "{maps}");
}
