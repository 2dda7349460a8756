//! Where the scenarios play: two hosts of one cell, or others; what is told to their hypervisors;
//! what is claimed and what runs, now and at every moment.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use berth_domain::claim::{self, Claim};
use berth_domain::cpu_set::CpuSet;
use berth_domain::host;
use berth_domain::migration::Migration;
use berth_driver::DomainSpec;
use berth_tests::processes::{Cluster, Host, Process, eventually, verdict};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::PROGRAMS;

pub(crate) const A: &str = "host-a";
pub(crate) const B: &str = "host-b";

/// A cluster with what the scenarios ask of it.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    marks: u32,
}

/// A guest as its hypervisor has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) phase: String,
    pub(crate) cpus: CpuSet,
    pub(crate) spec: DomainSpec,
    pub(crate) error: Option<String>,
}

/// Returns a host of so many cells with so many CPUs each, of which these are dedicated.
pub(crate) fn host(name: &str, cells: u32, cpus: u32, pages: &str, dedicated: &str) -> Host {
    let cell = |id: u32| {
        let (first, last) = (id * cpus, (id + 1) * cpus - 1);
        format!(
            "[[cells]]\nid = {id}\nsocket = {id}\ncpus = \"{first}-{last}\"\n\
             memory_mib = 8192\nhuge_pages = [{pages}]\n"
        )
    };
    let machine: String = (0..cells).map(cell).collect();
    Host::described(name, &machine, dedicated, "")
}

/// Returns a list of CPUs.
pub(crate) fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a list of CPUs")
}

#[track_caller]
pub(crate) fn parse<T: DeserializeOwned>(value: &Value) -> T {
    let parsed = serde_json::from_value(value.clone());
    parsed.unwrap_or_else(|error| panic!("{error}: {value:#}"))
}

impl Stage {
    /// Starts a scheduler, a conductor and the agents of these hosts.
    #[track_caller]
    pub(crate) fn with(hosts: Vec<Host>) -> Self {
        let begun = Cluster::builder(PROGRAMS).schedulers(1).transfer_ms(50);
        let cluster = hosts.into_iter().fold(begun, |c, host| c.host(host));
        Self {
            cluster: cluster.start(),
            marks: 0,
        }
    }

    /// Two hosts of one cell with four CPUs. `a` and `b` have CPUs 0 and 1, each of its host; the
    /// other two are dedicated since.
    #[track_caller]
    pub(crate) fn start() -> Self {
        let mut stage = Self::full();
        for (agent, name) in [A, B].into_iter().enumerate() {
            stage.restart(agent, &[("--cpu-dedicated-set", "0-3")], &[]);
            eventually("the other CPUs", || {
                let dedicated = stage.host(name).report.topology.dedicated();
                (dedicated == cpus("0-3"))
                    .then_some(())
                    .ok_or(format!("{dedicated}"))
            });
        }
        stage
    }

    /// As [`Self::start`], but for the other two CPUs: both hosts are full.
    #[track_caller]
    pub(crate) fn full() -> Self {
        let stage = Self::with(vec![host(A, 1, 4, "", "0-1"), host(B, 1, 4, "", "0-1")]);
        stage.cluster.pinned_flavor("pair", 2);
        for (vm, host) in [("a", A), ("b", B)] {
            assert_eq!(stage.cluster.boot(vm, "pair", host), [0, 1]);
        }
        stage
    }

    /// Kills an agent and starts it with other values of its flags from now on, and with more
    /// arguments this time. What was told to its hypervisor is forgotten.
    #[track_caller]
    pub(crate) fn restart(&mut self, agent: usize, flags: &[(&str, &str)], more: &[&str]) {
        self.restart_told(agent, flags, more, "");
    }

