//! The whole of Berth without root: scenarios through every part, as processes on loopback or in the
//! process of the test, with simulated hypervisors.
//!
//! What it is not: a place for tests that need namespaces, a hypervisor or packages of the operating
//! system. These are in the target `real`, which reports what cannot run. Every test here runs on any
//! Linux machine; a need for more than that is a reason to move the test.
//!
//! One program for all of them: each test program is linked against the whole system, and linking is
//! what costs.

mod agent_reality;
mod apply;
mod backup;
mod bad_input;
mod check_config;
mod console;
mod cpu_models;
mod dead_in_migration;
mod demo;
mod devices;
mod doctor;
mod fencing;
mod first_boot;
mod gate;
mod history;
mod host_check;
mod images;
mod learnt_schedulers;
mod log_level;
mod metrics;
mod networks;
mod offline;
mod page;
mod placement_cli;
mod processes;
mod replay;
mod restarts;
mod restore;
mod scenarios_disks;
mod scenarios_drain;
mod scenarios_failover;
mod scenarios_groups;
mod scenarios_migration;
mod scenarios_moves;
mod scenarios_numa;
mod scenarios_overcommit;
mod scenarios_pci;
mod scenarios_pmem;
mod scenarios_power;
mod scenarios_vm_volumes;
mod scenarios_volumes;
mod self_fence;
mod stale_reads;
mod support;
mod tls;
mod traces;
mod upgrade;
mod vm_metadata;
mod watch;

/// All programs of Berth in one; which one runs depends on the name that it is started under.
const PROGRAMS: &str = env!("CARGO_BIN_EXE_berth-programs");
