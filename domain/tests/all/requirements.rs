//! Goal: what flavors and images say is understood as in OpenStack Nova 34.0.0, or refused with the
//! field and what is allowed. Method: tables of accepted and refused keys, checked by hand with
//! Nova's `numa_get_constraints`, `get_best_cpu_topology` and `ResourceRequest`; and properties
//! over random keys and values.

mod combinations;
mod partition;
mod understood;
mod values;

use std::collections::BTreeMap;

use berth_domain::fault::Fault;
use berth_domain::flavor::{Flavor, Requirements};
use berth_domain::image::ImageProperties;
use berth_domain::name::{FlavorName, PciAliasName};
use berth_domain::ownership::Ownership;
use berth_domain::pci::{PciAlias, PciAliases, PciMatch, PciNumaPolicy};

pub(crate) type Pairs<'a> = &'a [(&'a str, &'a str)];

pub(crate) fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

pub(crate) fn flavor(vcpus: u32, memory_mib: u64, specs: Pairs<'_>) -> Flavor {
    Flavor {
        name: FlavorName::new("f").unwrap(),
        vcpus,
        memory_mib,
        disk_gib: 3,
        extra_specs: map(specs),
        ownership: Ownership::default(),
    }
}

pub(crate) fn aliases() -> PciAliases {
    let alias = |name: &str, policy| {
        let name = PciAliasName::new(name).unwrap();
        let any_of = vec![PciMatch::default()];
        (
            name.clone(),
            PciAlias {
                name,
                any_of,
                policy,
            },
        )
    };
    [
        alias("gpu", None),
        alias("nic", Some(PciNumaPolicy::Required)),
    ]
    .into()
}

pub(crate) fn requirements(specs: Pairs<'_>, image: Pairs<'_>) -> Result<Requirements, Vec<Fault>> {
    flavor(4, 1024, specs).requirements(&ImageProperties(map(image)), &aliases())
}

pub(crate) const DEDICATED: (&str, &str) = ("hw:cpu_policy", "dedicated");
pub(crate) const MIXED: (&str, &str) = ("hw:cpu_policy", "mixed");
pub(crate) const SHARED: (&str, &str) = ("hw:cpu_policy", "shared");
pub(crate) const REALTIME: (&str, &str) = ("hw:cpu_realtime", "true");

/// One refused combination: specs, properties, and of each fault the field with a part of the rule.
pub(crate) type Refused<'a> = (Pairs<'a>, Pairs<'a>, Pairs<'a>);

pub(crate) fn check_refused(table: &[Refused<'_>]) {
    for (specs, image, expected) in table {
        let faults = match requirements(specs, image) {
            Err(faults) => faults,
            Ok(requirements) => panic!("{specs:?} {image:?} gives {requirements:?}"),
        };
        let found: Vec<_> = faults.iter().map(|f| (&*f.field, &*f.rule)).collect();
        assert_eq!(
            found.len(),
            expected.len(),
            "{specs:?} {image:?}: {found:?}"
        );
        for ((field, rule), (wanted, part)) in found.iter().zip(*expected) {
            assert_eq!(field, wanted, "{found:?}");
            assert!(rule.contains(part), "{rule:?} does not say {part:?}");
        }
    }
}
