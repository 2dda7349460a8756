//! `berth cluster backup`, `berth backup inspect` and `verify`, as an operator types them.
//!
//! Goal: a backup of any scheduler verifies, whatever happens meanwhile, and holds what was acknowledged
//! before it; a file that is not whole or not sound is refused, and no earlier file is lost. Method: whole
//! processes under load, of which two of three are killed; the files are read back by the command.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use berth_proto::client::SchedulerChannel;
use berth_proto::scheduler::v1::CreateFlavorRequest;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::types::v1::Flavor;
use berth_tests::processes::{Answer, Cluster, Host, certs, eventually};
use berth_tls::Role;
use serde_json::Value;

use crate::PROGRAMS;

/// Commands that the schedulers carry out until they are stopped.
#[derive(Default)]
pub(crate) struct Load {
    stop: AtomicBool,
    /// How many flavors were acknowledged.
    flavors: AtomicU64,
}

/// Stops the load, also when the test fails.
pub(crate) struct Stop<'l>(pub(crate) &'l Load);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
    }
}

impl Load {
    pub(crate) fn acknowledged(&self) -> u64 {
        self.flavors.load(Ordering::SeqCst)
    }

    /// Creates flavors until it is stopped, whatever becomes of the schedulers.
    pub(crate) fn run(&self, addresses: Vec<String>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let scheduler = SchedulerChannel::new(addresses).expect("addresses");
        let work = async {
            for number in 0.. {
                if self.stop.load(Ordering::SeqCst) {
                    return;
                }
                let request = CreateFlavorRequest {
                    flavor: Some(Flavor {
                        name: format!("flavors/load{number}"),
                        vcpus: 1,
                        memory_mib: 64,
                        ..Flavor::default()
                    }),
                    request_id: String::new(),
                };
                let call = |channel| {
                    let request = request.clone();
                    async move {
                        SchedulerServiceClient::new(channel)
                            .create_flavor(request)
                            .await
                    }
                };
                if scheduler.call(call).await.is_ok() {
                    self.flavors.fetch_add(1, Ordering::SeqCst);
                }
            }
        };
        runtime.expect("a runtime").block_on(work);
    }
}

fn start() -> Cluster {
    let cluster = Cluster::builder(PROGRAMS)
        .schedulers(3)
        .host(Host::new("h1"))
        .start();
    cluster.pinned_flavor("one", 1);
    let _ = cluster.boot("a", "one", "h1");
    cluster
}

pub(crate) fn urls(cluster: &Cluster) -> Vec<String> {
    let schedulers = cluster.schedulers.iter();
    schedulers
        .map(|s| format!("http://{}", s.address))
        .collect()
}

/// Makes a backup at one scheduler, and returns what the command states about it.
#[track_caller]
pub(crate) fn back_up(cluster: &Cluster, scheduler: usize, file: &Path, more: &[&str]) -> Value {
    let address = &cluster.schedulers[scheduler].address;
    let file = file.to_str().expect("a path");
    let arguments = [&["cluster", "backup", file][..], more].concat();
    let answer = cluster.berth_at(address, &arguments);
    answer.json().unwrap_or_else(|seen| panic!("{seen}"))
}

#[track_caller]
fn verify(cluster: &Cluster, files: &[&Path]) -> Value {
    let files = files.iter().map(|file| file.to_str().expect("a path"));
    let arguments: Vec<&str> = ["backup", "verify"].into_iter().chain(files).collect();
    let answer = cluster.berth(&arguments);
    answer.json().unwrap_or_else(|seen| panic!("{seen}"))
}

fn inspect(cluster: &Cluster, file: &Path) -> Value {
    let inspected = cluster.json(&["backup", "inspect", file.to_str().expect("a path")]);
    inspected[0].clone()
}

/// Goal: a device, a pipe or a link that is named by mistake is not replaced by a file with the backup,
/// with --force neither.
#[test]
fn only_files_are_replaced() {
    let cluster = Cluster::builder(PROGRAMS).schedulers(1).start();
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/dev/stdout", &link).expect("a link");
    for (path, words) in [
        (&*link, "or - for standard output"),
        (folder.path(), "regular"),
    ] {
        let path = path.to_str().expect("a path");
        for more in [&[][..], &["--force"]] {
            for command in [["cluster", "backup"], ["support", "bundle"]] {
                let line = [&command[..], &[path], more].concat();
                let answer = cluster.berth(&line).refused(1);
                let expected = match command[0] {
                    "cluster" => words,
                    _ => "regular",
                };
                let _ = answer.saying(&["FILE_UNUSABLE", "no regular file", expected]);
            }
        }
    }
    assert!(link.symlink_metadata().expect("it stays").is_symlink());
}

