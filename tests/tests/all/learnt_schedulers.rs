//! Programs learn the members of the cluster: none depends on the addresses that it was given.
//!
//! Goal: conductor, agent, controller of volumes and a command that watches go on when the members
//! that they were given are lost, and so do those that are restarted after that. Method: whole
//! processes; what each of them does through the schedulers is used after each step: a VM is booted
//! (conductor), its host's memory is reported (agent), a volume is created (controller).

use std::fs;
use std::path::PathBuf;

use berth_tests::processes::csi::volume_request;
use berth_tests::processes::{Cluster, Csi, Host, Process, eventually};

use crate::PROGRAMS;

const PROGRAM_NAMES: [&str; 3] = ["conductor-1", "h1", "csi-controller-1"];

struct World {
    cluster: Cluster,
    csi: Csi,
    /// How many VMs and volumes were made.
    made: u32,
}

impl World {
    /// Starts a cluster whose programs are given the first `given` of three schedulers.
    fn new(given: usize, is_certified: bool) -> Self {
        let host = Host::new("h1").with_volumes("sim", &["region0:4096"], "");
        let builder = Cluster::builder(PROGRAMS).given(given).host(host);
        let builder = match is_certified {
            true => builder.certified(),
            false => builder,
        };
        let mut cluster = builder.start();
        let csi = cluster.add_csi_controller();
        let flavor = ["flavor", "create", "small", "--vcpus", "1"];
        cluster.run(&[&flavor[..], &["--memory-mib", "64"]].concat());
        let mut world = Self {
            cluster,
            csi,
            made: 0,
        };
        world.all_work("all members run");
        world.have_learnt();
        world
    }

