//! libvirt's CPU map, as this machine has it: the models, and where a guest sees a feature.
//!
//! What it is not: the features of the models. Those are what libvirt says when it expands one.
//!
//! Invariant: nothing of the map is in this repository; all of it is read when a test runs.

use std::collections::BTreeMap;
use std::path::Path;

use berth_domain::name::{CpuFeature, CpuModelName, CpuVendor};

/// Where libvirt's packages keep the map.
const DIRECTORY: &str = "/usr/share/libvirt/cpu_map";
const PREFIX: &str = "x86_";

/// A processor's numbers, by which software recognises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) family: u32,
    pub(super) model: u32,
}

/// A model of a vendor's.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) vendor: CpuVendor,
    /// Nothing where the map has none.
    pub(super) signature: Option<Signature>,
}

/// A bit that the instruction CPUID returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bit {
    /// What it is executed with.
    pub(super) leaf: u32,
    /// The register of the result, from EAX on.
    pub(super) register: usize,
    pub(super) mask: u32,
}

fn read(name: &str) -> String {
    let path = Path::new(DIRECTORY).join(format!("{PREFIX}{name}.xml"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns an attribute of the element that is on a line of its own.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = line.split_once(&format!(" {name}='"))?;
    value.split_once('\'').map(|(value, _)| value)
}

fn lines<'a>(text: &'a str, element: &str) -> impl Iterator<Item = &'a str> {
    let start = format!("<{element} ");
    let lines = text.lines().map(str::trim_start);
    lines.filter(move |line| line.starts_with(&start))
}

fn number(text: &str) -> u32 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the vendor and the signature that the map states for a model, or for the one that it is made of.
fn model(name: &str) -> (Option<CpuVendor>, Option<Signature>) {
    let text = read(name);
    let mut base = (None, None);
    if let Some(line) = lines(&text, "model").find(|line| line.contains("/>")) {
        base = model(attribute(line, "name").expect("a model has a name"));
    }
    let vendor = lines(&text, "vendor").find_map(|line| attribute(line, "name"));
    let vendor = vendor.map(|vendor| CpuVendor::new(vendor).unwrap());
    let signature = lines(&text, "signature").next().map(|line| Signature {
        family: number(attribute(line, "family").expect("a signature has a family")),
        model: number(attribute(line, "model").expect("a signature has a model")),
    });
    (vendor.or(base.0), signature.or(base.1))
}

/// Returns the models that have a vendor.
pub(super) fn models() -> BTreeMap<CpuModelName, Model> {
    let mut models = BTreeMap::new();
    for entry in std::fs::read_dir(DIRECTORY).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name
            .strip_prefix(PREFIX)
            .and_then(|name| name.strip_suffix(".xml"));
        let Some(name) = name.filter(|name| !["features", "vendors"].contains(name)) else {
            continue;
        };
        if let (Some(vendor), signature) = model(name) {
            let model = Model { vendor, signature };
            models.insert(CpuModelName::new(name).unwrap(), model);
        }
    }
    models
}

/// Returns what a processor of that vendor calls its maker.
pub(super) fn vendor_string(vendor: &CpuVendor) -> String {
    let text = read("vendors");
    let mut vendors = lines(&text, "vendor");
    let line = vendors.find(|line| attribute(line, "name") == Some(vendor.as_str()));
    let line = line.unwrap_or_else(|| panic!("{vendor} is not in the map"));
    attribute(line, "string").unwrap().to_owned()
}

/// Returns the features that are bits of these leaves.
pub(super) fn bits(leaves: &[u32]) -> BTreeMap<CpuFeature, Bit> {
    let text = read("features");
    let mut bits = BTreeMap::new();
    let mut feature = None;
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("<feature ") {
            feature = attribute(line, "name");
        }
        let Some(leaf) = attribute(line, "eax_in").map(number) else {
            continue;
        };
        let is_first = attribute(line, "ecx_in").is_none_or(|inner| number(inner) == 0);
        let registers = ["eax", "ebx", "ecx", "edx"].map(|name| attribute(line, name));
        if let Some(register) = registers.iter().position(Option::is_some)
            && is_first
            && leaves.contains(&leaf)
        {
            let mask = number(registers[register].expect("its position"));
            let name = CpuFeature::new(feature.expect("a feature has a name")).unwrap();
            let bit = Bit {
                leaf,
                register,
                mask,
            };
            bits.insert(name, bit);
        }
    }
    bits
}
