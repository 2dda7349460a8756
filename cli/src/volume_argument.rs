//! A volume of a VM as it is typed: `VOLUME[:disk|nvdimm[:ro]]`.

use berth_domain::vm::AttachedAs;

/// A volume as it is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeArgument {
    pub(crate) volume: String,
    pub(crate) attached_as: AttachedAs,
    pub(crate) read_only: bool,
}

/// Parses a volume and how the guest sees it: as a writable disk by default.
///
/// # Errors
///
/// When no volume is named.
pub(crate) fn attachment(text: &str) -> Result<VolumeArgument, String> {
    let suffix = AttachedAs::ALL.into_iter().find_map(|what| {
        let (before, read_only) = match text.strip_suffix(":ro") {
            Some(before) if before.ends_with(&format!(":{what}")) => (before, true),
            Some(_) | None => (text, false),
        };
        let volume = before.strip_suffix(&what.to_string())?.strip_suffix(':')?;
        Some((volume, what, read_only))
    });
    // A name may hold a colon itself.
    let (volume, attached_as, read_only) = suffix.unwrap_or((text, AttachedAs::Disk, false));
    match volume {
        "" => Err("expected the name or the id of a volume".to_owned()),
        volume => Ok(VolumeArgument {
            volume: volume.to_owned(),
            attached_as,
            read_only,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_a_colon() {
        let check = |text, name: &str, what: &str, read_only| {
            let read = attachment(text).unwrap();
            let parsed = (
                &*read.volume,
                &*read.attached_as.to_string(),
                read.read_only,
            );
            assert_eq!(parsed, (name, what, read_only), "{text}");
        };
        check("data", "data", "disk", false);
        check("data:nvdimm", "data", "nvdimm", false);
        check("a:b:disk", "a:b", "disk", false);
        check("a:b", "a:b", "disk", false);
        check("data:disk:ro", "data", "disk", true);
        check("data:nvdimm:ro", "data", "nvdimm", true);
        check("data:ro", "data:ro", "disk", false);
        check("a:ro:disk", "a:ro", "disk", false);
        for text in ["", ":nvdimm", ":disk:ro"] {
            assert!(attachment(text).is_err(), "{text:?}");
        }
    }
}
