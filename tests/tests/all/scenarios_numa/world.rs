//! The cluster of the scenarios, and what is asked of it: each boot and move is explained first,
//! and each refusal told with its words.

use std::fs;

use berth_domain::claim::{Claim, State};
use berth_domain::cpu_set::CpuSet;
use berth_domain::numa::Assignment;
use berth_tests::processes::{Cluster, Host};
use serde_json::Value;

use crate::PROGRAMS;

/// A cell of a described machine; its CPUs follow those of the cell before.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    id: u32,
    cpus: u32,
    threads: u32,
    memory_mib: u64,
    pages: Option<(u64, u64)>,
}

impl Cell {
    /// Returns a cell with so many CPUs, each a core of its own, and 16 GiB.
    pub(crate) fn new(id: u32, cpus: u32) -> Self {
        Self {
            id,
            cpus,
            threads: 1,
            memory_mib: 16 * 1024,
            pages: None,
        }
    }

    /// Returns the same cell with so many threads per core.
    pub(crate) fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Returns the same cell with so many pages of a size in KiB.
    pub(crate) fn pages(mut self, size_kib: u64, total: u64) -> Self {
        self.pages = Some((size_kib, total));
        self
    }

    fn text(&self, first: u32) -> String {
        let (id, last, memory) = (self.id, first + self.cpus - 1, self.memory_mib);
        let cores = (first..=last).step_by(self.threads as usize);
        let cores: Vec<String> = cores
            .map(|core| format!("\"{core}-{}\"", core + self.threads - 1))
            .collect();
        let pages = self.pages.map(|(size, total)| {
            format!("huge_pages = [{{ size_kib = {size}, total = {total} }}]\n")
        });
        format!(
            "[[cells]]\nid = {id}\nsocket = {id}\ncpus = \"{first}-{last}\"\ncores = [{}]\n\
             memory_mib = {memory}\n{}",
            cores.join(", "),
            pages.unwrap_or_default()
        )
    }
}

/// Returns a host of these cells, of which these CPUs are dedicated and these are shared.
pub(crate) fn host(name: &str, cells: &[Cell], dedicated: &str, shared: &str) -> Host {
    Host::described(name, &machine(cells), dedicated, shared)
}

/// Returns a host of these cells, of which all these CPUs are for guests of both kinds.
pub(crate) fn legacy_host(name: &str, cells: &[Cell], cpus: &str) -> Host {
    Host::described_with_pin_set(name, &machine(cells), cpus)
}

fn machine(cells: &[Cell]) -> String {
    let mut first = 0;
    let mut machine = String::new();
    for cell in cells {
        machine.push_str(&cell.text(first));
        first += cell.cpus;
    }
    machine
}

/// A cluster with what the scenarios ask of it.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
}

impl World {
    /// Starts a scheduler, a conductor and the agents of these hosts.
    #[track_caller]
    pub(crate) fn start(hosts: Vec<Host>) -> Self {
        let begun = Cluster::builder(PROGRAMS).schedulers(1).transfer_ms(50);
        let cluster = hosts
            .into_iter()
            .fold(begun, |c, host| c.host(host))
            .start();
        Self { cluster }
    }

    /// Makes a flavor.
    #[track_caller]
    pub(crate) fn flavor(&self, name: &str, vcpus: u32, memory_mib: u64, specs: &[&str]) {
        let (vcpus, memory) = (vcpus.to_string(), memory_mib.to_string());
        let mut words = vec!["flavor", "create", name];
        words.extend(["--vcpus", &vcpus, "--memory-mib", &memory]);
        words.extend(specs.iter().flat_map(|spec| ["--spec", spec]));
        self.cluster.run(&words);
    }

    /// Boots a VM, on this host if one is named, and returns its claim: what was told before
    /// without claiming, and what the hypervisor runs.
    #[track_caller]
    pub(crate) fn boots(&self, vm: &str, flavor: &str, host: Option<&str>) -> Claim {
        let words = on(Cluster::create(vm, flavor), host);
        let told = self.explained(&words);
        self.cluster.run(&words);
        let claim = self.runs(vm);
        assert_eq!(told, (claim.host.to_string(), claim.assignment.clone()));
        claim
    }

    /// As [`Self::boots`], for a live migration.
    #[track_caller]
    pub(crate) fn moves(&self, vm: &str, host: Option<&str>) -> Claim {
        let words = on(vec!["vm", "migrate", vm], host);
        let told = self.explained(&words);
        self.cluster.run(&words);
        let claim = self.runs(vm);
        assert_eq!(told, (claim.host.to_string(), claim.assignment.clone()));
        claim
    }

    /// Asks for a VM that must be refused by this host with this cause and these words, whether it
    /// is asked for or only explained, and checks that nothing is left of it.
    #[track_caller]
    pub(crate) fn refuses(&self, flavor: &str, host: &str, cause: &str, words: &str) {
        let asked = on(Cluster::create("refused", flavor), Some(host));
        self.is_refused(&asked, host, cause, words);
        let gone = self.cluster.berth(&["vm", "show", "refused"]).refused(1);
        let _ = gone.saying(&["VM_NOT_FOUND"]);
    }

