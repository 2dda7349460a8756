//! Berth on what it is made for, or beside what it is compared with: libvirt and QEMU, the kernel's
//! namespaces, mounts and NVDIMMs, OpenStack Placement and its clients, `curl`.
//!
//! What it is not: a place for what runs anywhere; that is in the target `all`.
//!
//! Each test is in one list with what it needs, which [`harness`] looks for: a test that cannot run is
//! reported as ignored, with its reason after the summary, and fails with `BERTH_REAL=require`.
//!
//! ```text
//! cargo test -p berth-tests --test real                           # what can run here
//! cargo test -p berth-tests --test real nodes:: -- --nocapture    # one group, with all that it prints
//! ```
//!
//! Where a test needs a program inside a machine of its own, or one that it can kill, that is this
//! program in another role.

mod ansible;
mod browser;
mod cpu_models;
mod disk_images;
mod dist;
mod driver;
mod encryption;
mod file_systems;
mod full_disk;
mod harness;
mod lab;
mod libvirt;
mod libvirt_hosts;
mod mounts;
mod nodes;
mod packages;
mod placement_client;
mod placement_differential;
mod placement_import;
mod placement_suite;
mod pmem;
mod process_tree;
mod prometheus;
mod python;
mod rpm;
mod site;
mod system;
mod three_machines;
mod tls;
mod watchdog;

use std::process::ExitCode;

use berth_tests::lab::Need::{
    Ansible, Browser, CsiSanity, Curl, FileSystems, Hypervisor, Libvirt, LongRun, LoopDevices,
    Namespaces, Nodes, PersistentMemory, PlacementSuite, Prometheus, PythonClient, QemuImg, Rpm,
    SmallDisk, Systemd, TwoCpus,
};
use harness::{ROLE, Test};

/// All programs of Berth in one; which one runs depends on the name that it is started under.
const PROGRAMS: &str = env!("CARGO_BIN_EXE_berth-programs");

/// One line of the list: the module and the function, and what the test needs.
macro_rules! test {
    ($module:ident::$function:ident, [$($need:expr),*]) => {
        Test {
            name: concat!(stringify!($module), "::", stringify!($function)),
            needs: &[$($need),*],
            run: $module::$function,
        }
    };
}

