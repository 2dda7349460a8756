//! What a member retains in memory besides the objects of the cluster, with the bounds.
//!
//! Every structure that grows with what is done, and not with what there is, is listed here.

use berth_domain::revocation::REVOKED_MAX;
use berth_proto::cluster::v1;
use berth_replication::Retained;
use berth_state::State;
use berth_state::apply::{AUDIT_MAX, DONE_MAX, ENDED_MAX};
use berth_state::request::{OUTCOMES_BYTES_MAX, REMEMBERED_MAX};

/// Returns what the replicated state retains of what was done.
pub(crate) fn of_state(state: &State) -> Vec<Retained> {
    let (requests, outcome_bytes) = state.remembered();
    let (operations, migrations) = state.ended();
    vec![
        Retained::counted("audit_entries", state.audit().len(), AUDIT_MAX),
        Retained::counted("remembered_requests", requests, REMEMBERED_MAX)
            .with_bytes(outcome_bytes, OUTCOMES_BYTES_MAX),
        Retained::counted("done_operations", operations, DONE_MAX),
        Retained::counted("ended_migrations", migrations, ENDED_MAX),
        Retained::counted(
            "revoked_certificates",
            state.revoked_certificates().len(),
            REVOKED_MAX,
        ),
    ]
}

/// Returns it as a message.
pub(super) fn to_wire(retained: Retained) -> v1::RetainedData {
    let Retained {
        name,
        count,
        count_max,
        bytes,
        bytes_max,
    } = retained;
    v1::RetainedData {
        name: name.to_owned(),
        count,
        count_max,
        bytes,
        bytes_max,
    }
}
