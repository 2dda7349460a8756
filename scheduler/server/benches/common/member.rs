//! The directory of a member that has a given state, for benchmarks that serve it.

use std::path::Path;

use berth_replication::Machine as _;
use berth_scheduler::Machine;
use berth_state::State;
use berth_store::disk::Disk as _;
use berth_store::{FileDisk, Header, Identity, Member, Membership, StateHash, checkpoints};

/// Writes the directory of the first member, at this address, of a cluster with this state.
pub(super) fn write(
    data_dir: &Path,
    address: &str,
    state: &State,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let cluster = state.cluster().ok_or("the state is of no cluster")?;
    let identity = Identity {
        cluster_id: cluster.to_string(),
        member_id: 1,
        disk_id: uuid::Uuid::new_v4().to_string(),
    };
    let member = Member {
        id: 1,
        address: address.to_owned(),
        disk: identity.disk_id.clone(),
        promote: true,
    };
    let machine = Machine::new(state.clone());
    let mut rows = 0;
    let hash = StateHash::of_rows(machine.rows().inspect(|_| rows += 1));
    let header = Header {
        cluster_id: identity.cluster_id.clone(),
        index: state.revision(),
        term: 1,
        membership: Membership::single(member),
        state_hash: hash.to_bytes().into(),
        rows,
    };
    let disk = FileDisk::create(data_dir, identity)?;
    checkpoints::save(&disk.split().checkpoints, header, machine.rows())?;
    Ok(())
}
