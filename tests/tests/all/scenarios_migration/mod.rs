//! Scenarios 1 to 8, 27 and 28 of OpenStack's functional tests of migration, and the clauses on moves
//! that no other test holds, through the whole system.
//!
//! Method: a scheduler, a conductor and agents as processes, asked by the real command through gRPC.
//! Only the hypervisors are simulated; a file tells them what to hold, refuse or break, so that every
//! moment of a move can be looked at, and what they have is read from their files of guests.
//!
//! | scenario | what | test |
//! |---|---|---|
//! | 1 | arrives beside a guest on its CPUs; both hosts counted meanwhile | `live::a_guest_arrives_beside_one_that_has_its_cpus` |
//! | 2, inverted | the destination is old | `refused::no_guest_with_a_topology_moves_without_a_claim_because_a_part_is_old`; all pairs: `gate.rs` |
//! | 3 | comparisons before the guest comes | `live::a_claim_for_a_guest_that_has_not_come_survives_comparisons` |
//! | 4 | the transfer fails | `live::a_transfer_that_breaks_leaves_the_guest_and_nothing_else` |
//! | 5 | comparisons during the rollback | `live::pins_are_right_at_every_moment_of_a_rollback` |
//! | 6, inverted | source or conductor is old; full hosts, forced | as 2, `refused::an_old_conductor_moves_no_guest_with_a_topology`, `refused::a_forced_host_that_is_full_is_refused` |
//! | 7 | no cell of the forced host is large enough | `refused::a_guest_that_no_cell_holds_is_refused` |
//! | 8 | pages of another size | `refused::a_guest_keeps_the_size_of_its_pages` |
//! | 9-12 | persistent memory | not here |
//! | 13-24 | PCI policies | `scenarios_pci/policies.rs` |
//! | 25, 26 | cells with functions | `scenarios_pci/cells.rs` |
//! | 27 | which functions move live | `scenarios_pci/moves.rs` |
//! | 28 | functions through the other moves | `devices` |
//! | 29-33 | cells, pages, policies | `scenarios_numa/mod.rs` |
//! | 34 | races | `scenarios_numa/races.rs`, `crowds` |
//!
//! | clause | test |
//! |---|---|
//! | a destination that has no room after all refuses before anything moves (N3); alternates up to a limit, each refusal kept and shown | `refused::hosts_that_refuse_are_followed_by_others_up_to_a_limit` |
//! | a host outside the cluster is refused by its name (N8) | `refused::a_forced_host_that_is_full_is_refused` |
//! | a post-copy whose link is cut | `protocol::a_post_copy_whose_link_is_cut_is_unsettled_until_somebody_ends_it` |
//! | timeouts, with each action | `protocol::what_takes_too_long_meets_the_action_that_was_chosen` |
//! | abort and force-complete, before, during and in post-copy | `protocol::a_move_is_given_up_or_made_to_end_at_every_stage` |
//! | bandwidth, downtime, auto-converge and post-copy as policy | `protocol::how_a_guest_is_sent_is_policy` |
//! | progress with its estimated end, and the bar | `protocol::a_migration_says_when_it_will_end` |
//! | where the hypervisor's own threads run | `protocol::the_hypervisors_threads_run_on_nobody_elses_cpus` |
//! | shared storage is used, else disks are copied | `protocol::disks_go_along_where_hosts_do_not_share_them` |
//! | a drain with its limit beside boots | `crowds::a_drain_keeps_its_limit_while_others_boot` |
//! | soft groups under moves at once | `crowds::soft_groups_hold_while_their_members_move_at_once` |
//!
//! Where Nova moves a guest the old way because a part is old (2 and 6), Berth refuses.

mod crowds;
mod devices;
mod live;
mod protocol;
mod refused;
mod stage;
