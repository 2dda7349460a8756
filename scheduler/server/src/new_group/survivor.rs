//! A new group of a member that has lost its quorum.
//!
//! All entries of its log become part of the state, also those of which it does not know that they were
//! committed: one that was acknowledged to a client may be among them, and none that was acknowledged
//! and that this member has is left out.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use berth_domain::recovery::Cause;
use berth_process::{Failed, error_chain};
use berth_proto::client::Dialer;
use berth_replication::Machine as _;
use berth_replication::effects::Position;
use berth_replication::replay::Replay;
use berth_store::disk::Disk as _;
use berth_store::{FileDisk, Identity, Membership, recover as read_disk};
use berth_tls::Role;
use serde_json::{Value, json};

use super::failure::{
    MEMBER_ANSWERS, NO_STATE, WITHIN_OLD_DIRECTORY, cannot_run, failed, of_survivor, unsound,
};
use super::member::{NewGroup, create, prepare};
use super::report::{self, Report};
use super::{NEXT, level};
use crate::config::Config;
use crate::join;
use crate::machine::{Level, Machine};
use crate::stop::{self, Reason};

/// How many uncommitted commands are named.
const NAMED_MAX: usize = 20;

/// How long another member is waited for.
const ANSWER: Duration = Duration::from_secs(5);

/// What a member's directory holds.
struct Survivor {
    identity: Identity,
    membership: Membership,
    replay: Replay<Machine>,
    /// The last index of which the member knows that it was committed.
    committed: u64,
    /// The index and what it is, of commands that were not known to be committed.
    uncommitted: Vec<String>,
}

/// Prints what a member's directory holds.
pub(super) fn inspect(config: &Config) -> Result<Report, Failed> {
    let survivor = read(config)?;
    if let Err(violation) = survivor.replay.machine().check() {
        let path = config.data_dir.display();
        let why = format!("the state in {path} breaks an invariant: {violation}");
        return Err(unsound(why));
    }
    let Position {
        index, term, hash, ..
    } = survivor.replay.position();
    let state = survivor.replay.machine().state();
    let members = &survivor.membership.members;
    let named: Vec<_> = (members.iter())
        .map(|m| format!("{} at {}", m.id, m.address))
        .collect();
    let text = format!(
        "cluster      {}\n\
         member       {}\n\
         members      {}\n\
         last entry   {index} of term {term}\n\
         committed    {} at least\n\
         state hash   {hash}\n\
         revision     {}\n\
         hosts        {}\n\
         VMs          {}\n\
         {}\
         The survivor with the greatest term of its last entry, and among those with the greatest \
         index, has the most. With equal term and index the hashes must be equal too.\n",
        survivor.identity.cluster_id,
        survivor.identity.member_id,
        named.join(", "),
        survivor.committed,
        state.revision(),
        state.hosts().len(),
        state.vms().len(),
        describe_uncommitted(&survivor.uncommitted),
    );
    let members = members
        .iter()
        .map(|m| json!({"id": m.id, "address": m.address}));
    let mut value = survivor.to_json();
    value["members"] = members.collect();
    value["commit_index"] = survivor.committed.into();
    value["state_hash"] = hash.to_string().into();
    value["revision"] = state.revision().into();
    value["hosts"] = state.hosts().len().into();
    value["vms"] = state.vms().len().into();
    Ok(Report { text, value })
}

impl Survivor {
    /// Returns which member it is, and what it has that may not be committed.
    fn to_json(&self) -> Value {
        let Position { index, term, .. } = self.replay.position();
        let named: Vec<&String> = self.uncommitted.iter().take(NAMED_MAX).collect();
        json!({
            "cluster_id": self.identity.cluster_id,
            "member_id": self.identity.member_id,
            "last_index": index,
            "last_term": term,
            "uncommitted_count": self.uncommitted.len(),
            "uncommitted": named,
        })
    }
}

/// Makes the first member of a new group of a member's directory.
pub(super) fn recover(config: &Config, address: &str, into: &Path) -> Result<Report, Failed> {
    expect_apart(&config.data_dir, into)?;
    let directory = prepare(into)?;
    let survivor = read(config)?;
    expect_alone(config, address, &survivor)?;
    let position = survivor.replay.position();
    let state = survivor.replay.machine().state().clone();
    let revision = state.revision();
    let (hosts, vms) = (state.hosts().len(), state.vms().len());
    let group = NewGroup {
        directory: into,
        address,
        cause: Cause::QuorumLost,
        level: level(config),
    };
    let created = create(&group, state, position)?;
    directory.keep();
    let text = format!(
        "recovered revision {revision} of member {} to {}\n\
         cluster  {}\n\
         member   1 at {address}\n\
         begins   at revision {}\n\
         {}\
         lost     what other members acknowledged after entry {} of term {}\n\
         never    start a member of the old group again\n\
         {NEXT}",
        survivor.identity.member_id,
        into.display(),
        created.cluster,
        created.recovery.first_revision,
        describe_uncommitted(&survivor.uncommitted),
        position.index,
        position.term,
    );
    let mut value = report::created(&created, into, address);
    value["hosts"] = hosts.into();
    value["vms"] = vms.into();
    value["survivor"] = survivor.to_json();
    Ok(Report { text, value })
}

