//! Goal: a guest is placed, and moved while it runs, where it can be given its CPU, and nowhere else.
//!
//! Method: hosts and guests drawn from a made-up map of models, against sets of features that are
//! written out; and tables of the texts. That the verdicts are libvirt's is shown with its own map by
//! `tests/tests/real/cpu_models`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use berth_domain::cpu_model::{
    BaselineFault, BaselineScope, CpuDemand, CpuMismatch, CpuMode, CpuModelChoice, GuestCpu,
    HostCpu, baseline,
};
use berth_domain::name::{AggregateName, CpuFeature, CpuModelName, CpuVendor, HostName};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// The features of the map.
const FEATURES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The models of the map: each with its features.
const MODELS: [(&str, &[usize]); 5] = [
    ("Old", &[0]),
    ("Mid", &[0, 1, 2]),
    ("New", &[0, 1, 2, 3, 4]),
    ("Odd", &[0, 5]),
    ("All", &[0, 1, 2, 3, 4, 5, 6, 7]),
];

fn feature(name: &str) -> CpuFeature {
    CpuFeature::new(name).unwrap()
}

fn model(name: &str) -> CpuModelName {
    CpuModelName::new(name).unwrap()
}

fn features(names: &[&str]) -> BTreeSet<CpuFeature> {
    names.iter().map(|name| feature(name)).collect()
}

fn of_model(name: &CpuModelName) -> BTreeSet<CpuFeature> {
    let found = MODELS.iter().find(|(model, _)| *model == name.as_str());
    let (_, indexes) = found.expect("a model of the map");
    indexes.iter().map(|i| feature(FEATURES[*i])).collect()
}

/// Returns the host that has these features, described by this model and knowing these.
fn host(
    described: &str,
    has: &BTreeSet<CpuFeature>,
    vendor: Option<&str>,
    known: &BTreeSet<CpuModelName>,
) -> HostCpu {
    let own = of_model(&model(described));
    let mut known = known.clone();
    known.insert(model(described));
    HostCpu {
        host_model: Arc::new(GuestCpu {
            mode: CpuMode::Custom,
            model: model(described),
            vendor: vendor.map(|vendor| CpuVendor::new(vendor).unwrap()),
            required: has.difference(&own).cloned().collect(),
            disabled: own.difference(has).cloned().collect(),
        }),
        features: has.clone(),
        models: known
            .into_iter()
            .map(|name| {
                let lacking = of_model(&name).difference(has).cloned().collect();
                (name, lacking)
            })
            .collect(),
    }
}

/// Returns all features of a guest.
fn of_guest(cpu: &GuestCpu) -> BTreeSet<CpuFeature> {
    let kept = of_model(&cpu.model);
    let kept = kept.difference(&cpu.disabled);
    kept.chain(&cpu.required).cloned().collect()
}

fn any_features() -> impl Strategy<Value = BTreeSet<CpuFeature>> {
    subsequence(FEATURES.to_vec(), 1..=FEATURES.len()).prop_map(|names| features(&names))
}

fn any_model() -> impl Strategy<Value = &'static str> {
    select(MODELS.map(|(name, _)| name).to_vec())
}

fn any_host() -> impl Strategy<Value = HostCpu> {
    let known = subsequence(MODELS.map(|(name, _)| name).to_vec(), 0..=MODELS.len());
    let known = known.prop_map(|names| names.into_iter().map(model).collect::<BTreeSet<_>>());
    let vendor = select(vec![None, Some("Intel"), Some("AMD")]);
    (any_model(), any_features(), vendor, known)
        .prop_map(|(described, has, vendor, known)| host(described, &has, vendor, &known))
}

fn any_guest() -> impl Strategy<Value = GuestCpu> {
    let vendor = select(vec![None, Some("Intel")]);
    (any_model(), vendor, any_features(), any_features()).prop_map(
        |(name, vendor, required, disabled)| GuestCpu {
            mode: CpuMode::Custom,
            model: model(name),
            vendor: vendor.map(|vendor| CpuVendor::new(vendor).unwrap()),
            disabled: disabled.difference(&required).cloned().collect(),
            required,
        },
    )
}

