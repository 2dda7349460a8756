//! Everything that must hold of a state between two commands, each as a small function.
//!
//! It recomputes from the tables and trusts no index. It costs time proportional to the state:
//! tests and the simulator call it after each step, members do not.

mod aggregates;
mod allocations;
mod attached;
mod claims;
mod drains;
mod groups;
mod hosts;
mod images;
mod indexes;
mod migrations;
mod operations;
mod overcommit;
mod refusals;
mod revocations;
mod vms;
mod volumes;

pub(crate) use claims::spec_of;
use std::fmt;

use crate::state::State;

/// What does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {what}")]
pub struct Violation {
    /// The rule, by the name of the function that states it.
    pub rule: &'static str,
    /// Where it is broken.
    pub what: String,
}

/// Says that `what` breaks `rule`, unless `holds`.
fn rule(holds: bool, rule: &'static str, what: impl fmt::Display) -> Result<(), Violation> {
    if holds {
        return Ok(());
    }
    Err(Violation {
        rule,
        what: what.to_string(),
    })
}

/// A rule, which says where it is broken first. It only reads, and relies on no other rule, so that
/// several can be checked at a time.
pub type Rule = fn(&State) -> Result<(), Violation>;

/// Every rule, in the order in which broken ones are reported. Those that take longest come first, so that
/// threads end together.
pub const RULES: [Rule; 62] = [
    hosts::usage_is_the_sum_of_claims,
    hosts::claims_fit_together,
    hosts::roots_carry_what_hosts_report,
    hosts::refused_shapes_have_reasons,
    hosts::fenced_hosts_are_closed,
    overcommit::rules_are_said_of_known,
    overcommit::memory_beyond_the_rule_is_marked,
    claims::claims_have_owners,
    claims::states_follow_their_owners,
    claims::released_claims_are_erased,
    claims::counted_and_exact_agree,
    indexes::vms_are_indexed_by_project,
    indexes::troubled_vms_are_indexed,
    vms::running_vms_hold_one_active_claim,
    vms::vm_states_match_operations,
    vms::only_errors_have_a_reason,
    vms::shelved_vms_record_their_host,
    vms::first_boots_are_of_vms_that_boot,
    vms::troubles_are_of_running_vms,
    vms::restarts_are_bounded,
    vms::metadata_is_valid,
    operations::running_have_leases,
    operations::epochs_are_distinct,
    operations::running_work_on_their_vm,
    operations::claims_are_their_own,
    operations::done_hold_nothing,
    operations::logs_and_tables_are_bounded,
    drains::kinds_and_subjects_agree,
    drains::running_have_work_on_a_cordoned_host,
    drains::cordons_have_their_drain,
    drains::done_move_nothing,
    refusals::records_have_no_change,
    revocations::the_list_is_bounded_and_has_a_revision,
    images::copies_are_of_known_hosts,
    migrations::running_have_both_claims,
    migrations::verified_keep_both_claims,
    migrations::ended_hold_nothing,
    allocations::trees_hang_together,
    allocations::classes_and_traits_exist,
    allocations::reported_names_are_had,
    allocations::consumers_take_from_clients_providers,
    allocations::usage_is_the_sum_of_consumers,
    aggregates::aggregates_match_hosts,
    aggregates::zones_hold,
    groups::hard_policies_hold,
    groups::members_are_indexed,
    attached::volumes_have_one_vm,
    volumes::volumes_are_whole,
    volumes::volumes_are_indexed,
    volumes::volumes_are_counted,
    volumes::regions_are_offered,
    volumes::volumes_fit_together,
    indexes::claims_are_indexed,
    indexes::macs_are_indexed,
    indexes::images_are_indexed,
    indexes::networks_are_indexed,
    indexes::providers_are_indexed,
    indexes::consumers_are_indexed,
    indexes::operations_and_migrations_are_indexed,
    indexes::recovered_hosts_are_indexed,
    indexes::settled_vms_are_of_an_ended_recovery,
    indexes::requests_are_indexed,
];

impl State {
    /// Says whether every invariant holds.
    ///
    /// # Errors
    ///
    /// The first that does not.
    pub fn check(&self) -> Result<(), Violation> {
        RULES.iter().try_for_each(|rule| rule(self))
    }
}