fn describe_uncommitted(uncommitted: &[String]) -> String {
    if uncommitted.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "not known to be committed: {} commands, which become part of the state\n",
        uncommitted.len()
    );
    for command in uncommitted.iter().take(NAMED_MAX) {
        text.push_str(&format!("         {command}\n"));
    }
    text
}

/// Reads a member's directory, and replays its log. The invariants of the state are not checked.
fn read(config: &Config) -> Result<Survivor, Failed> {
    let path = &config.data_dir;
    let what = format!("{} cannot be read", path.display());
    let disk =
        FileDisk::open(path).map_err(|error| of_survivor(&what, &error, stop::of_disk(&error)))?;
    let mut parts = disk.split();
    let level = Level(level(config));
    let build = |rows: &mut dyn Iterator<Item = _>, index| {
        Machine::from_rows(level, rows, index).map_err(|error| error_chain(&error))
    };
    let recovered = read_disk(&mut parts, &build)
        .map_err(|error| of_survivor(&what, &error, stop::of_recover(&error)))?;
    let Some(machine) = recovered.state else {
        let why = format!("{what}: its member has received no state yet");
        return Err(cannot_run(why).with(NO_STATE));
    };
    let mut replay = Replay::new(
        machine,
        Position {
            index: recovered.index,
            term: recovered.term,
            hash: recovered.hash,
            rows: recovered.rows,
        },
    );
    let committed = recovered.hard_state.commit;
    let mut uncommitted = Vec::new();
    let behind = recovered
        .entries
        .iter()
        .filter(|e| e.index > recovered.index);
    for entry in behind {
        if entry.index > committed {
            uncommitted.extend(name_of(replay.machine(), entry));
        }
        replay
            .apply(entry)
            .map_err(|error| of_survivor(&what, &error, Reason::NewerCommand))?;
    }
    Ok(Survivor {
        identity: parts.identity.clone(),
        membership: recovered.membership,
        replay,
        committed,
        uncommitted,
    })
}

/// Returns the index and the name of an entry's command; nothing for an entry without one.
fn name_of(machine: &Machine, entry: &raft::eraftpb::Entry) -> Option<String> {
    let data = berth_replication::replay::command_of(entry)?;
    let command = machine.decode(data).ok()?;
    let what = match (&command.audit, &command.request) {
        (Some(audit), _) => format!("{} {}", audit.method, audit.summary),
        (None, Some(request)) => request.method.clone(),
        (None, None) => "an internal command".to_owned(),
    };
    Some(format!("{} {what} by {}", entry.index, command.principal))
}

/// Refuses a new directory within the old one, which is to stay as it is.
fn expect_apart(old: &Path, new: &Path) -> Result<(), Failed> {
    if without_links(new).starts_with(without_links(old)) {
        let why = format!(
            "{} is within {}, which stays as it is",
            new.display(),
            old.display()
        );
        return Err(cannot_run(why).with(WITHIN_OLD_DIRECTORY));
    }
    Ok(())
}

/// Returns where a path leads: of what is there, without links. What is missing has none, so that `..`
/// leads back from it by name.
fn without_links(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut led = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                led.pop();
            }
            Component::Prefix(_)
            | Component::RootDir
            | Component::CurDir
            | Component::Normal(_) => {
                led.push(component);
                led = led.canonicalize().unwrap_or(led);
            }
        }
    }
    led
}

/// Refuses a new group while another member of the old one answers.
fn expect_alone(config: &Config, address: &str, survivor: &Survivor) -> Result<(), Failed> {
    let encryption = &config.listening.encryption;
    let tls = encryption.open(Role::Scheduler, address, |_| Ok(()));
    let tls = tls.map_err(|error| {
        let failed = failed("the certificates cannot be used", &error);
        failed.with(Reason::Certificates.to_remedy())
    })?;
    let dialer = Dialer::new(tls);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            let failed = failed("no thread can be started", &error);
            failed.with(Reason::NoResources.to_remedy())
        })?;
    let own = survivor.identity.member_id;
    for member in survivor.membership.members.iter().filter(|m| m.id != own) {
        let status = join::status_of(&member.address, &dialer);
        let answered = runtime.block_on(async { tokio::time::timeout(ANSWER, status).await });
        let Ok(Some(status)) = answered else { continue };
        if status.cluster_id == survivor.identity.cluster_id {
            let why = format!(
                "member {} at {} of the same cluster answers",
                member.id, member.address
            );
            return Err(cannot_run(why).with(MEMBER_ANSWERS));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Goal: by no name is a new directory within the old one.
    #[test]
    fn a_directory_within_the_old_one_is_recognised() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = folder.path().join("old");
        std::fs::create_dir(&old).expect("made");
        let link = folder.path().join("link");
        symlink(&old, &link).expect("linked");
        for within in [
            old.clone(),
            old.join("new"),
            old.join("a/b"),
            link.clone(),
            link.join("new/below"),
            old.join("../old/new"),
            folder.path().join("missing/../old/new"),
            folder.path().join("missing/../link/new"),
        ] {
            assert!(expect_apart(&old, &within).is_err(), "{within:?}");
            assert!(expect_apart(&link, &within).is_err(), "{within:?}");
        }
        for apart in ["new", "old-2", "older/old", "old/../new"] {
            let apart = folder.path().join(apart);
            assert!(expect_apart(&old, &apart).is_ok(), "{apart:?}");
        }
    }
}