    /// As [`Self::refuses`], for a live migration of a VM that goes on as it was.
    #[track_caller]
    pub(crate) fn refuses_to_move(&self, vm: &str, host: &str, cause: &str, words: &str) {
        let before = self.runs(vm);
        let asked = on(vec!["vm", "migrate", vm], Some(host));
        self.is_refused(&asked, host, cause, words);
        assert_eq!(self.runs(vm), before);
        let recorded = self.cluster.json(&["migration", "list", "--vm", vm]);
        let is_done = |m: &Value| m["state"] == "Completed";
        assert!(
            recorded.as_array().unwrap().iter().all(is_done),
            "{recorded:#}"
        );
    }

    #[track_caller]
    fn is_refused(&self, asked: &[&str], host: &str, cause: &str, words: &str) {
        let before = self.taken();
        let explained = [asked, &["--validate-only"]].concat();
        let [told, said] = [&explained[..], asked].map(|words| {
            let answer = self.cluster.berth(words).refused(1);
            let said: Value = serde_json::from_str(&answer.stderr).expect("JSON");
            said["error"].clone()
        });
        assert_eq!(told, said, "an explanation is the refusal");
        assert_eq!(said["causes"][cause], 1, "{said:#}");
        assert_eq!(said["hosts"][0]["host"], host, "{said:#}");
        assert_eq!(said["hosts"][0]["cause"], cause, "{said:#}");
        assert_eq!(said["hosts"][0]["message"], words, "{said:#}");
        assert_eq!(said["message"], format!("host {host}: {words}"), "{said:#}");
        assert_eq!(self.taken(), before);
    }

    /// Returns what an explanation tells: the host, and what the guest would get there. It
    /// changes nothing.
    #[track_caller]
    fn explained(&self, asked: &[&str]) -> (String, Assignment) {
        let before = self.taken();
        let told = self.cluster.json(&[asked, &["--validate-only"]].concat());
        assert_eq!(self.taken(), before, "an explanation changes nothing");
        let host = told["host"].as_str().expect("a host").to_owned();
        (host, parse(&told["assignment"]))
    }

    /// Returns what is counted of every host, with what changes whenever it does.
    #[track_caller]
    fn taken(&self) -> Value {
        let hosts = self.cluster.json(&["host", "list"]);
        let counted = hosts.as_array().unwrap().iter().map(|summary| {
            let generation = &summary["host"]["generation"];
            Value::from(vec![generation.clone(), summary["used"].clone()])
        });
        let vms = self.cluster.json(&["vm", "list"]);
        let flow = self.cluster.json(&["operation", "list"]);
        Value::from(vec![counted.collect(), vms, flow])
    }

    /// Returns the claim of a VM that must be ACTIVE with it alone, and that the hypervisor must
    /// run with exactly what is claimed.
    #[track_caller]
    pub(crate) fn runs(&self, vm: &str) -> Claim {
        let shown = self.cluster.json(&["vm", "show", vm]);
        assert_eq!(shown["vm"]["state"], "Active", "{shown:#}");
        let claims: Vec<Claim> = parse(&shown["claims"]);
        let [claim] = &claims[..] else {
            panic!("{shown:#}");
        };
        assert_eq!(claim.state, State::Active, "{claim:?}");
        assert_eq!(shown["vm"]["host"], claim.host.as_str(), "{shown:#}");
        let running = running(&self.cluster, claim.host.as_str());
        let own: Vec<_> = running.iter().filter(|(name, _)| name == vm).collect();
        assert_eq!(own.len(), 1, "{running:?}");
        assert_eq!(own[0].1, claim.assignment, "{vm} runs with something else");
        claim.clone()
    }
}

/// Returns what the simulated hypervisor of a host runs, and with what.
pub(crate) fn running(cluster: &Cluster, host: &str) -> Vec<(String, Assignment)> {
    // There is no file before there is a guest.
    let Ok(text) = fs::read(cluster.guests_file(host)) else {
        return Vec::new();
    };
    let guests: Value = serde_json::from_slice(&text).expect("the file of guests is JSON");
    let guests = guests.as_array().expect("a list of guests");
    let guest = |guest: &Value| {
        let vm = guest["spec"]["vm"].as_str().expect("a name").to_owned();
        (vm, parse(&guest["spec"]["assignment"]))
    };
    guests.iter().map(guest).collect()
}

/// Returns the only cell of a claim: its host cell, and the CPUs that are pinned there.
#[track_caller]
pub(crate) fn only_cell(claim: &Claim) -> (u32, CpuSet) {
    let [cell] = &claim.assignment.cells[..] else {
        panic!("{claim:?}");
    };
    (cell.host_cell.0, cell.pins.values().copied().collect())
}

/// Returns a list of CPUs.
pub(crate) fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a list of CPUs")
}

fn on<'a>(mut words: Vec<&'a str>, host: Option<&'a str>) -> Vec<&'a str> {
    words.extend(host.iter().flat_map(|host| ["--host", host]));
    words
}

#[track_caller]
fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    let parsed = serde_json::from_value(value.clone());
    parsed.unwrap_or_else(|error| panic!("{error}: {value:#}"))
}
