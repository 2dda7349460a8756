//! Detects that the cluster version was raised beyond this member's while it was down.
//!
//! A member that was down while the cluster version was raised has no record of that on its disk, and
//! may be sent a snapshot that it cannot read, again and again. So it queries the others when
//! it starts.
//!
//! Invariant: only the response of another member of the same cluster counts.

use std::time::Duration;

use berth_domain::version::ServiceVersion;
use berth_proto::client::Dialer;
use berth_replication::runtime::Handle;

use crate::join;
use crate::machine::Machine;

/// The interval between queries until the leader responds.
const PAUSE: Duration = Duration::from_secs(1);

/// Becomes ready, with the cluster version, when that is newer than `level`.
pub(crate) async fn wait(
    handle: Handle<Machine>,
    dialer: Dialer,
    cluster_id: String,
    level: ServiceVersion,
) -> ServiceVersion {
    while let Some(own) = handle.status().await {
        // The leader has applied everything.
        let mut has_leader_responded = own.role.leader == Some(own.id);
        let others = own.membership.members.iter().filter(|m| m.id != own.id);
        for member in others {
            let Some(theirs) = join::status_of(&member.address, &dialer).await else {
                continue;
            };
            if theirs.cluster_id != cluster_id {
                continue;
            }
            has_leader_responded |= theirs.leader_id == theirs.member_id;
            let cluster = ServiceVersion::from_wire(theirs.cluster_version);
            if cluster > level {
                return cluster;
            }
        }
        if has_leader_responded {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    std::future::pending().await
}
