//! Whether the cluster has gone beyond what this member can do while it was not looking.
//!
//! A member that was down while the cluster version was raised has nothing on its disk that says
//! so, and may be sent a snapshot that it cannot read, again and again. So it asks the others when
//! it starts.
//!
//! Invariant: only the word of another member of the same cluster counts.

use std::time::Duration;

use berth_domain::version::ServiceVersion;
use berth_proto::client::Dialer;
use berth_replication::runtime::Handle;

use crate::join;
use crate::machine::Machine;

/// How often the others are asked until the one that leads answers.
const PAUSE: Duration = Duration::from_secs(1);

/// Becomes ready, with the cluster version, when that is newer than `level`.
pub(crate) async fn wait(
    handle: Handle<Machine>,
    dialer: Dialer,
    cluster_id: String,
    level: ServiceVersion,
) -> ServiceVersion {
    while let Some(own) = handle.status().await {
        // Whoever leads has applied everything.
        let mut is_answered = own.role.leader == Some(own.id);
        let others = own.membership.members.iter().filter(|m| m.id != own.id);
        for member in others {
            let Some(theirs) = join::status_of(&member.address, &dialer).await else {
                continue;
            };
            if theirs.cluster_id != cluster_id {
                continue;
            }
            is_answered |= theirs.leader_id == theirs.member_id;
            let cluster = ServiceVersion::told(theirs.cluster_version);
            if cluster > level {
                return cluster;
            }
        }
        if is_answered {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    std::future::pending().await
}
