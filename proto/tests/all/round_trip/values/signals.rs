//! What agents measure of the memory of their hosts.

use std::sync::Arc;

use berth_domain::name::VmName;
use berth_domain::signals::{
    GuestMemory, GuestsMemory, Measured, MemorySignals, NodeMemory, Pressure, STALL_MAX, Stall,
    Swap,
};
use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;

fn memory() -> impl Strategy<Value = NodeMemory> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
    (numbers, option::of(any::<u64>())).prop_map(|((total_kib, free_kib, huge_kib), available)| {
        NodeMemory {
            total_kib,
            free_kib,
            available_kib: available,
            huge_kib,
        }
    })
}

fn swap() -> impl Strategy<Value = Swap> {
    any::<(u64, u64)>().prop_map(|(total_kib, free_kib)| Swap {
        total_kib,
        free_kib,
    })
}

fn stall() -> impl Strategy<Value = Stall> {
    (0..=STALL_MAX, 0..=STALL_MAX).prop_map(|(avg10, avg60)| Stall {
        avg10_milli_percent: avg10,
        avg60_milli_percent: avg60,
    })
}

fn pressure() -> impl Strategy<Value = Pressure> {
    (stall(), stall()).prop_map(|(some, full)| Pressure { some, full })
}

fn guest() -> impl Strategy<Value = GuestMemory> {
    any::<(u64, u64, u64)>().prop_map(|(resident_kib, huge_kib, swapped_kib)| GuestMemory {
        resident_kib,
        huge_kib,
        swapped_kib,
    })
}

fn guests() -> impl Strategy<Value = GuestsMemory> {
    let name = "[a-z][a-z0-9-]{0,8}[a-z]".prop_map(|name| VmName::new(&name).unwrap());
    (guest(), btree_map(name, guest(), 0..3)).prop_map(|(sum, each)| GuestsMemory { sum, each })
}

pub(crate) fn measured() -> impl Strategy<Value = Measured> {
    let signals = (
        option::of(memory()),
        option::of(swap()),
        option::of(pressure()),
        option::of(guests()),
    );
    (0_u64..1 << 40, signals).prop_map(|(age_ms, (memory, swap, pressure, guests))| Measured {
        age_ms,
        signals: Arc::new(MemorySignals {
            memory,
            swap,
            pressure,
            guests,
        }),
    })
}
