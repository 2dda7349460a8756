//! Goal: the disks of a VM that is moved while it does not run come with it to a host that does not share
//! them: the same bytes, whole or not at all, and in the end on one host. Method: a scheduler, a conductor
//! and agents as processes, asked by the real command. Only the hypervisors are simulated: the disks of
//! their guests are files, sent from agent to agent, and a file tells them what to hold.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use berth_domain::id::{MigrationId, VmUid};
use berth_driver::disks::{DiskReader, Piece, Place};
use berth_tests::processes::{Cluster, Host, Process, eventually, verdict};
use serde_json::Value;
use uuid::Uuid;

use crate::PROGRAMS;

const A: &str = "host-a";
const B: &str = "host-b";
const MIB: u64 = 1 << 20;

/// Two hosts with a storage each, and a VM with two disks on the first.
struct Stage {
    cluster: Cluster,
    uid: VmUid,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Stage {
    #[track_caller]
    fn start() -> Self {
        let cluster = Cluster::builder(PROGRAMS)
            .schedulers(1)
            .host(Host::new(A).with_storage("one"))
            .host(Host::new(B).with_storage("two"))
            .start();
        for (name, vcpus) in [("small", "1"), ("large", "2")] {
            let size = ["--vcpus", vcpus, "--memory-mib", "64", "--disk-gib", "2"];
            let pinned = ["--spec", "hw:cpu_policy=dedicated"];
            cluster.run(&[&["flavor", "create", name][..], &size, &pinned].concat());
        }
        let disks = ["--disk", "first.qcow2:1", "--disk", "second.qcow2:1"];
        let create = ["vm", "create", "d", "--flavor", "small", "--host", A];
        cluster.run(&[&create[..], &disks].concat());
        let shown = cluster.json(&["vm", "show", "d"]);
        let uid = VmUid(text(&shown["vm"]["uid"]).parse().expect("a UUID"));
        Self { cluster, uid }
    }

    fn directory(&self, host: &str) -> PathBuf {
        let storage = if host == A { "one" } else { "two" };
        self.cluster.disk_dir(storage).join(self.uid.to_string())
    }

    fn files(&self, host: &str) -> Vec<PathBuf> {
        let directory = self.directory(host);
        (0..2)
            .map(|n| directory.join(format!("disk{n}.raw")))
            .collect()
    }

    /// Returns what is in the disks on a host, without the holes.
    #[track_caller]
    fn contents(&self, host: &str) -> BTreeMap<(usize, u64), Vec<u8>> {
        let place = Place {
            directory: self.directory(host),
            files: self.files(host),
        };
        let nothing = MigrationId(Uuid::nil());
        let mut disks = DiskReader::open(self.uid, &place, nothing).expect("disks");
        let mut contents = BTreeMap::new();
        while let Some(piece) = disks.next_piece().expect("a piece") {
            if let Piece::Data {
                disk,
                offset,
                bytes,
            } = piece
            {
                for (block, bytes) in (0..).zip(bytes.chunks(512)) {
                    if bytes.iter().any(|byte| *byte != 0) {
                        contents.insert((disk, offset + block * 512), bytes.to_owned());
                    }
                }
            }
        }
        assert!(contents.len() > 100, "there is something in them");
        contents
    }

    /// Writes so many MiB into the first disk, as the guest would.
    fn write(&self, host: &str, mib: u64, byte: u8) {
        let disk = OpenOptions::new().write(true).open(&self.files(host)[0]);
        let disk = disk.expect("a disk");
        for n in 0..mib {
            let bytes = vec![byte; 1 << 20];
            disk.write_all_at(&bytes, (100 + n) * MIB).expect("room");
        }
    }

    #[track_caller]
    fn has_nothing(&self, host: &str) {
        let directory = self.directory(host);
        let left = fs::read_dir(&directory).map(|all| all.flatten().map(|e| e.path()).collect());
        let left: Vec<PathBuf> = left.unwrap_or_default();
        assert!(!directory.exists(), "on {host}: {left:?}");
    }

    #[track_caller]
    fn is(&self, state: &str, host: &str) {
        let shown = self.cluster.json(&["vm", "show", "d"]);
        assert_eq!(shown["vm"]["state"], state, "{shown:#}");
        assert_eq!(shown["vm"]["host"], host, "{shown:#}");
        verdict::holds(&self.cluster);
    }

    #[track_caller]
    fn fails(&self, operation: &str) -> Value {
        let ended = self.cluster.ends(operation);
        let failed = ended["outcome"]["Failed"].clone();
        assert!(failed.is_object(), "{ended:#}");
        failed
    }

    /// Begins to move the VM to the other host, and returns when the first piece has come, which is held.
    #[track_caller]
    fn begin_and_hold(&self) -> (String, String) {
        self.write(A, 48, 0x5a);
        self.cluster.happens(B, "hold fetch");
        let operation = self.cluster.begin(&["vm", "migrate", "d", "--cold"]);
        self.cluster.reaches(&operation, "FetchDisks", "Started");
        let list = self.cluster.json(&["migration", "list", "--vm", "d"]);
        let migrations = list.as_array().expect("a list");
        let migration = text(&migrations.last().expect("one")["id"]);
        let part = self.directory(B).join("disk0.raw.part");
        eventually("a part of the disk", || {
            part.exists().then_some(()).ok_or("there is none")
        });
        (operation, migration)
    }

    #[track_caller]
    fn restart_agent(&mut self, host: &str) {
        let agents = &mut self.cluster.agents;
        let agent = agents.iter_mut().find(|agent| agent.name == host);
        let agent = agent.expect("an agent");
        agent.kill();
        agent.start(&self.cluster.programs);
        self.cluster.wait();
    }
}

fn allocated(path: &Path) -> u64 {
    File::open(path)
        .and_then(|file| file.metadata())
        .expect("a file")
        .blocks()
        * 512
}

#[test]
fn a_cold_migration_takes_the_disks_along_and_back() {
    let stage = Stage::start();
    let before = stage.contents(A);
    stage.cluster.run(&["vm", "migrate", "d", "--cold"]);
    stage.is("Active", B);
    assert_eq!(stage.contents(B), before);
    stage.has_nothing(A);
    for (disk, file) in stage.files(B).iter().enumerate() {
        let length = fs::metadata(file).expect("a disk").len();
        assert_eq!(length, 1 << 30, "disk {disk}");
        assert!(
            allocated(file) < 8 * MIB,
            "its holes are not filled: disk {disk}"
        );
    }
    let mut logged = stage.cluster.json(&["migration", "list", "--vm", "d"]);
    let migration = logged.as_array_mut().and_then(Vec::pop).expect("one");
    assert_eq!(migration["fetches_disks"], true, "{migration:#}");

    // What it wrote there comes back with it; and one that is off has disks too.
    stage.write(B, 2, 7);
    let written = stage.contents(B);
    assert_ne!(written, before);
    stage.cluster.run(&["vm", "stop", "d"]);
    stage
        .cluster
        .run(&["vm", "migrate", "d", "--cold", "--host", A]);
    stage.is("Stopped", A);
    assert_eq!(stage.contents(A), written);
    stage.has_nothing(B);
    stage.cluster.run(&["vm", "start", "d"]);
    stage.is("Active", A);
}

#[test]
fn a_resize_keeps_both_until_it_is_confirmed_or_reverted() {
    let stage = Stage::start();
    let before = stage.contents(A);
    let resize = ["vm", "resize", "d", "--flavor", "large", "--host", B];
    stage.cluster.run(&resize);
    stage.is("Resized", B);
    assert_eq!(
        (stage.contents(A), stage.contents(B)),
        (before.clone(), before.clone())
    );

    stage.write(B, 1, 1);
    stage.cluster.run(&["vm", "revert-resize", "d"]);
    stage.is("Active", A);
    assert_eq!(stage.contents(A), before);
    stage.has_nothing(B);

    stage.cluster.run(&resize);
    stage.write(B, 1, 2);
    let written = stage.contents(B);
    assert_eq!(stage.contents(A), before);
    stage.cluster.run(&["vm", "confirm-resize", "d"]);
    stage.is("Active", B);
    assert_eq!(stage.contents(B), written);
    stage.has_nothing(A);

    // Deleted while it is on both, it is on none.
    let back = ["vm", "migrate", "d", "--cold", "--verify"];
    stage.cluster.run(&back);
    stage.is("Resized", A);
    stage.cluster.run(&["vm", "delete", "d"]);
    stage.has_nothing(A);
    stage.has_nothing(B);
    verdict::holds(&stage.cluster);
}

#[test]
fn a_destination_without_room_says_so_and_nothing_has_moved() {
    let stage = Stage::start();
    let before = stage.contents(A);
    stage.cluster.happens(B, "room 16");
    let operation = stage.cluster.begin(&["vm", "migrate", "d", "--cold"]);
    let failed = stage.fails(&operation);
    assert_eq!(failed["reason"], "NO_ROOM_FOR_DISKS", "{failed:#}");
    assert!(text(&failed["message"]).contains("host-b"), "{failed:#}");
    stage.is("Active", A);
    assert_eq!(stage.contents(A), before);
    stage.has_nothing(B);
    stage.cluster.happens(B, "room 1000");
    stage.cluster.run(&["vm", "migrate", "d", "--cold"]);
    assert_eq!(stage.contents(B), before);
}

#[test]
fn agents_that_are_killed_in_the_middle_leave_nothing_half() {
    let mut stage = Stage::start();
    for killed in [A, B] {
        let (operation, _) = stage.begin_and_hold();
        let before = stage.contents(A);
        // Nobody takes what is there for a disk.
        assert!(!stage.files(B)[0].exists());
        // What holds the fetch at the destination ends with its agent, or is let go.
        if killed == B {
            let agents = &mut stage.cluster.agents;
            let agent = agents.iter_mut().find(|agent| agent.name == B);
            agent.expect("an agent").kill();
        }
        stage.cluster.happens(B, "let fetch");
        stage.restart_agent(killed);
        stage.cluster.succeeds(&operation);
        stage.is("Active", B);
        assert_eq!(stage.contents(B), before, "after {killed} was killed");
        stage.has_nothing(A);
        stage.cluster.run(&["vm", "migrate", "d", "--cold"]);
        stage.is("Active", A);
    }
}

#[test]
fn a_fetch_says_how_far_it_is_and_is_given_up() {
    let stage = Stage::start();
    let (operation, migration) = stage.begin_and_hold();
    let before = stage.contents(A);
    let progress = watched(&stage, &migration);
    let total = progress["disk"]["total"].as_u64().expect("a number");
    assert!(total >= 48 * MIB, "{progress:#}");

    stage.cluster.run(&["migration", "abort", &migration]);
    stage.cluster.happens(B, "let fetch");
    let failed = stage.fails(&operation);
    assert_eq!(failed["reason"], "OPERATION_CANCELLED", "{failed:#}");
    stage.is("Active", A);
    assert_eq!(stage.contents(A), before);
    stage.has_nothing(B);
}

/// Returns the first figures that who follows a migration is told.
#[track_caller]
fn watched(stage: &Stage, migration: &str) -> Value {
    let mut command = stage.cluster.programs.command("berth");
    let addresses = stage.cluster.addresses();
    command.args(["--output", "json", "--scheduler", &addresses]);
    command.args(["migration", "watch", migration]);
    let watch = Process::start(command, &stage.cluster.folder().join("watch"));
    eventually("a line with figures", || {
        let text = watch.log();
        let lines = text.lines();
        let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.find(|line| line["progress"]["disk"]["total"].as_u64() > Some(0));
        line.map(|line| line["progress"].clone()).ok_or(text)
    })
}

/// Nothing is read from a host that is dead: its VMs are not started without their disks.
#[test]
fn an_evacuation_is_refused_where_the_disks_were_the_dead_hosts_own() {
    let mut stage = Stage::start();
    let agents = &mut stage.cluster.agents;
    let agent = agents.iter_mut().find(|agent| agent.name == A);
    agent.expect("an agent").kill();
    let fence = ["host", "fence", A, "--confirm-off"];
    eventually("the host is fenced", || stage.cluster.ask(&fence));
    let refused = stage.cluster.berth(&["vm", "evacuate", "d"]);
    let said = format!("{refused:?}");
    assert!(said.contains("NO_VALID_HOST"), "{said}");
    assert!(said.contains("DISKS_NOT_SHARED"), "{said}");
}
