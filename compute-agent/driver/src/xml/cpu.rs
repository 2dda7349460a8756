//! CPUs in libvirt's XML: what a hypervisor offers, what a guest has, what libvirt is to expand.
//!
//! What it is not: a verdict. Which CPU suffices for which guest is decided by `berth_domain`, and by
//! libvirt.
//!
//! Invariant: a feature is either required or disabled in what is written; libvirt's other policies are
//! read as the nearer of the two.

use std::collections::BTreeSet;

use berth_domain::cpu_model::{CpuMode, GuestCpu};
use berth_domain::name::{CpuFeature, CpuModelName, CpuVendor};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::node::Node;
use super::read::{Error, attribute};

/// The architecture of all guests.
pub const ARCHITECTURE: &str = "x86_64";

/// What a hypervisor offers to guests as a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfferedCpus {
    /// The closest description of the host's CPU that can be moved; nothing where the hypervisor has none.
    pub host_model: Option<GuestCpu>,
    /// The models that the hypervisor knows.
    pub models: BTreeSet<CpuModelName>,
}

/// A `<cpu>`, or a `<mode>` with the same content, while it is read.
#[derive(Default)]
struct Definition {
    model: Option<CpuModelName>,
    vendor: Option<CpuVendor>,
    required: BTreeSet<CpuFeature>,
    disabled: BTreeSet<CpuFeature>,
}

impl Definition {
    fn add(&mut self, feature: &BytesStart<'_>) -> Result<(), Error> {
        let name = attribute(feature, "name")?.unwrap_or_default();
        let name = CpuFeature::new(&name).map_err(|_| value("feature", &name))?;
        let policy = attribute(feature, "policy")?;
        match policy.as_deref() {
            None | Some("require" | "force") => self.required.insert(name),
            Some("disable" | "forbid") => self.disabled.insert(name),
            Some(_) => false,
        };
        Ok(())
    }

    fn guest_cpu(self) -> Option<GuestCpu> {
        Some(GuestCpu {
            mode: CpuMode::Custom,
            model: self.model?,
            vendor: self.vendor,
            required: self.required,
            disabled: self.disabled,
        })
    }
}

fn value(element: &'static str, text: &str) -> Error {
    Error::Value {
        element,
        value: text.chars().take(40).collect(),
    }
}

/// The part of domain capabilities in which an element is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    HostModel,
    Custom,
    Other,
}

/// Reads the CPUs in domain capabilities.
///
/// # Errors
///
/// When the XML is damaged.
pub fn offered(xml: &str) -> Result<OfferedCpus, Error> {
    let mut offered = OfferedCpus::default();
    let mut definition = Definition::default();
    let mut part = Part::Other;
    walk(xml, |element, text| {
        match (element.local_name().as_ref(), part) {
            (b"mode", _) => part = part_of(element)?,
            (b"feature", Part::HostModel) => definition.add(element)?,
            (b"model", Part::HostModel) => definition.model = Some(model(text)?),
            (b"vendor", Part::HostModel) => definition.vendor = Some(vendor(text)?),
            (b"model", Part::Custom) => {
                // One with a name that no flavor can have is of no use.
                offered.models.extend(model(text).ok());
            }
            _ => {}
        }
        Ok(())
    })?;
    offered.host_model = definition.guest_cpu();
    Ok(offered)
}

fn part_of(mode: &BytesStart<'_>) -> Result<Part, Error> {
    let is_supported = attribute(mode, "supported")?.as_deref() == Some("yes");
    let name = attribute(mode, "name")?;
    Ok(match name.as_deref() {
        Some("host-model") if is_supported => Part::HostModel,
        Some("custom") if is_supported => Part::Custom,
        Some(_) | None => Part::Other,
    })
}

/// Reads a `<cpu>` as libvirt writes it, with the policies as they stand there.
///
/// # Errors
///
/// When the XML is damaged, or names no model.
pub fn definition(xml: &str) -> Result<GuestCpu, Error> {
    let mut definition = Definition::default();
    let mut is_in_cpu = false;
    walk(xml, |element, text| {
        match element.local_name().as_ref() {
            b"cpu" => is_in_cpu = true,
            b"devices" => is_in_cpu = false,
            b"feature" if is_in_cpu => definition.add(element)?,
            b"model" if is_in_cpu => definition.model = Some(model(text)?),
            b"vendor" if is_in_cpu => definition.vendor = Some(vendor(text)?),
            _ => {}
        }
        Ok(())
    })?;
    definition.guest_cpu().ok_or_else(|| value("cpu", ""))
}

/// The CPU of a guest that runs, as libvirt has it. It adds features of the model that QEMU leaves out, and
/// that the check is complete; a destination's CPU has to be equal, and in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningCpu {
    check: Option<String>,
    model: CpuModelName,
    vendor: Option<CpuVendor>,
    /// Each with its policy.
    features: Vec<(String, CpuFeature)>,
}

