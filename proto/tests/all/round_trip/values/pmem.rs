//! Persistent memory.

use std::collections::BTreeMap;

use berth_domain::claim::{Erasure, ErasureProgress, ErasureReport};
use berth_domain::name::PmemName;
use berth_domain::pmem::{CLASS_PREFIX, PmemDevice, PmemNamespace};
use berth_domain::resource::ResourceClass;
use berth_domain::topology::CellId;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use super::{TEXT, id, time};

fn name() -> impl Strategy<Value = PmemName> {
    "[a-z][a-z0-9._-]{0,8}".prop_map(|text| PmemName::new(&text).unwrap())
}

fn class() -> impl Strategy<Value = ResourceClass> {
    "[A-Z0-9_]{1,8}"
        .prop_map(|label| ResourceClass::new(&format!("{CLASS_PREFIX}{label}")).unwrap())
}

fn device() -> impl Strategy<Value = PmemDevice> {
    let sizes = (1_u64..1 << 20, 1_u64..1 << 20);
    (name(), class(), sizes, TEXT).prop_map(|(name, class, (units, align_bytes), path)| {
        PmemDevice {
            name,
            class,
            size_bytes: units * align_bytes,
            align_bytes,
            path: format!("/{path}"),
        }
    })
}

pub(crate) fn devices() -> impl Strategy<Value = Vec<PmemDevice>> {
    vec(device(), 0..3)
}

pub(crate) fn namespaces() -> impl Strategy<Value = Vec<PmemNamespace>> {
    let place = (option::of(any::<u32>()), TEXT, TEXT);
    let namespace = (device(), place).prop_map(|(device, (cell, region, trouble))| PmemNamespace {
        name: device.name,
        class: device.class,
        size_bytes: device.size_bytes,
        align_bytes: device.align_bytes,
        path: device.path,
        cell: cell.map(CellId),
        region,
        trouble,
    });
    let by_name = vec(namespace, 0..3).prop_map(|all| {
        let by_name = all.into_iter().map(|n| (n.name.clone(), n));
        by_name.collect::<BTreeMap<_, _>>()
    });
    by_name.prop_map(|all| all.into_values().collect())
}

pub(crate) fn erasures() -> impl Strategy<Value = BTreeMap<PmemName, Erasure>> {
    let erasure = (time(), any::<u32>(), TEXT, any::<u64>(), any::<bool>());
    let erasure =
        erasure.prop_map(
            |(since, failures, failure, erased_bytes, written_off)| Erasure {
                since,
                failures,
                failure,
                erased_bytes,
                written_off,
            },
        );
    btree_map(name(), erasure, 0..3)
}

pub(crate) fn report() -> impl Strategy<Value = ErasureReport> {
    let progress = prop_oneof![
        any::<u64>().prop_map(|erased_bytes| ErasureProgress::Running { erased_bytes }),
        TEXT.prop_map(|failure| ErasureProgress::Failed { failure }),
        Just(ErasureProgress::Erased),
    ];
    (id(), name(), progress).prop_map(|(claim, namespace, progress)| ErasureReport {
        claim,
        namespace,
        progress,
    })
}
