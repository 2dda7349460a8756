//! What must hold of the revoked certificates.

use berth_domain::revocation::REVOKED_MAX;

use super::{Violation, rule};
use crate::state::State;

pub(super) fn the_list_is_bounded_and_has_a_revision(state: &State) -> Result<(), Violation> {
    let listed = state.revoked_certificates.len();
    let revision = state.header.revoked_revision;
    let is_sound =
        listed <= REVOKED_MAX && revision <= state.header.revision && (listed == 0 || revision > 0);
    rule(
        is_sound,
        "the_list_is_bounded_and_has_a_revision",
        format_args!("{listed} revoked certificates of revision {revision}"),
    )
}
