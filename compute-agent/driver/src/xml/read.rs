//! What of a running domain's XML is read back: the CPUs of each vCPU, and how far the copying of
//! a disk is.

use std::collections::BTreeMap;
use std::str::FromStr;

use berth_domain::cpu_set::{self, CpuSet};
use berth_domain::instance::VcpuId;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Why XML from the hypervisor cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not XML.
    #[error("the hypervisor's XML is not well-formed")]
    Xml(#[from] quick_xml::Error),
    /// An attribute or a text is not what it should be.
    #[error("{element} holds {value:?} in the hypervisor's XML")]
    Value {
        /// The element.
        element: &'static str,
        /// What was found.
        value: String,
    },
    /// A CPU list cannot be read.
    #[error("the hypervisor's XML holds a CPU list that cannot be read")]
    Cpus(#[from] cpu_set::ParseError),
    /// The metadata have no record.
    #[error("the metadata of the domain have no record")]
    NoRecord,
    /// The record cannot be read.
    #[error("the record in the metadata of the domain cannot be read")]
    Record(#[source] serde_json::Error),
}

/// Returns the CPUs that each vCPU may run on: its pin, else the domain's own set. An empty set
/// means any CPU of the host.
///
/// # Errors
///
/// When the XML is damaged.
pub fn vcpu_cpus(xml: &str) -> Result<Vec<(VcpuId, CpuSet)>, Error> {
    let mut reader = Reader::from_str(xml);
    let mut all = CpuSet::new();
    let mut count = 0;
    let mut pins = BTreeMap::new();
    let mut in_vcpu = false;
    loop {
        match reader.read_event()? {
            Event::Start(element) if element.local_name().as_ref() == b"vcpu" => {
                if let Some(cpus) = attribute(&element, "cpuset")? {
                    all = CpuSet::from_str(&cpus)?;
                }
                in_vcpu = true;
            }
            Event::Text(text) if in_vcpu => {
                let text = text.decode().map_err(quick_xml::Error::from)?;
                count = number("vcpu", text.trim())?;
                in_vcpu = false;
            }
            Event::Empty(element) | Event::Start(element)
                if element.local_name().as_ref() == b"vcpupin" =>
            {
                let vcpu = attribute(&element, "vcpu")?.unwrap_or_default();
                let cpus = attribute(&element, "cpuset")?.unwrap_or_default();
                pins.insert(VcpuId(number("vcpupin", &vcpu)?), CpuSet::from_str(&cpus)?);
            }
            Event::Eof => break,
            Event::Start(_)
            | Event::End(_)
            | Event::Empty(_)
            | Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => {}
        }
    }
    let cpus_of = |vcpu| pins.get(&vcpu).unwrap_or(&all).clone();
    Ok((0..count)
        .map(VcpuId)
        .map(|vcpu| (vcpu, cpus_of(vcpu)))
        .collect())
}

/// How far the copying of a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// The disk is not being copied.
    None,
    /// There is something left to copy.
    Behind,
    /// What the guest writes goes to both.
    CaughtUp,
}

/// Returns how far the copying of a disk is, by its target as `vda`.
///
/// # Errors
///
/// When the XML is damaged.
pub fn copy_of(xml: &str, target: &str) -> Result<Copy, Error> {
    let mut reader = Reader::from_str(xml);
    let (mut copy, mut is_it) = (Copy::None, false);
    loop {
        match reader.read_event()? {
            Event::Start(element) | Event::Empty(element) => match element.local_name().as_ref() {
                b"disk" => (copy, is_it) = (Copy::None, false),
                b"mirror" => {
                    let ready = attribute(&element, "ready")?;
                    copy = match ready.as_deref() {
                        Some("yes") => Copy::CaughtUp,
                        Some(_) | None => Copy::Behind,
                    };
                }
                b"target" => is_it |= attribute(&element, "dev")?.as_deref() == Some(target),
                _ => {}
            },
            Event::End(element) if element.local_name().as_ref() == b"disk" && is_it => {
                return Ok(copy);
            }
            Event::Eof => return Ok(Copy::None),
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

/// Returns the text of the first element of that local name.
pub(super) fn text_of(xml: &str, name: &str) -> Result<Option<String>, Error> {
    let mut reader = Reader::from_str(xml);
    let mut text: Option<String> = None;
    loop {
        match reader.read_event()? {
            Event::Start(element) if element.local_name().as_ref() == name.as_bytes() => {
                text = Some(String::new());
            }
            Event::Text(piece) => {
                if let Some(text) = &mut text {
                    text.push_str(&piece.decode().map_err(quick_xml::Error::from)?);
                }
            }
            Event::CData(piece) => {
                if let Some(text) = &mut text {
                    text.push_str(&piece.decode().map_err(quick_xml::Error::from)?);
                }
            }
            Event::GeneralRef(reference) => {
                if let Some(text) = &mut text {
                    text.push_str(&resolve(&reference)?);
                }
            }
            Event::End(element) if element.local_name().as_ref() == name.as_bytes() => {
                return Ok(text);
            }
            Event::Eof => return Ok(None),
            Event::Start(_)
            | Event::End(_)
            | Event::Empty(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_) => {}
        }
    }
}

fn resolve(reference: &quick_xml::events::BytesRef<'_>) -> Result<String, Error> {
    if let Some(character) = reference.resolve_char_ref()? {
        return Ok(character.to_string());
    }
    let name = reference.decode().map_err(quick_xml::Error::from)?;
    quick_xml::escape::resolve_xml_entity(&name)
        .map(str::to_owned)
        .ok_or_else(|| Error::Value {
            element: "an entity",
            value: name.into_owned(),
        })
}

pub(super) fn attribute(element: &BytesStart<'_>, name: &str) -> Result<Option<String>, Error> {
    let found = element
        .try_get_attribute(name)
        .map_err(quick_xml::Error::from)?;
    found
        .map(|a| Ok(a.unescape_value()?.into_owned()))
        .transpose()
}

fn number(element: &'static str, text: &str) -> Result<u32, Error> {
    let limit = berth_domain::flavor::VCPUS_MAX;
    text.parse()
        .ok()
        .filter(|n| *n <= limit)
        .ok_or_else(|| Error::Value {
            element,
            value: text.chars().take(40).collect(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_read_and_the_rest_floats() {
        let xml = "<domain type='qemu'><vcpu placement='static' cpuset='0-3'>3</vcpu><cputune>\
                   <vcpupin vcpu='1' cpuset='2'/><emulatorpin cpuset='1'/></cputune></domain>";
        let cpus = vcpu_cpus(xml).unwrap();
        let texts: Vec<_> = cpus.iter().map(|(v, c)| (v.0, c.to_string())).collect();
        let expected = [(0, "0-3"), (1, "2"), (2, "0-3")];
        assert_eq!(texts, expected.map(|(v, c)| (v, c.to_owned())));
        let floating = vcpu_cpus("<domain><vcpu>1</vcpu></domain>").unwrap();
        assert_eq!(floating, [(VcpuId(0), CpuSet::new())]);
    }

    #[test]
    fn damage_is_an_error() {
        for bad in [
            "<domain><vcpu>",
            "<domain><vcpu>99999999</vcpu></domain>",
            "<domain><vcpu cpuset='x'>1</vcpu></domain>",
            "<domain><vcpupin vcpu='a' cpuset='1'/></domain>",
            "<domain></vcpu></domain>",
        ] {
            let read = vcpu_cpus(bad);
            assert!(read.is_err() || read.is_ok_and(|v| v.is_empty()), "{bad:?}");
        }
    }

    #[test]
    fn text_comes_back_unescaped() {
        let xml = "<a:g xmlns:a='u'><a:record>{&quot;k&quot;:&#39;&lt;&amp;&#39;}</a:record></a:g>";
        assert_eq!(text_of(xml, "record").unwrap().unwrap(), "{\"k\":'<&'}");
        assert_eq!(text_of(xml, "other").unwrap(), None);
    }
}
