//! The directory of the only member of a new group, with a state that recovers.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use berth_domain::id::ClusterId;
use berth_domain::recovery::{Cause, Recovery};
use berth_domain::version::ServiceVersion;
use berth_process::Failed;
use berth_replication::Machine as _;
use berth_replication::effects::Position;
use berth_state::State;
use berth_state::recovery::Begin;
use berth_store::disk::{self, Disk as _};
use berth_store::log::LogStore as _;
use berth_store::table::TableStore as _;
use berth_store::{
    FileDisk, Header, Identity, Member, Membership, StateHash, checkpoints, identity, space,
};
use uuid::Uuid;

use super::failure::{cannot_run, of_new_directory, unsound};
use crate::machine::Machine;
use crate::service::wall;
use crate::stop;

/// The number of the member that a new group begins with.
pub(super) const FIRST_MEMBER: u64 = 1;

/// Where and why a group begins.
pub(super) struct NewGroup<'a> {
    /// The member's directory.
    pub(super) directory: &'a Path,
    /// Where the other members dial it.
    pub(super) address: &'a str,
    pub(super) cause: Cause,
    pub(super) level: ServiceVersion,
}

/// A group that was made.
pub(super) struct Created {
    pub(super) cluster: ClusterId,
    pub(super) recovery: Recovery,
}

/// An empty directory in which a member can begin. What was made of its path is removed again where it stays
/// empty, so that a command that is refused leaves nothing.
pub(super) struct NewDirectory {
    /// The directories that were missing, the innermost one first.
    made: Vec<PathBuf>,
}

impl NewDirectory {
    /// Keeps the directory: it has a member.
    pub(super) fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        for path in &self.made {
            // One that another process makes a member's meanwhile, or that is not empty, stays.
            let Ok(_exclusive) = identity::exclusive(path) else {
                continue;
            };
            let _ = fs::remove_dir(path);
        }
    }
}

/// Makes the directory of a new member if there is none, and refuses one in which no member can begin.
pub(super) fn prepare(directory: &Path) -> Result<NewDirectory, Failed> {
    let is_missing =
        |path: &&Path| !path.as_os_str().is_empty() && fs::symlink_metadata(path).is_err();
    let made = directory.ancestors().take_while(is_missing);
    let new = NewDirectory {
        made: made.map(Path::to_owned).collect(),
    };
    examine(directory)?;
    Ok(new)
}

fn examine(directory: &Path) -> Result<(), Failed> {
    identity::expect_free(directory).map_err(|error| {
        of_new_directory(
            "the new member has no directory",
            &error,
            stop::of_identity(&error),
        )
    })?;
    space::check(directory, space::FREE_MIB_MIN).map_err(|error| {
        of_new_directory(
            "the new member has no space",
            &error,
            stop::of_space(&error),
        )
    })
}

/// Makes the only member of a new group, with the state at this place, whose invariants are checked as
/// those of the recovering state that is written. What it has written is removed again where it fails.
pub(super) fn create(group: &NewGroup<'_>, state: State, at: Position) -> Result<Created, Failed> {
    let directory = prepare(group.directory)?;
    let cluster = ClusterId(Uuid::new_v4());
    let state = state.recovered(&Begin {
        cluster,
        cause: group.cause,
        at: wall(),
        index: at.index,
        level: group.level,
    });
    let Some(recovery) = state.header().recovery else {
        return Err(cannot_run("the state does not recover".to_owned()));
    };
    let machine = Machine::new(state);
    let (hash, rows) = check_and_hash(&machine)?;
    let header = Header {
        cluster_id: cluster.to_string(),
        index: machine.state().revision(),
        term: at.term + 1,
        // The member's, once it has an identity.
        membership: Membership::default(),
        state_hash: hash.to_bytes().into(),
        rows,
    };
    write(group, header, &machine)?;
    directory.keep();
    Ok(Created { cluster, recovery })
}

/// Checks the invariants of a state, and returns the hash and the number of its rows. Each takes seconds
/// where there are hundreds of thousands of VMs, so that they share the processors.
fn check_and_hash(machine: &Machine) -> Result<(StateHash, u64), Failed> {
    std::thread::scope(|scope| {
        let hashed = scope.spawn(|| {
            let mut rows = 0;
            let hash = StateHash::of_rows(machine.rows().inspect(|_| rows += 1));
            (hash, rows)
        });
        let checked = machine.check();
        // A panic goes on in the caller.
        let hashed = hashed.join().unwrap_or_else(|panic| resume_unwind(panic));
        match checked {
            Ok(()) => Ok(hashed),
            Err(violation) => {
                let why =
                    format!("the state breaks an invariant: {violation}; nothing was written");
                Err(unsound(why))
            }
        }
    })
}

fn write(group: &NewGroup<'_>, header: Header, machine: &Machine) -> Result<(), Failed> {
    let identity = Identity {
        cluster_id: header.cluster_id.clone(),
        member_id: FIRST_MEMBER,
        disk_id: Uuid::new_v4().to_string(),
    };
    let member = Member {
        id: FIRST_MEMBER,
        address: group.address.to_owned(),
        disk: identity.disk_id.clone(),
        promote: true,
    };
    let header = Header {
        membership: Membership::single(member),
        ..header
    };
    let what = "the new member cannot be written";
    let disk = match FileDisk::create(group.directory, identity) {
        Ok(disk) => disk,
        Err(error) => {
            // What is there may be of another process, which was faster.
            if !matches!(error, disk::Error::Identity(_)) {
                empty(group.directory);
            }
            return Err(of_new_directory(what, &error, stop::of_disk(&error)));
        }
    };
    let filled = fill(disk, header, machine, what);
    if filled.is_err() {
        empty(group.directory);
    }
    filled
}

/// Writes a state as the only content of a member's directory.
fn fill(disk: FileDisk, header: Header, machine: &Machine, what: &str) -> Result<(), Failed> {
    let mut parts = disk.split();
    // Both are synchronised at the latest when they are closed, and an error there would end the process
    // before it removes anything.
    let log = parts.log.load().and_then(|_| parts.log.begin());
    log.map_err(|error| of_new_directory(what, &error, stop::of_log(&error)))?;
    let table = parts.table.flush();
    table.map_err(|error| of_new_directory(what, &error, stop::of_table(&error)))?;
    checkpoints::save(&parts.checkpoints, header, machine.rows())
        .map_err(|error| of_new_directory(what, &error, stop::of_checkpoints(&error)))?;
    Ok(())
}

/// Removes what was written into a directory that was empty before, and that no other process has begun to
/// write meanwhile.
fn empty(directory: &Path) {
    let Ok(_exclusive) = identity::exclusive(directory) else {
        return;
    };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        // What cannot be removed is reported by the next attempt: the directory is not empty.
        let _ = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
    }
}
