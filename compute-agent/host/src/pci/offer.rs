//! What is offered to guests: the functions that the operator's rules name, and what is wrong with
//! the rules on this machine.

use std::collections::{BTreeMap, BTreeSet};

use berth_domain::pci::{PciAddress, PciDevice, PciKind};
use berth_domain::topology::CellId;

use super::function::{Function, Iommu};
use super::rule::{Name, Rule};
use crate::machine::Warning;
use crate::options::Fault;

/// Drivers of the host that leave a function to guests.
const DRIVERS_OF_GUESTS: [&str; 2] = ["vfio-pci", "pci-stub"];
/// How many network devices a fault names.
const DEVNAMES_MAX: usize = 8;

/// The result of the rules.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    pub(crate) devices: Vec<PciDevice>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) warnings: Vec<Warning>,
}

/// Returns what the rules offer of the functions; `cells` are those that the host has.
pub(crate) fn offer(functions: &[Function], rules: &[Rule], cells: &BTreeSet<CellId>) -> Offer {
    let mut offer = Offer::default();
    let mut taken = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        match matched(functions, rule, &mut offer.warnings, index) {
            Err(why) => offer.faults.push(Fault::Pci { rule: index, why }),
            Ok(matched) => {
                let count = matched.len();
                let earlier = taken.len();
                for function in matched {
                    taken.entry(function.address).or_insert((function, rule));
                }
                if taken.len() == earlier {
                    let shadowed = count > 0;
                    let warning = Warning::IdleRule {
                        rule: index,
                        shadowed,
                    };
                    offer.warnings.push(warning);
                }
            }
        }
    }
    let given: BTreeSet<_> = taken.keys().copied().collect();
    let mut strays: BTreeMap<CellId, Vec<PciAddress>> = BTreeMap::new();
    for (function, rule) in taken.into_values() {
        let mut cell = function.node.map(CellId);
        if let Some(stray) = cell.filter(|cell| !cells.contains(cell)) {
            strays.entry(stray).or_default().push(function.address);
            cell = None;
        }
        offer.devices.push(PciDevice {
            address: function.address,
            vendor: function.vendor,
            product: function.product,
            cell,
            kind: function.kind,
            parent: function.parent,
            tags: rule.all_tags(),
        });
    }
    let stray = |(cell, functions)| Warning::StrayFunctions { cell, functions };
    offer.warnings.extend(strays.into_iter().map(stray));
    offer.warnings.extend(isolation(functions, &given));
    offer
}

/// Returns the functions that match a rule, those that can be passed through at all.
fn matched<'a>(
    functions: &'a [Function],
    rule: &Rule,
    warnings: &mut Vec<Warning>,
    index: usize,
) -> Result<Vec<&'a Function>, String> {
    let Some(name) = rule.name() else {
        let matched = functions
            .iter()
            .filter(|f| rule.accepts(f) && !f.is_bridge());
        let (used, free): (Vec<_>, Vec<_>) = matched.partition(|f| f.in_use().is_some());
        warnings.extend(used.into_iter().map(|f| withheld(f, index)));
        return Ok(free);
    };
    let named = functions.iter().find(|f| name.is(f));
    let named = named.ok_or_else(|| absent(functions, &name))?;
    let called = match name {
        Name::Address(_) => named.address.to_string(),
        Name::Device(device) => format!("{device} ({})", named.address),
    };
    if named.is_bridge() {
        return Err(format!(
            "{called} is a bridge: other functions are behind it"
        ));
    }
    let behind = |f: &&Function| f.parent == Some(named.address);
    let all = std::iter::once(named).chain(functions.iter().filter(behind));
    let matched: Vec<_> = all.filter(|f| rule.accepts_model(f)).collect();
    if matched.is_empty() {
        let (vendor, product) = (named.vendor, named.product);
        return Err(format!("{called} is {vendor}:{product}"));
    }
    let (used, free): (Vec<_>, Vec<_>) = matched.into_iter().partition(|f| f.in_use().is_some());
    if let (true, Some(first)) = (free.is_empty(), used.first()) {
        let carries = first.in_use().unwrap_or_default();
        return Err(format!("{called} carries {carries}: the host needs it"));
    }
    warnings.extend(used.into_iter().map(|f| withheld(f, index)));
    Ok(free)
}

fn withheld(function: &Function, rule: usize) -> Warning {
    Warning::Withheld {
        rule,
        function: function.address,
        carries: function.in_use().unwrap_or_default(),
    }
}

fn absent(functions: &[Function], name: &Name<'_>) -> String {
    match name {
        Name::Address(address) => format!("there is no PCI function {address}"),
        Name::Device(device) => {
            let names: BTreeSet<_> = functions.iter().flat_map(|f| &f.devnames).collect();
            let there: Vec<_> = names
                .iter()
                .take(DEVNAMES_MAX)
                .map(|n| n.as_str())
                .collect();
            let there = match (there.is_empty(), names.len() > there.len()) {
                (true, _) => "none".to_owned(),
                (false, false) => there.join(", "),
                (false, true) => format!("{} and more", there.join(", ")),
            };
            format!("no PCI function is the network device {device}; there are {there}")
        }
    }
}

/// Returns what prevents passing functions through one by one. An IOMMU cannot isolate the
/// functions of one group: they go to one guest, and none of them stays with the host.
fn isolation(functions: &[Function], given: &BTreeSet<PciAddress>) -> Vec<Warning> {
    let mut off = Vec::new();
    let mut groups: BTreeMap<u32, Vec<&Function>> = BTreeMap::new();
    for function in functions {
        match function.iommu {
            Iommu::Off if given.contains(&function.address) => off.push(function.address),
            Iommu::Group(group) => groups.entry(group).or_default().push(function),
            Iommu::Off | Iommu::Untold => {}
        }
    }
    let mut warnings = Vec::new();
    if !off.is_empty() {
        warnings.push(Warning::NoIommu { functions: off });
    }
    for members in groups.into_values() {
        let (ours, others): (Vec<_>, Vec<_>) = members
            .into_iter()
            .partition(|f| given.contains(&f.address));
        let stays = |f: &&Function| {
            let driver = f.driver.as_deref();
            !f.is_bridge() && driver.is_some_and(|d| !DRIVERS_OF_GUESTS.contains(&d))
        };
        let others: Vec<_> = others.into_iter().filter(stays).collect();
        // A physical function is not offered while its virtual ones are.
        let apart = ours.iter().filter(|f| f.kind != PciKind::Physical).count();
        if !ours.is_empty() && (apart > 1 || !others.is_empty()) {
            warnings.push(Warning::SharedGroup {
                functions: ours.iter().map(|f| f.address).collect(),
                host: others.iter().map(|f| f.address).collect(),
            });
        }
    }
    warnings
}