/// Reads the CPU from the XML of a guest that runs; nothing where it is the host's own.
///
/// # Errors
///
/// When the XML is damaged.
pub fn running(xml: &str) -> Result<Option<RunningCpu>, Error> {
    let (mut is_custom, mut is_in_cpu) = (false, false);
    let (mut check, mut own_model, mut own_vendor) = (None, None, None);
    let mut features = Vec::new();
    walk(xml, |element, text| {
        match element.local_name().as_ref() {
            b"cpu" => {
                is_in_cpu = true;
                is_custom = attribute(element, "mode")?.as_deref() == Some("custom");
                check = attribute(element, "check")?;
            }
            b"devices" => is_in_cpu = false,
            b"model" if is_in_cpu => own_model = Some(model(text)?),
            b"vendor" if is_in_cpu => own_vendor = Some(vendor(text)?),
            b"feature" if is_in_cpu => {
                let name = attribute(element, "name")?.unwrap_or_default();
                let name = CpuFeature::new(&name).map_err(|_| value("feature", &name))?;
                let policy = attribute(element, "policy")?;
                features.push((policy.unwrap_or_else(|| "require".to_owned()), name));
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(own_model.filter(|_| is_custom).map(|model| RunningCpu {
        check,
        model,
        vendor: own_vendor,
        features,
    }))
}

fn model(text: &str) -> Result<CpuModelName, Error> {
    CpuModelName::new(text).map_err(|_| value("model", text))
}

fn vendor(text: &str) -> Result<CpuVendor, Error> {
    CpuVendor::new(text).map_err(|_| value("vendor", text))
}

/// Calls back for each element, in order, with the text that it begins with.
fn walk(
    xml: &str,
    mut visit: impl FnMut(&BytesStart<'_>, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut reader = Reader::from_str(xml);
    let mut opened: Option<BytesStart<'static>> = None;
    loop {
        let event = reader.read_event()?;
        if let Some(element) = opened.take() {
            match &event {
                Event::Text(text) => {
                    let text = text.decode().map_err(quick_xml::Error::from)?;
                    visit(&element, text.trim())?;
                }
                Event::Start(_)
                | Event::End(_)
                | Event::Empty(_)
                | Event::CData(_)
                | Event::Comment(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::DocType(_)
                | Event::GeneralRef(_)
                | Event::Eof => visit(&element, "")?,
            }
        }
        match event {
            Event::Start(element) => opened = Some(element.into_owned()),
            Event::Empty(element) => visit(&element, "")?,
            Event::Eof => return Ok(()),
            Event::End(_)
            | Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => {}
        }
    }
}

/// Returns a CPU as the description of a host's, which libvirt expands: the model and what is required
/// beyond it. It has no features that are disabled: libvirt overlooks them there.
#[must_use]
pub fn host(cpu: &GuestCpu) -> String {
    let features = cpu.required.iter();
    Node::new("cpu")
        .child(Node::new("arch").text(ARCHITECTURE))
        .child(Node::new("model").text(&cpu.model))
        .children(vendor_element(cpu.vendor.as_ref()))
        .children(features.map(|feature| Node::new("feature").with("name", feature)))
        .to_xml()
}

/// Returns the CPU of a guest, without its topology.
#[must_use]
pub fn guest(cpu: &GuestCpu) -> String {
    element(cpu).to_xml()
}

/// Returns the CPU of a guest that runs, for its destination.
pub(super) fn element_of_running(cpu: &RunningCpu) -> Node {
    let element = Node::new("cpu")
        .with("mode", "custom")
        .with("match", "exact");
    let element = match &cpu.check {
        Some(check) => element.with("check", check),
        None => element,
    };
    let features = cpu.features.iter().map(|(policy, name)| {
        Node::new("feature")
            .with("policy", policy)
            .with("name", name)
    });
    element
        .child(model_element(&cpu.model))
        .children(vendor_element(cpu.vendor.as_ref()))
        .children(features)
}

fn model_element(model: &CpuModelName) -> Node {
    Node::new("model").with("fallback", "forbid").text(model)
}

fn vendor_element(vendor: Option<&CpuVendor>) -> Option<Node> {
    vendor.map(|vendor| Node::new("vendor").text(vendor))
}

/// As [`guest`]. libvirt compares it with what the host offers before it starts QEMU: the
/// partial check. A full one would refuse features that QEMU itself turns on or off.
pub(super) fn element(cpu: &GuestCpu) -> Node {
    match cpu.mode {
        CpuMode::HostPassthrough => Node::new("cpu")
            .with("mode", "host-passthrough")
            .with("migratable", "on"),
        CpuMode::Custom => {
            let feature = |policy: &'static str, name: &CpuFeature| {
                Node::new("feature")
                    .with("policy", policy)
                    .with("name", name)
            };
            let required = cpu.required.iter().map(|name| feature("require", name));
            let disabled = cpu.disabled.iter().map(|name| feature("disable", name));
            Node::new("cpu")
                .with("mode", "custom")
                .with("match", "exact")
                .with("check", "partial")
                .child(model_element(&cpu.model))
                .children(vendor_element(cpu.vendor.as_ref()))
                .children(required)
                .children(disabled)
        }
    }
}