proptest! {
    #[test]
    fn a_guest_runs_where_all_its_features_are(host in any_host(), guest in any_guest()) {
        prop_assert!(host.is_consistent());
        let has_vendor = guest.vendor.is_none() || guest.vendor == host.host_model.vendor;
        let knows = host.models.contains_key(&guest.model);
        let missing: BTreeSet<_> =
            of_guest(&guest).difference(&host.features).cloned().collect();
        match host.check(&guest, true) {
            Ok(()) => prop_assert!(has_vendor && knows && missing.is_empty()),
            Err(CpuMismatch::Vendor { .. }) => prop_assert!(!has_vendor),
            Err(CpuMismatch::UnknownModel(_)) => prop_assert!(!knows),
            Err(CpuMismatch::Features { missing: named, .. }) => {
                prop_assert!(!missing.is_empty());
                prop_assert_eq!(named, missing);
            }
            Err(other @ (CpuMismatch::NotReported | CpuMismatch::Passthrough { .. })) => {
                prop_assert!(false, "{}", other);
            }
        }
    }

    #[test]
    fn a_baseline_is_all_that_hosts_have_in_common(hosts in prop::collection::vec(any_host(), 1..5)) {
        let hosts: Vec<_> = (0..).zip(hosts).map(|(n, cpu)| {
            (HostName::new(&format!("h{n}")).unwrap(), Arc::new(cpu))
        }).collect();
        let vendors: BTreeSet<_> = hosts.iter().map(|(_, c)| &c.host_model.vendor).collect();
        let known_to_all = hosts.iter().any(|(_, one)| {
            hosts.iter().all(|(_, c)| c.models.contains_key(&one.host_model.model))
        });
        let common = hosts.iter().fold(features(&FEATURES), |common, (_, cpu)| {
            common.intersection(&cpu.features).cloned().collect()
        });
        match baseline(hosts.iter().map(|(name, cpu)| (name, cpu))) {
            Ok(found) => {
                prop_assert_eq!(vendors.len(), 1);
                prop_assert_eq!(&of_guest(&found.cpu), &common);
                prop_assert_eq!(&found.features, &common);
                for (_, cpu) in &hosts {
                    prop_assert_eq!(cpu.check(&found.cpu, false), Ok(()));
                    let lost: BTreeSet<_> = cpu.features.difference(&common).cloned().collect();
                    prop_assert_eq!(found.lost_of(cpu), lost);
                }
            }
            Err(BaselineFault::Vendors(_)) => prop_assert!(vendors.len() > 1),
            Err(BaselineFault::Models { model, host }) => {
                prop_assert!(!known_to_all);
                let (_, cpu) = hosts.iter().find(|(name, _)| *name == host).unwrap();
                prop_assert!(!cpu.models.contains_key(&model));
            }
            Err(BaselineFault::NoHosts) => prop_assert!(false),
        }
        // The order of the hosts does not matter.
        let mut turned = hosts.clone();
        turned.reverse();
        let [a, b] = [&hosts, &turned]
            .map(|hosts| baseline(hosts.iter().map(|(name, cpu)| (name, cpu))).ok());
        prop_assert_eq!(a, b);
    }
}

#[test]
fn a_choice_is_read_and_written() {
    let rack = AggregateName::new("rack-1").unwrap();
    for (text, expected) in [
        ("host-model", CpuModelChoice::HostModel),
        ("host-passthrough", CpuModelChoice::HostPassthrough),
        ("baseline", CpuModelChoice::Baseline(BaselineScope::Cluster)),
        (
            "baseline:rack-1",
            CpuModelChoice::Baseline(BaselineScope::Aggregate(rack)),
        ),
        (
            "Skylake-Server-noTSX-IBRS",
            CpuModelChoice::Named(model("Skylake-Server-noTSX-IBRS")),
        ),
        ("486", CpuModelChoice::Named(model("486"))),
    ] {
        let choice = CpuModelChoice::parse(text).unwrap();
        assert_eq!(choice, expected);
        assert_eq!(choice.to_string(), text);
    }
    for bad in [
        "",
        " ",
        "custom",
        "maximum",
        "none",
        "baseline:",
        "baseline:a b",
        "Neha lem",
        "-x",
    ] {
        let rule = CpuModelChoice::parse(bad).unwrap_err();
        assert!(rule.starts_with("must be host-model, "), "{bad:?}: {rule}");
    }
}

