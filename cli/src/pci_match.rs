//! A match of a PCI alias as it is typed: `vendor_id=8086,product_id=154c,kind=vf`.

use berth_domain::pci::{LIVE_MIGRATABLE, PciId, PciKind, PciMatch};

/// The network that a function is connected to.
const NETWORK: &str = "physical_network";
/// The prefix of any other tag's name.
const TAG: &str = "tag:";

/// Reads `vendor_id=8086,product_id=154c,kind=vf`.
///
/// # Errors
///
/// Names the part that is wrong, and what is allowed.
pub(crate) fn parse_match(text: &str) -> Result<PciMatch, String> {
    let mut pattern = PciMatch::default();
    for part in text.split(',') {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        let id = || value.parse::<PciId>().map_err(|error| error.to_string());
        let twice = match key {
            "vendor_id" => pattern.vendor.replace(id()?).is_some(),
            "product_id" => pattern.product.replace(id()?).is_some(),
            "kind" => pattern.kind.replace(kind(value)?).is_some(),
            _ => {
                let tag = match key.strip_prefix(TAG) {
                    Some(tag) => tag,
                    None if key == NETWORK || key == LIVE_MIGRATABLE => key,
                    None => {
                        return Err(format!(
                            "{key:?} is not known; known are vendor_id, product_id, kind, \
                             {NETWORK}, {LIVE_MIGRATABLE} and {TAG}NAME"
                        ));
                    }
                };
                let tags = &mut pattern.tags;
                tags.insert(tag.to_owned(), value.to_owned()).is_some()
            }
        };
        if twice {
            return Err(format!("{key} is there twice"));
        }
    }
    Ok(pattern)
}

/// Reads a kind, also as OpenStack Nova writes it.
fn kind(text: &str) -> Result<PciKind, String> {
    match text.to_ascii_lowercase().as_str() {
        "pci" | "type-pci" => Ok(PciKind::Pci),
        "vf" | "type-vf" => Ok(PciKind::Virtual),
        "pf" | "type-pf" => Ok(PciKind::Physical),
        _ => Err(format!("kind {text:?} must be pci, vf or pf")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is typed becomes a match, and what is wrong is named.
    #[test]
    fn matches_are_read() {
        let shown = |text: &str| parse_match(text).map(|m| m.to_string());
        for (text, expected) in [
            ("vendor_id=8086,product_id=154c,kind=vf", "8086:154c (VF)"),
            ("kind=type-PF", "*:* (PF)"),
            ("vendor_id=10DE", "10de:*"),
            (
                "physical_network=blue,live_migratable=yes,tag:rack=7",
                "*:* live_migratable=yes physical_network=blue rack=7",
            ),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, words) in [
            ("", "\"\" is not KEY=VALUE"),
            ("8086:154c", "is not KEY=VALUE"),
            ("vendor_id=0x8086", "four hexadecimal digits"),
            ("vendor_id=", "four hexadecimal digits"),
            ("kind=nic", "must be pci, vf or pf"),
            ("vendor=8086", "known are vendor_id"),
            ("vendor_id=8086,vendor_id=8086", "vendor_id is there twice"),
            ("tag:a=1,tag:a=2", "tag:a is there twice"),
            ("kind=vf,", "is not KEY=VALUE"),
        ] {
            let error = shown(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