    /// As [`Self::restart`], with this told to its hypervisor from its begin.
    #[track_caller]
    pub(crate) fn restart_told(
        &mut self,
        agent: usize,
        flags: &[(&str, &str)],
        more: &[&str],
        story: &str,
    ) {
        let name = self.cluster.agents[agent].name.clone();
        let before = self.host(&name).report.incarnation;
        let file = self.cluster.story_file(&name);
        let part = &mut self.cluster.agents[agent];
        part.kill();
        fs::write(file, story).expect("a story");
        for (flag, value) in flags {
            let at = part.arguments.iter().position(|word| word == flag);
            part.arguments[at.expect("a flag that it has") + 1] = (*value).to_owned();
        }
        part.start_with(&self.cluster.programs, more);
        eventually("the new life of an agent", || {
            let host = self.host(&name);
            let is_new = host.report.incarnation != before;
            is_new.then_some(()).ok_or(format!("{host:?}"))
        });
    }

    /// Waits until what runs on a host was compared with what is claimed, from now on.
    #[track_caller]
    pub(crate) fn is_compared(&mut self, host: &str) {
        self.marks += 1;
        let name = format!("mark-{}", self.marks);
        let uuid = format!("5b0c7e0a-0000-4000-8000-{:012}", self.marks);
        self.cluster.happens(host, &format!("other {uuid} {name}"));
        eventually("a comparison", || {
            let shown = self.cluster.ask(&["host", "show", host])?;
            let unknown = shown["host"]["unknown"].as_array().cloned();
            let found = unknown.iter().flatten().any(|u| u["name"] == name.as_str());
            found.then_some(()).ok_or_else(|| format!("{shown:#}"))
        });
    }

    pub(crate) fn host(&self, name: &str) -> host::Host {
        parse(&self.cluster.json(&["host", "show", name])["host"])
    }

    /// Returns the claims on a host.
    #[track_caller]
    pub(crate) fn claims(&self, host: &str) -> Vec<Claim> {
        parse(&self.cluster.json(&["host", "show", host])["claims"])
    }

    /// Returns the CPUs that are given away on a host.
    #[track_caller]
    pub(crate) fn taken(&self, host: &str) -> CpuSet {
        all_cpus(&self.claims(host))
    }

    /// Returns how many dedicated CPUs are counted on a host.
    #[track_caller]
    pub(crate) fn counted(&self, host: &str) -> u64 {
        let hosts = self.cluster.json(&["host", "list"]);
        let hosts = hosts.as_array().expect("a list");
        let summary = hosts.iter().find(|s| s["host"]["name"] == host);
        summary.expect("the host")["used"]["PCPU"]
            .as_u64()
            .unwrap_or(0)
    }

    /// Returns the guests that a hypervisor has, by their names.
    #[track_caller]
    pub(crate) fn guests(&self, host: &str) -> BTreeMap<String, Seen> {
        guests(&self.cluster.guests_file(host))
    }

    /// Begins to move a VM and returns the operation and the migration.
    #[track_caller]
    pub(crate) fn begin(&self, vm: &str, more: &[&str]) -> (String, String) {
        let operation = self.cluster.begin(&[&["vm", "migrate", vm], more].concat());
        let migration = self.last_migration(vm).expect("a migration").id;
        (operation, migration.to_string())
    }

    #[track_caller]
    pub(crate) fn last_migration(&self, vm: &str) -> Option<Migration> {
        let list = self.cluster.json(&["migration", "list", "--vm", vm]);
        let mut all: Vec<Migration> = parse(&list);
        all.pop()
    }

    /// Waits until a hypervisor has a guest in this phase.
    #[track_caller]
    pub(crate) fn is_seen(&self, host: &str, vm: &str, phase: &str) -> Seen {
        eventually(&format!("{vm} is {phase} on {host}"), || {
            let guests = self.guests(host);
            let seen = guests.get(vm).filter(|seen| seen.phase == phase);
            seen.cloned().ok_or_else(|| format!("{guests:?}"))
        })
    }

    /// Returns why an operation failed.
    #[track_caller]
    pub(crate) fn fails(&self, operation: &str) -> Value {
        let ended = self.cluster.ends(operation);
        let refusal = ended["outcome"]["Failed"].clone();
        assert!(refusal.is_object(), "{ended:#}");
        refusal
    }

