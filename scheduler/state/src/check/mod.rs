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

impl State {
    /// Says whether every invariant holds.
    ///
    /// # Errors
    ///
    /// The first that does not.
    pub fn check(&self) -> Result<(), Violation> {
        hosts::usage_is_the_sum_of_claims(self)?;
        hosts::claims_fit_together(self)?;
        hosts::roots_carry_what_hosts_report(self)?;
        hosts::refused_shapes_have_reasons(self)?;
        hosts::fenced_hosts_are_closed(self)?;
        overcommit::rules_are_said_of_known(self)?;
        overcommit::memory_beyond_the_rule_is_marked(self)?;
        claims::claims_have_owners(self)?;
        claims::states_follow_their_owners(self)?;
        claims::released_claims_are_erased(self)?;
        claims::counted_and_exact_agree(self)?;
        indexes::vms_are_indexed_by_project(self)?;
        indexes::troubled_vms_are_indexed(self)?;
        vms::running_vms_hold_one_active_claim(self)?;
        vms::vm_states_match_operations(self)?;
        vms::only_errors_have_a_reason(self)?;
        vms::shelved_vms_record_their_host(self)?;
        vms::troubles_are_of_running_vms(self)?;
        vms::restarts_are_bounded(self)?;
        operations::running_have_leases(self)?;
        operations::epochs_are_distinct(self)?;
        operations::running_work_on_their_vm(self)?;
        operations::claims_are_their_own(self)?;
        operations::done_hold_nothing(self)?;
        operations::logs_and_tables_are_bounded(self)?;
        drains::kinds_and_subjects_agree(self)?;
        drains::running_have_work_on_a_cordoned_host(self)?;
        drains::cordons_have_their_drain(self)?;
        drains::done_move_nothing(self)?;
        refusals::records_have_no_change(self)?;
        revocations::the_list_is_bounded_and_has_a_revision(self)?;
        migrations::running_have_both_claims(self)?;
        migrations::verified_keep_both_claims(self)?;
        migrations::ended_hold_nothing(self)?;
        allocations::trees_hang_together(self)?;
        allocations::classes_and_traits_exist(self)?;
        allocations::reported_names_are_had(self)?;
        allocations::consumers_take_from_clients_providers(self)?;
        allocations::usage_is_the_sum_of_consumers(self)?;
        aggregates::aggregates_match_hosts(self)?;
        aggregates::zones_hold(self)?;
        groups::hard_policies_hold(self)?;
        groups::members_are_indexed(self)?;
        attached::volumes_have_one_vm(self)?;
        volumes::volumes_are_whole(self)?;
        volumes::volumes_are_indexed(self)?;
        volumes::volumes_are_counted(self)?;
        volumes::regions_are_offered(self)?;
        volumes::volumes_fit_together(self)?;
        indexes::claims_are_indexed(self)?;
        indexes::macs_are_indexed(self)?;
        indexes::providers_are_indexed(self)?;
        indexes::consumers_are_indexed(self)?;
        indexes::operations_and_migrations_are_indexed(self)?;
        indexes::recovered_hosts_are_indexed(self)?;
        indexes::requests_are_indexed(self)
    }
}