/// Goal: what a guest is started with follows from the choice and the host. Method: every choice on a
/// host with KVM, on one that emulates, and on one that reports nothing.
#[test]
fn each_choice_gives_each_kind_of_host_its_cpu() {
    let cpu = host(
        "Mid",
        &features(&["a", "b", "f"]),
        Some("Intel"),
        &BTreeSet::new(),
    );
    let own = "Mid (Intel) +f -c";
    let exactly = CpuDemand::Exactly {
        cpu: Arc::new(GuestCpu::named(model("Old"))),
        is_running: false,
    };
    let passed = format!("host-passthrough: {own}");
    let vendor = CpuVendor::new("Intel").unwrap();
    for mismatch in [
        CpuMismatch::NotReported,
        CpuMismatch::UnknownModel(model("Old")),
        CpuMismatch::Vendor {
            requested: vendor,
            actual: None,
        },
        CpuMismatch::Features {
            missing: features(&["a"]),
            model: model("Old"),
            is_running: true,
        },
        CpuMismatch::Passthrough {
            requested: model("Old"),
            actual: model("Mid"),
        },
    ] {
        assert!(CpuMismatch::is_cause(mismatch.cause()), "{mismatch}");
    }
    for (demand, kvm, emulated, needs) in [
        (CpuDemand::HostDefault, Some(own), None, false),
        (CpuDemand::Unrecorded, None, None, false),
        (CpuDemand::HostModel, Some(own), Some(own), true),
        (
            CpuDemand::HostPassthrough,
            Some(&*passed),
            Some(&*passed),
            true,
        ),
        (exactly, Some("Old"), Some("Old"), true),
    ] {
        let given = |host: Option<&HostCpu>, is_emulated| {
            demand.given(host, is_emulated).map(|cpu| cpu.to_string())
        };
        assert_eq!(given(Some(&cpu), false).as_deref(), kvm, "{demand:?}");
        assert_eq!(given(Some(&cpu), true).as_deref(), emulated, "{demand:?}");
        assert_eq!(given(None, false), None);
        assert_eq!(demand.needs_report(), needs);
        let without = demand.check(None);
        assert_eq!(without.is_err(), needs, "{demand:?}: {without:?}");
    }
}

#[test]
fn a_passed_through_cpu_stays_on_its_like() {
    let known = BTreeSet::new();
    let has = features(&["a", "b", "c"]);
    let one = host("Mid", &has, Some("Intel"), &known);
    let same = host("Mid", &has, Some("Intel"), &known);
    let more = host(
        "Mid",
        &features(&["a", "b", "c", "d"]),
        Some("Intel"),
        &known,
    );
    let other = host("Old", &has, Some("Intel"), &known);
    let guest = one.passthrough();
    assert_eq!(same.check(&guest, true), Ok(()));
    let message = |host: &HostCpu| host.check(&guest, true).unwrap_err().to_string();
    assert_eq!(
        message(&more),
        "its CPU, Mid too, has other features than the one that the guest is passed through"
    );
    assert_eq!(
        message(&other),
        "its CPU is Old, the guest is passed through Mid"
    );
}

#[test]
fn what_is_missing_is_named_and_bounded() {
    let known = BTreeSet::from(["Old", "All"].map(model));
    let cpu = host("Old", &features(&["a"]), Some("AMD"), &known);
    let of = |name: &str| GuestCpu::named(model(name));
    let message =
        |guest: &GuestCpu, is_running| cpu.check(guest, is_running).unwrap_err().to_string();
    assert_eq!(
        message(&of("All"), false),
        "it lacks b, c, d, e, f, g and 1 more, needed by CPU model All"
    );
    let running = GuestCpu {
        required: features(&["b"]),
        ..of("Old")
    };
    assert_eq!(
        message(&running, true),
        "it lacks b, needed by the running guest"
    );
    assert_eq!(
        message(&of("Mid"), false),
        "its hypervisor does not know CPU model Mid"
    );
    let of_intel = GuestCpu {
        vendor: Some(CpuVendor::new("Intel").unwrap()),
        ..of("Old")
    };
    assert_eq!(
        message(&of_intel, true),
        "its CPU is of vendor AMD, the guest's of Intel"
    );
    let disabled = GuestCpu {
        disabled: features(&["b", "c", "d", "e", "f", "g", "h"]),
        ..of("All")
    };
    assert_eq!(cpu.check(&disabled, true), Ok(()));
}

#[test]
fn inconsistent_descriptions_are_recognised() {
    let good = host("Mid", &features(&["a", "b", "f"]), None, &BTreeSet::new());
    assert!(good.is_consistent());
    let with = |change: fn(&mut GuestCpu)| {
        let mut own = (*good.host_model).clone();
        change(&mut own);
        HostCpu {
            host_model: Arc::new(own),
            ..good.clone()
        }
    };
    let unknown = HostCpu {
        models: BTreeMap::new(),
        ..good.clone()
    };
    for bad in [
        with(|own| own.required = features(&["h"])),
        with(|own| own.disabled = features(&["a"])),
        with(|own| own.mode = CpuMode::HostPassthrough),
        unknown,
    ] {
        assert!(!bad.is_consistent(), "{bad:?}");
    }
}
