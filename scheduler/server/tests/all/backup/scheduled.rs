//! Goal: a member with a schedule makes backups that verify as chains, keeps as many as configured, deletes
//! nothing of others, and goes on serving when it cannot write. Method: members in this process with an
//! interval of a second, while flavors are created.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use berth_backup::{Chain, Kind, Reader};
use berth_proto::cluster::v1::ScheduledBackups;
use berth_scheduler::config::Backups;
use berth_scheduler::machine::{Level, Machine};
use berth_scheduler::{Config, Start};
use tempfile::TempDir;

use crate::common::world::flavor_request;
use crate::common::{Member, config, eventually, schedulers};

/// A member with a schedule, and its directory.
struct Scheduled {
    member: Member,
    folder: TempDir,
    flavors: u64,
}

fn directory(folder: &TempDir) -> PathBuf {
    folder.path().join("backups")
}

fn configured(folder: &TempDir, start: Start) -> Config {
    Config {
        backups: Backups {
            directory: Some(directory(folder)),
            interval_s: 1,
            full_every: 3,
            keep: 2,
        },
        ..config(&folder.path().join("data"), start)
    }
}

impl Scheduled {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let member = Member::start(configured(&folder, Start::Bootstrap)).await;
        Self {
            member,
            folder,
            flavors: 0,
        }
    }

    /// Changes the state.
    async fn change(&mut self) {
        self.flavors += 1;
        let request = flavor_request(&format!("f{}", self.flavors), 1, &[]);
        let channel = self.member.channel().await;
        let created = schedulers(&channel).create_flavor(request).await;
        created.expect("it is created");
    }

    /// Returns the kinds of the files, the oldest first.
    fn kinds(&self) -> Vec<Kind> {
        files(&directory(&self.folder))
            .into_iter()
            .map(|(kind, _)| kind)
            .collect()
    }

    /// Changes the state until the files are as expected.
    async fn until(&mut self, what: &str, is_reached: impl Fn(&[Kind]) -> bool) {
        let deadline = std::time::Instant::now() + crate::common::PATIENCE;
        while !is_reached(&self.kinds()) {
            assert!(std::time::Instant::now() < deadline, "{what}");
            self.change().await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    async fn status(&self) -> ScheduledBackups {
        self.member.status().await.backups.expect("a schedule")
    }
}

/// Returns the scheduled files, the oldest first: names begin with the index.
fn files(directory: &Path) -> Vec<(Kind, PathBuf)> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_made = |path: &PathBuf| path.extension().is_some_and(|end| end == "backup");
    let mut paths: Vec<PathBuf> = paths.filter(is_made).collect();
    paths.sort();
    let kind = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        let is_scheduled = name.starts_with("berth-");
        is_scheduled.then_some(match name.ends_with("-full.backup") {
            true => Kind::Full,
            false => Kind::Increment,
        })
    };
    paths
        .into_iter()
        .filter_map(|path| Some((kind(&path)?, path)))
        .collect()
}