/// Goal: each scheduler gives backups that verify while flavors are created and schedulers are killed;
/// each holds what was acknowledged before it; without a leader the last one goes on to give them.
#[test]
fn backups_are_made_under_load_and_without_a_leader() {
    let mut cluster = start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: String| folder.path().join(name);
    let load = Load::default();
    let addresses = urls(&cluster);
    let leader = cluster.leader();
    let (last, lost) = ((leader + 1) % 3, (leader + 2) % 3);
    thread::scope(|scope| {
        let stop = Stop(&load);
        scope.spawn(|| load.run(addresses));
        eventually("a load", || {
            (load.acknowledged() > 20).then_some(()).ok_or("none")
        });
        for scheduler in 0..3 {
            let full = path(format!("full{scheduler}"));
            let before = load.acknowledged();
            let made = back_up(&cluster, scheduler, &full, &[]);
            assert_eq!(made["kind"], "full", "{made:#}");
            let shown = inspect(&cluster, &full);
            assert_eq!(shown["end_index"], made["end_index"], "{shown:#}");
            assert_eq!(shown["tables"]["vms"], 1, "{shown:#}");
            if scheduler == leader {
                // A follower may be some commands behind.
                let flavors = shown["tables"]["flavors"].as_u64();
                assert!(flavors > Some(before), "{before} before: {shown:#}");
            }
            let verified = verify(&cluster, &[&full]);
            assert_eq!(verified["state_hash"], made["state_hash"], "{verified:#}");
            assert_eq!(
                (&verified["hosts"], &verified["vms"]),
                (&1.into(), &1.into())
            );
        }
        cluster.schedulers[lost].kill();
        for scheduler in [leader, last] {
            let full = path(format!("full{scheduler}"));
            let increment = path(format!("increment{scheduler}"));
            let since = ["--since", full.to_str().expect("a path")];
            let made = back_up(&cluster, scheduler, &increment, &since);
            assert_eq!(made["kind"], "increment", "{made:#}");
            assert!(made["entries"].as_u64() > Some(0), "{made:#}");
            let verified = verify(&cluster, &[&full, &increment]);
            assert_eq!(verified["state_hash"], made["state_hash"], "{verified:#}");
            assert!(verified["commands"].as_u64() > Some(0), "{verified:#}");
        }
        drop(stop);
        cluster.schedulers[leader].kill();
    });
    println!("{} flavors were acknowledged", load.acknowledged());
    without_a_leader(&cluster, last, folder.path());
}

/// The last scheduler adds an increment to its chain, and a full backup that equals it.
fn without_a_leader(cluster: &Cluster, last: usize, folder: &Path) {
    let address = &cluster.schedulers[last].address;
    eventually("no leader", || {
        let status = cluster
            .berth_at(address, &["cluster", "status"])
            .json_with(4)?;
        let is_lost = status["leader_id"] == 0;
        is_lost.then_some(()).ok_or_else(|| status.to_string())
    });
    let chain = ["full", "increment", "second"].map(|name| folder.join(format!("{name}{last}")));
    let since = ["--since", chain[1].to_str().expect("a path")];
    let second = back_up(cluster, last, &chain[2], &since);
    let whole = folder.join("whole");
    let full = back_up(cluster, last, &whole, &[]);
    assert_eq!(full["state_hash"], second["state_hash"]);
    assert_eq!(full["end_index"], second["end_index"]);
    let chained = verify(cluster, &chain.each_ref().map(|path| path.as_path()));
    let whole = verify(cluster, &[&whole]);
    assert_eq!(chained["state_hash"], whole["state_hash"]);
    assert_eq!(chained["rows"], whole["rows"]);

    // Another scheduler's increment follows another index: the gap or the overlap is named.
    let text = |path: &Path| path.to_str().expect("a path").to_owned();
    let answer = cluster.berth(&["backup", "verify", &text(&chain[0]), &text(&chain[2])]);
    let _ = answer
        .refused(1)
        .saying(&["BACKUP_GAP", "are missing between"]);
    let answer = cluster.berth(&["backup", "verify", &text(&chain[1])]);
    let _ = answer.refused(1).saying(&["BACKUP_WITHOUT_FULL"]);
}

/// Goal: an increment never takes the place of a backup that increments need, whatever is forced; what nothing needs it
/// replaces.
#[test]
fn an_increment_replaces_nothing_that_is_needed() {
    let cluster = Cluster::builder(PROGRAMS).schedulers(1).start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).to_str().expect("a path").to_owned();
    for full in ["full", "other"] {
        let _ = back_up(&cluster, 0, &path(full), &[]);
    }
    std::os::unix::fs::symlink(path("full"), path("link")).expect("a link");
    let _ = back_up(&cluster, 0, &path("first"), &["--since", &text("full")]);
    for (file, since) in [
        ("full", "full"),
        ("full", "link"),
        ("full", "first"),
        ("other", "full"),
        ("first", "first"),
    ] {
        let before = fs::read(path(file)).expect("a backup");
        let arguments = ["--since", &text(since), "--force"];
        let into = text(file);
        let all = [&["cluster", "backup", &into][..], &arguments].concat();
        let _ = cluster.berth(&all).refused(1).saying(&["BACKUP_NEEDED"]);
        assert_eq!(fs::read(path(file)).expect("a backup"), before, "{file}");
    }
    let again = ["--since", &text("full"), "--force"];
    let _ = back_up(&cluster, 0, &path("first"), &again);
    let _ = verify(&cluster, &[&path("full"), &path("first")]);
}

