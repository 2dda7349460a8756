//! Arbitrary ways to send a guest.

use berth_domain::policy::MigrationPolicy;
use berth_domain::transfer::{
    Amount, DiskCopy, Phase, TimeoutAction, TransferOverrides, TransferPolicy, TransferProgress,
    Tried,
};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::{host_name, refusal};

fn action() -> impl Strategy<Value = TimeoutAction> {
    select(TimeoutAction::ALL.to_vec())
}

pub(crate) fn policy() -> impl Strategy<Value = TransferPolicy> {
    let set = (
        option::of(any::<u32>()),
        option::of(any::<u32>()),
        any::<(bool, bool)>(),
        option::of(any::<u64>()),
        action(),
    )
        .prop_map(
            |(bandwidth, downtime, allowed, timeout_ms, timeout_action)| TransferPolicy {
                bandwidth_mib_per_s_max: bandwidth,
                downtime_ms_max: downtime,
                auto_converge: allowed.0,
                post_copy: allowed.1,
                timeout_ms,
                timeout_action,
            },
        );
    prop_oneof![Just(TransferPolicy::default()), set]
}

pub(crate) fn overrides() -> impl Strategy<Value = TransferOverrides> {
    (
        option::of(any::<u32>()),
        option::of(any::<u32>()),
        any::<(Option<bool>, Option<bool>)>(),
        option::of(any::<u64>()),
        option::of(action()),
    )
        .prop_map(
            |(bandwidth, downtime, allowed, timeout_ms, timeout_action)| TransferOverrides {
                bandwidth_mib_per_s_max: bandwidth,
                downtime_ms_max: downtime,
                auto_converge: allowed.0,
                post_copy: allowed.1,
                timeout_ms,
                timeout_action,
            },
        )
}

pub(crate) fn migration_policy() -> impl Strategy<Value = MigrationPolicy> {
    (policy(), 1..=16_u32).prop_map(|(transfer, hosts_tried_max)| MigrationPolicy {
        transfer,
        hosts_tried_max,
    })
}

fn amount() -> impl Strategy<Value = Amount> {
    any::<(u64, u64, u64)>().prop_map(|(total, processed, remaining)| Amount {
        total,
        processed,
        remaining,
    })
}

pub(crate) fn progress() -> impl Strategy<Value = TransferProgress> {
    (
        select(Phase::ALL.to_vec()),
        amount(),
        amount(),
        any::<(u64, u64, u64, u64, u64)>(),
    )
        .prop_map(|(phase, memory, disk, rest)| TransferProgress {
            phase,
            memory,
            disk,
            dirty_bytes_per_s: rest.0,
            bytes_per_s: rest.1,
            elapsed_ms: rest.2,
            downtime_ms: rest.3,
            iteration: rest.4,
        })
}

pub(crate) fn disk_copy() -> impl Strategy<Value = DiskCopy> {
    any::<(u32, u64)>().prop_map(|(index, virtual_bytes)| DiskCopy {
        index,
        virtual_bytes,
    })
}

pub(crate) fn tried() -> impl Strategy<Value = Tried> {
    (host_name(), refusal()).prop_map(|(host, refusal)| Tried { host, refusal })
}