/// Verifies every full backup with the increments behind it.
fn verify(files: &[(Kind, PathBuf)]) {
    let mut chain: Option<Chain<Machine>> = None;
    for (kind, path) in files {
        if *kind == Kind::Full
            && let Some(done) = chain.replace(Chain::new(Level::default()))
        {
            done.finish().map(|_| ()).expect("it verifies");
        }
        let file = fs::File::open(path).expect("a file");
        let reader = Reader::new(file).expect("a header");
        let chain = chain.as_mut().expect("a full backup is the first");
        chain.add(reader).expect("it follows");
        let mode = fs::metadata(path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let last = chain.expect("there are files");
    last.finish().map(|_| ()).expect("it verifies");
}

fn fulls(kinds: &[Kind]) -> usize {
    kinds.iter().filter(|kind| **kind == Kind::Full).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_are_made_and_replaced() {
    let mut scheduled = Scheduled::start().await;
    let backups = directory(&scheduled.folder);
    scheduled
        .until("a full backup", |kinds| !kinds.is_empty())
        .await;
    let first = files(&backups)[0].1.clone();
    for foreign in ["monday.backup", "berth-notes.txt"] {
        fs::write(backups.join(foreign), "of another").expect("a file");
    }
    scheduled
        .until("two increments", |kinds| {
            kinds == [Kind::Full, Kind::Increment, Kind::Increment]
        })
        .await;
    verify(&files(&backups));
    scheduled
        .until("the first is replaced with its increments", |kinds| {
            !first.exists() && kinds[0] == Kind::Full
        })
        .await;
    let left = files(&backups);
    assert_eq!(fulls(&scheduled.kinds()), 2, "{left:?}");
    assert_eq!(
        left[0].0,
        Kind::Full,
        "its increments went with it: {left:?}"
    );
    verify(&left);
    for foreign in ["monday.backup", "berth-notes.txt"] {
        assert!(backups.join(foreign).exists(), "{foreign}");
    }
    let status = scheduled.status().await;
    assert!(
        status.last_time.is_some() && status.last_index > 0,
        "{status:?}"
    );
    assert_eq!(status.failure, "");

    // After a restart it goes on; after damage of the newest file with a full backup.
    let newest = files(&backups).pop().expect("a file").1;
    let mut bytes = fs::read(&newest).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).expect("a file");
    let before: BTreeSet<PathBuf> = files(&backups).into_iter().map(|(_, path)| path).collect();
    scheduled.member.stop().await.expect("it stops");
    scheduled.member = Member::start(configured(&scheduled.folder, Start::Restart)).await;
    let fresh = |(kind, path): &(Kind, PathBuf)| (!before.contains(path)).then_some(*kind);
    scheduled
        .until("a file after the restart", |_| {
            files(&backups).iter().find_map(fresh).is_some()
        })
        .await;
    let next = files(&backups).iter().find_map(fresh);
    assert_eq!(next, Some(Kind::Full));
}

/// Goal: a lowered `keep` makes space before the next backup is written, which a full disk would else prevent.
/// Method: increments alone are made after the restart; none of them replaces a full backup.
#[tokio::test(flavor = "multi_thread")]
async fn a_lowered_keep_needs_no_new_full_backup() {
    let mut scheduled = Scheduled::start().await;
    let backups = directory(&scheduled.folder);
    scheduled
        .until("two full backups", |kinds| fulls(kinds) == 2)
        .await;
    scheduled.member.stop().await.expect("it stops");
    let before = files(&backups);
    let oldest = &before[0].1;
    let mut config = configured(&scheduled.folder, Start::Restart);
    config.backups.keep = 1;
    config.backups.full_every = 1_000;
    scheduled.member = Member::start(config).await;
    scheduled
        .until("the oldest is deleted", |_| !oldest.exists())
        .await;
    let left = files(&backups);
    assert_eq!(fulls(&scheduled.kinds()), 1, "{left:?}");
    let newest_full = before.iter().rfind(|(kind, _)| *kind == Kind::Full);
    assert_eq!(left.first(), newest_full);
    verify(&left);
}

/// Goal: a directory that cannot be written is reported, the member goes on, and so do the backups once it
/// can be written.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_used_ends_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(directory(&folder), "no directory").expect("a file");
    let member = Member::start(configured(&folder, Start::Bootstrap)).await;
    let mut scheduled = Scheduled {
        member,
        folder,
        flavors: 0,
    };
    let failed = eventually("a failure", || async {
        let status = scheduled.status().await;
        (!status.failure.is_empty()).then_some(status)
    })
    .await;
    assert!(failed.failure.contains("cannot be used"), "{failed:?}");
    assert_eq!(failed.last_time, None);
    scheduled.change().await;
    fs::remove_file(directory(&scheduled.folder)).expect("it is there");
    scheduled.until("a backup", |kinds| !kinds.is_empty()).await;
    eventually("no failure", || async {
        let status = scheduled.status().await;
        (status.failure.is_empty() && status.last_index > 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_directory_nothing_is_scheduled() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let member = Member::start(config(&data, Start::Bootstrap)).await;
    assert_eq!(member.status().await.backups, None);
}