/// All tests, group by group; those that emulate a machine are last, because they run alone.
#[rustfmt::skip]
const TESTS: &[Test] = &[
    test!(harness::a_test_that_does_not_end_is_killed, []),
    test!(harness::only_a_guest_that_lost_writes_gives_a_second_run, []),

    test!(lab::machines_see_each_other_by_name_and_nothing_is_left_of_them, [Namespaces]),
    test!(lab::a_pinned_guest_migrates_to_other_cpus_and_goes_on_counting, [Hypervisor]),
    test!(lab::a_guest_boots_from_its_disk_and_takes_disk_and_network_along, [Hypervisor]),
    test!(lab::a_connection_to_a_daemon_that_died_says_so, [Hypervisor]),

    test!(three_machines::what_is_shown_is_compared, []),
    test!(three_machines::the_documented_commands_work_on_three_machines, [Namespaces]),
    test!(three_machines::the_runbooks_work_on_three_machines, [Namespaces]),

    test!(tls::the_documented_setup_starts, [Namespaces]),
    test!(tls::the_rest_api_asks_for_certificates, [Curl]),
    test!(tls::kubernetes_calls_a_controller_over_https, [Curl]),
    test!(tls::metrics_require_certificates, [Curl]),
    test!(tls::the_page_requires_certificates, [Curl]),
    test!(tls::actions_are_for_operators_and_in_their_name, [Curl]),
    test!(tls::browsers_log_in_by_a_link, [Curl]),

    test!(browser::a_migration_is_begun_and_followed, [Browser]),
    test!(browser::every_view_is_accessible_on_every_screen, [Browser]),

    test!(prometheus::promtool_finds_no_fault_in_any_scrape, [Prometheus]),
    test!(prometheus::prometheus_scrapes_three_schedulers, [Prometheus]),
    test!(prometheus::every_alert_fires_and_has_a_runbook, [Prometheus]),
    test!(prometheus::every_rule_is_shortened_or_refused, []),
    test!(prometheus::every_dashboard_is_complete, []),
    test!(prometheus::every_alert_fires_for_its_cause_and_clears, [Prometheus, LoopDevices, FileSystems]),

    test!(packages::every_service_is_confined, [Systemd]),
    test!(dist::what_is_made_is_sound, [Systemd, Rpm]),
    test!(rpm::they_have_what_the_debian_packages_have, [Systemd, Rpm]),
    test!(packages::three_machines_are_installed_upgraded_and_purged, [Systemd]),
    test!(ansible::the_playbook_installs_a_cluster_and_changes_what_it_must, [Systemd, Ansible]),

    test!(full_disk::a_full_disk_is_told_at_the_start, [SmallDisk]),

    test!(libvirt::an_absent_daemon_is_named_with_its_uri, [Libvirt]),
    test!(libvirt::a_domain_is_defined_started_stopped_and_forgotten, [Libvirt]),
    test!(libvirt::domains_are_listed, [Libvirt]),
    test!(libvirt::metadata_is_kept_with_the_domain, [Libvirt]),
    test!(libvirt::bad_arguments_are_told_from_other_errors, [Libvirt]),
    test!(libvirt::a_connection_serves_several_threads, [Libvirt]),

    test!(disk_images::no_use_of_an_image_opens_another_file, [Libvirt, QemuImg]),
    test!(disk_images::an_image_of_a_raw_disk_stays_raw, [Libvirt, QemuImg]),
    test!(disk_images::qemu_does_not_look_into_a_raw_disk, [Hypervisor]),

    test!(file_systems::what_programs_make_is_found, [FileSystems]),

    test!(mounts::real_mounts_come_and_go, [LoopDevices, FileSystems]),
    test!(mounts::a_loop_device_in_use_is_waited_for, [LoopDevices, FileSystems]),
    test!(mounts::what_looks_empty_and_was_given_away_is_not_formatted, [FileSystems]),

    test!(driver::the_libvirt_driver_conforms, [Hypervisor]),
    test!(driver::a_guest_with_disk_and_nic_moves_and_answers, [Hypervisor]),
    test!(driver::a_disk_that_is_not_shared_is_copied, [Hypervisor]),
    test!(driver::a_guest_is_stopped_started_copied_and_rebuilt, [Hypervisor]),
    test!(driver::persistent_memory_goes_with_its_guest, [Hypervisor]),
    test!(driver::the_libvirt_driver_conforms_when_disks_travel, [Hypervisor]),

    test!(cpu_models::every_pair_of_models_agrees_with_libvirt, [Hypervisor]),
    test!(cpu_models::every_pair_of_hypervisors_agrees_with_libvirt, [Hypervisor]),
    test!(cpu_models::guests_move_between_generations_and_keep_their_cpus, [Hypervisor]),

    test!(encryption::guests_move_encrypted_and_nothing_of_them_is_on_the_network, [Hypervisor]),
    test!(encryption::a_guest_stays_where_qemu_has_no_valid_certificate, [Hypervisor]),

    test!(libvirt_hosts::the_documented_host_boots_and_moves_a_guest, [Hypervisor]),

    test!(
        system::guests_move_between_real_hosts,
        [Hypervisor, TwoCpus, Browser]
    ),
    test!(system::guests_that_are_off_take_their_disks_along, [Hypervisor]),

    test!(placement_suite::openstacks_own_suite_passes, [PlacementSuite]),
    test!(placement_client::openstacks_own_client_creates_lists_allocates_and_queries, [PlacementSuite]),
    test!(placement_differential::placement_and_berth_answer_alike, [PlacementSuite]),
    test!(placement_import::a_world_is_taken_over_and_followed, [PlacementSuite]),
    test!(placement_import::an_import_that_was_killed_is_run_again, [PlacementSuite]),
    test!(placement_import::a_source_in_use_is_followed_until_it_is_quiet, [PlacementSuite]),
    test!(placement_import::what_is_not_the_imports_is_left_alone, [PlacementSuite]),

    test!(python::the_client_is_built_installed_and_tested, [PythonClient]),

    // These run alone.
    test!(nodes::memory_is_where_the_claim_says, [LongRun, Nodes]),

    test!(pmem::what_guests_wrote_is_erased_whatever_stops_it, [LongRun, PersistentMemory]),
    test!(pmem::what_a_deleted_vm_wrote_is_erased_before_another_has_it, [PersistentMemory, Nodes]),
    test!(pmem::volumes_outlive_their_agent_and_nothing_outlives_volumes, [LongRun, PersistentMemory]),
    test!(pmem::the_public_suite_passes_on_real_devices, [CsiSanity, PersistentMemory]),

    test!(watchdog::a_host_that_is_not_heard_of_is_reset_unless_it_runs_nothing, [LongRun, Nodes]),
];

/// What this program does instead, where a test starts it again.
const ROLES: &[(&str, fn())] = &[
    ("lab/listen", lab::listen),
    ("lab/dial", lab::dial),
    ("lab/libvirt", lab::open_libvirt),
    (encryption::CAPTURE, encryption::capture::run),
    (libvirt_hosts::VIRSH, libvirt_hosts::virsh),
    (mounts::COME_AND_GO, mounts::come_and_go),
    (mounts::IN_USE, mounts::in_use),
    (prometheus::CAUSED, prometheus::play),
    (nodes::SCENARIOS, nodes::scenarios::play),
    (
        pmem::BEFORE_POWER_LOSS,
        pmem::scenarios::until_the_power_goes,
    ),
    (pmem::AFTER_POWER_LOSS, pmem::after_power_loss),
    (pmem::SYSTEM, pmem::system::play),
    (pmem::VOLUMES, pmem::life::play),
    (pmem::VOLUMES_AT_EACH_STEP, pmem::life::play_at_each_step),
    (pmem::SANITY, pmem::sanity::play),
    (pmem::VOLUME_WORKER, pmem::volumes::work),
    (pmem::ERASER, pmem::scenarios::erase_until_killed),
];

fn main() -> ExitCode {
    match std::env::var(ROLE) {
        Ok(role) => {
            harness::play(&role, ROLES, TESTS);
            ExitCode::SUCCESS
        }
        Err(_) => harness::main(TESTS),
    }
}