    /// Waits until every program has stored exactly the members that there are.
    #[track_caller]
    fn have_learnt(&self) {
        let mut expected: Vec<&str> = self
            .cluster
            .schedulers
            .iter()
            .map(|s| &*s.address)
            .collect();
        expected.sort_unstable();
        for name in PROGRAM_NAMES {
            eventually(&format!("the members as {name} learnt them"), || {
                let text = fs::read_to_string(self.file(name)).map_err(|e| e.to_string())?;
                let members = text.lines().filter_map(|line| line.strip_prefix("member "));
                let mut members: Vec<&str> = members.collect();
                members.sort_unstable();
                let is_complete = members == expected;
                is_complete
                    .then_some(())
                    .ok_or_else(|| format!("{text}; {expected:?}"))
            });
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.cluster.learnt_dir(name).join("schedulers")
    }

    /// Waits until each program has done its work with a scheduler that is left.
    #[track_caller]
    fn all_work(&mut self, when: &str) {
        self.made += 1;
        let vm = format!("vm-{}", self.made);
        eventually(&format!("a VM when {when}"), || {
            let answer = self.cluster.berth(&Cluster::create(&vm, "small"));
            let shown = self.cluster.ask(&["vm", "show", &vm])?;
            let is_active = shown["vm"]["state"] == "Active";
            is_active
                .then_some(())
                .ok_or_else(|| format!("{answer:?} {shown:#}"))
        });
        let volume = volume_request(&format!("volume-{}", self.made), 1 << 20);
        eventually(&format!("a volume when {when}"), || {
            self.csi.create(&volume)
        });
        eventually(&format!("a report of the agent when {when}"), || {
            let shown = self.cluster.ask(&["host", "show", "h1"])?;
            // Only the leader has it, and a new one has it from a heartbeat to itself.
            let is_reported = !shown["memory_signals"].is_null();
            is_reported
                .then_some(())
                .ok_or_else(|| format!("{shown:#}"))
        });
    }

    /// Ends all programs and starts them as they were started first.
    fn restart_programs(&mut self) {
        let cluster = &mut self.cluster;
        let parts = cluster.conductors.iter_mut().chain(&mut cluster.agents);
        for part in parts.chain(&mut cluster.csi_controllers) {
            part.kill();
            part.start(&cluster.programs);
        }
        let socket = PathBuf::from(&cluster.csi_controllers[0].address);
        self.csi = Csi::at(&socket);
    }

    fn add_member(&mut self) {
        self.cluster.add_scheduler();
        self.cluster.wait();
    }

    /// Removes the first member, and ends it.
    fn remove_first_member(&mut self) {
        let address = self.cluster.schedulers[0].address.clone();
        eventually("the removal of a member", || {
            let status = self.cluster.ask(&["cluster", "status"])?;
            let members = status["members"].as_array().cloned().unwrap_or_default();
            let Some(member) = members.iter().find(|m| m["address"] == *address) else {
                return Ok(());
            };
            let id = member["id"].to_string();
            let answer = self.cluster.berth(&["cluster", "remove-member", &id]);
            Err(format!("{answer:?}"))
        });
        drop(self.cluster.schedulers.remove(0));
    }

    fn kill_given(&mut self) {
        self.cluster.schedulers[0].kill();
    }
}

/// Starts `berth watch` with the first scheduler's address alone.
fn watch(cluster: &Cluster) -> Process {
    let mut command = cluster.programs.command("berth");
    let address = &cluster.schedulers[0].address;
    command.args(["--output", "json", "--scheduler", address, "watch"]);
    Process::start(command, &cluster.folder().join("watch.log"))
}

/// Goal: the only given member dies; every program goes on, also after a restart.
#[test]
fn the_given_member_dies() {
    let mut world = World::new(1, false);
    let watching = watch(&world.cluster);
    eventually("a watch that is in step", || {
        let log = watching.log();
        log.contains("in_step").then_some(()).ok_or(log)
    });
    world.kill_given();
    world.all_work("the given member is dead");
    eventually("an event after the given member died", || {
        let log = watching.log();
        let vm = format!("vm-{}", world.made);
        log.contains(&vm).then_some(()).ok_or(log)
    });
    world.restart_programs();
    world.all_work("the programs were restarted while the given member is dead");
}

/// Goal: as before, where every connection is encrypted and both ends show certificates.
#[test]
fn the_given_member_dies_under_tls() {
    let mut world = World::new(1, true);
    world.kill_given();
    world.all_work("the given member is dead");
    world.restart_programs();
    world.all_work("the programs were restarted while the given member is dead");
}

/// Goal: a rolling replacement of all members; none of the given addresses exists in the end.
#[test]
fn all_given_members_are_replaced() {
    let mut world = World::new(3, false);
    for _ in 0..3 {
        world.add_member();
        world.remove_first_member();
        world.have_learnt();
    }
    world.all_work("all given members are replaced");
    world.restart_programs();
    world.all_work("the programs were restarted after that");
}

/// Makes a wrong file of a right one.
type Rewrite<'r> = dyn Fn(&str) -> String + 'r;

/// Goal: a file that cannot be right is ignored with a log line, and the configured addresses are
/// used. Method: for each program, a damaged file, one that was learnt with other settings, and one
/// of another cluster.
#[test]
fn a_wrong_file_is_ignored() {
    let mut world = World::new(1, false);
    let right: Vec<String> = PROGRAM_NAMES
        .map(|name| fs::read_to_string(world.file(name)).expect("a file"))
        .to_vec();
    let cluster_id = |text: &str| text.lines().nth(1).expect("a cluster").to_owned();
    let other = "cluster 0198c0de-0000-7000-8000-000000000001";
    let given = format!("configured http://{}", world.cluster.schedulers[0].address);
    let nowhere = "configured http://127.0.0.1:1";
    let wrong: [(&str, &Rewrite<'_>); 3] = [
        ("damaged", &|text| text.replacen("member ", "member 1", 1)),
        ("learnt from other configured", &|text| {
            rewritten(&text.replace(&given, nowhere))
        }),
        ("belongs to another cluster", &|text| {
            rewritten(&text.replace(&cluster_id(text), other))
        }),
    ];
    for (logged, make) in wrong {
        for (name, text) in PROGRAM_NAMES.into_iter().zip(&right) {
            fs::write(world.file(name), make(text)).expect("a file of this test");
        }
        world.restart_programs();
        world.all_work(&format!("the file is wrong: {logged}"));
        world.have_learnt();
        let cluster = &world.cluster;
        let parts = cluster.conductors.iter().chain(&cluster.agents);
        for part in parts.chain(&cluster.csi_controllers) {
            assert!(
                part.said().contains(logged),
                "{}: {}",
                part.name,
                part.said()
            );
        }
        for (name, text) in PROGRAM_NAMES.into_iter().zip(&right) {
            let now = fs::read_to_string(world.file(name)).expect("a file");
            assert_eq!(cluster_id(&now), cluster_id(text));
        }
    }
}

/// Returns the text with the checksum that belongs to it.
fn rewritten(text: &str) -> String {
    let body = &text[..text.rfind("checksum ").expect("a checksum")];
    let sum = body.bytes().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{body}checksum {sum:016x}\n")
}