/// Goal: a file is readable for its owner only, appears whole or not at all, and is replaced only on
/// request; standard output gets the same bytes.
#[test]
fn files_are_private_and_are_not_replaced_by_accident() {
    let cluster = Cluster::builder(PROGRAMS).schedulers(1).start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("full");
    let name = file.to_str().expect("a path");
    let _ = back_up(&cluster, 0, &file, &[]);
    let mode = fs::metadata(&file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = fs::read(&file).expect("a file");
    let refused = cluster.berth(&["cluster", "backup", name]).refused(1);
    let _ = refused.saying(&["FILE_EXISTS", "--force"]);
    assert_eq!(fs::read(&file).expect("a file"), before);
    cluster.run(&[
        "flavor",
        "create",
        "f",
        "--vcpus",
        "1",
        "--memory-mib",
        "64",
    ]);
    let _ = back_up(&cluster, 0, &file, &["--force"]);
    assert_ne!(fs::read(&file).expect("a file"), before);

    let piped = folder.path().join("piped");
    let mut command = cluster.programs.command("berth");
    command.args([
        "--scheduler",
        &cluster.addresses(),
        "cluster",
        "backup",
        "-",
    ]);
    command
        .stdout(File::create(&piped).expect("a file"))
        .stderr(Stdio::piped());
    let ended = command.output().expect("it runs");
    assert!(ended.status.success(), "{ended:?}");
    let _ = verify(&cluster, &[&piped]);
    let mut command = cluster.programs.command("berth");
    command.args(["--output", "json", "--scheduler", &cluster.addresses()]);
    command.args(["cluster", "backup", "-"]);
    let full = File::options().write(true).open("/dev/full");
    command
        .stdout(full.expect("a device"))
        .stderr(Stdio::piped());
    let ended = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("FILE_UNUSABLE"), "{said}");
    let names = fs::read_dir(folder.path()).expect("a folder");
    assert_eq!(names.count(), 2, "no part is left");

    refuses_damage(&cluster, &file);
}

/// Each kind of damage is refused with its own reason, and so is an increment of a damaged file.
fn refuses_damage(cluster: &Cluster, file: &Path) {
    let sound = fs::read(file).expect("a file");
    let damaged = file.with_extension("damaged");
    let name = damaged.to_str().expect("a path");
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let half = sound[..sound.len() / 2].to_vec();
    for (bytes, reason) in [
        (half, "BACKUP_CUT_SHORT"),
        (flipped(sound.len() / 2), "BACKUP_DAMAGED"),
        (flipped(8), "BACKUP_NEWER"),
        (flipped(0), "NOT_A_BACKUP"),
    ] {
        fs::write(&damaged, bytes).expect("a file");
        fs::set_permissions(&damaged, fs::Permissions::from_mode(0o600)).expect("its owner's");
        for verb in ["inspect", "verify"] {
            let answer = cluster.berth(&["backup", verb, name]).refused(1);
            let _ = answer.saying(&[reason, name]);
        }
        let next = file.with_extension("next");
        let next = next.to_str().expect("a path");
        let answer = cluster.berth(&["cluster", "backup", next, "--since", name]);
        let _ = answer.refused(1).saying(&[reason]);
        assert!(!Path::new(next).exists());
    }
    fs::remove_file(damaged).expect("it is there");
}

/// Goal: a backup holds everything, so only operators get one.
#[test]
fn only_operators_get_a_backup() {
    let cluster = Cluster::builder(PROGRAMS).schedulers(1).certified().start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("full");
    let run = |role: Role, name: &str| {
        let mut command = cluster.programs.command("berth");
        command.args(["--output", "json", "--scheduler", &cluster.addresses()]);
        let files = cluster.certificates().files(role, name);
        for (flag, file) in certs::flags(&files) {
            command.args([flag, &file]);
        }
        command.args(["cluster", "backup"]).arg(&file);
        Answer::of(command)
    };
    for (role, name) in [
        (Role::Reader, "bob"),
        (Role::Agent, "h9"),
        (Role::Conductor, "c9"),
        (Role::CsiController, "v9"),
        (Role::Scheduler, "m9"),
    ] {
        let _ = run(role, name).refused(1).saying(&["PERMISSION_DENIED"]);
        assert!(!file.exists(), "{role}");
    }
    let _ = run(Role::Operator, "ann").with_status(0);
    let _ = verify(&cluster, &[&file]);
}