    /// Checks what must hold when nothing is under way: also that every guest that runs has exactly
    /// what is claimed for it, and no PCI function is given twice.
    #[track_caller]
    pub(crate) fn holds(&self) {
        verdict::holds(&self.cluster);
        verdict::runs_what_is_claimed(&self.cluster);
        for agent in &self.cluster.agents {
            let guests = self.guests(&agent.name);
            let mut given = BTreeSet::new();
            for claim in self.claims(&agent.name) {
                for address in claim.assignment.pci.iter().flatten() {
                    assert!(given.insert(*address), "{address} twice: {claim:?}");
                }
                let seen = guests
                    .get(claim.vm.as_str())
                    .filter(|g| g.phase == "Running");
                if let Some(seen) = seen.filter(|_| claim.state == claim::State::Active) {
                    assert_eq!(seen.spec.assignment, claim.assignment, "{}", claim.vm);
                }
            }
        }
    }
}

pub(crate) fn all_cpus(claims: &[Claim]) -> CpuSet {
    let each = claims.iter().map(|claim| claim.assignment.dedicated());
    each.fold(CpuSet::default(), |all, cpus| all.union(&cpus))
}

/// Returns the guests in a file of guests; there is none before there is a guest.
#[track_caller]
pub(crate) fn guests(file: &std::path::Path) -> BTreeMap<String, Seen> {
    let Ok(text) = fs::read(file) else {
        return BTreeMap::new();
    };
    let guests: Value = serde_json::from_slice(&text).expect("the file of guests is JSON");
    let guest = |guest: &Value| {
        let spec: DomainSpec = parse(&guest["spec"]);
        // One that has something to say beside its name is an object.
        let phase = guest["phase"].as_str();
        let fields = guest["phase"].as_object();
        let named = fields.and_then(|phase| phase.keys().next());
        let phase = phase.or(named.map(String::as_str)).expect("a phase");
        let seen = Seen {
            phase: phase.to_owned(),
            cpus: spec.assignment.dedicated(),
            error: guest["migration_error"].as_str().map(str::to_owned),
            spec: spec.clone(),
        };
        (spec.vm.to_string(), seen)
    };
    guests
        .as_array()
        .expect("a list")
        .iter()
        .map(guest)
        .collect()
}

/// Every state of the claims since a moment, one for each revision.
pub(crate) struct History {
    watch: Process,
}

impl History {
    /// Begins to follow a cluster.
    #[track_caller]
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let mut command = cluster.programs.command("berth");
        command.args(["--output", "json", "--scheduler", &cluster.addresses()]);
        command.args(["watch", "claims", "migrations", "vms"]);
        let watch = Process::start(command, &cluster.folder().join("history"));
        eventually("the beginning of the history", || {
            let text = watch.log();
            text.contains("in_step").then_some(()).ok_or(text)
        });
        Self { watch }
    }

    /// Returns the records of a kind after each revision, once it has told that this VM is so.
    #[track_caller]
    pub(crate) fn until(
        &self,
        kind: &str,
        is_last: impl Fn(&Value) -> bool,
    ) -> Vec<BTreeMap<String, Value>> {
        eventually("all that was told", || {
            let text = self.watch.log();
            let (states, ended) = replay(&text, kind, &is_last);
            ended.then_some(states).ok_or(text)
        })
    }
}

fn replay(
    text: &str,
    kind: &str,
    is_last: &impl Fn(&Value) -> bool,
) -> (Vec<BTreeMap<String, Value>>, bool) {
    let (mut now, mut states, mut ended) = (BTreeMap::new(), Vec::new(), false);
    let mut revision = 0;
    // The last line may be half written.
    for line in text.split_inclusive('\n').filter(|l| l.ends_with('\n')) {
        let Ok(line) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let told = line["revision"].as_u64().unwrap_or(revision);
        if told != revision {
            states.push(now.clone());
            revision = told;
        }
        assert_ne!(line["event"], "restart", "all of it was kept");
        ended |= line["event"] == "put" && is_last(&line);
        if line["kind"] != kind {
            continue;
        }
        let name = line["name"].as_str().unwrap_or_default().to_owned();
        match line["event"].as_str() {
            Some("is" | "put") => drop(now.insert(name, line["record"].clone())),
            Some("deleted") => drop(now.remove(&name)),
            Some(_) | None => {}
        }
    }
    states.push(now);
    (states, ended)
}
