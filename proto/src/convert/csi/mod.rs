//! What the Container Storage Interface leaves to a plugin, in our terms: parameters, ways of use,
//! quantities and places.
//!
//! | module | what |
//! |---|---|
//! | [`parameters`] | the parameters of volumes, by where they come from |
//! | [`capability`] | how a volume is to be used |
//! | [`quantity`] | sizes as Kubernetes writes them |
//! | [`topology`] | hosts as places |
//! | [`pmem_csi`] | volumes that PMEM-CSI created |
//! | [`identity`] | what the driver is called, and what it can do |
//!
//! Not here: what is done about any of it. Everything is a function of its arguments.

pub mod capability;
pub mod identity;
pub mod parameters;
pub mod pmem_csi;
pub mod quantity;
pub mod topology;

pub use capability::{Access, FileSystem, Usage};
pub use parameters::{Origin, Parameters};
pub use topology::Places;

/// What the driver is called by default: PMEM-CSI's name, so that what names it goes on
/// to work.
pub const DRIVER_NAME_DEFAULT: &str = "pmem-csi.intel.com";

/// Checks whether a text can be the name of a driver: a domain name of at most 63 characters.
#[must_use]
pub fn is_driver_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let ends_well = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&name.len())
        && name.chars().all(is_plain)
        && name.starts_with(ends_well)
        && name.ends_with(ends_well)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_have_names_of_domains() {
        for good in [DRIVER_NAME_DEFAULT, "a", &"a".repeat(63)] {
            assert!(is_driver_name(good), "{good}");
        }
        for bad in ["", ".a", "a-", "a/b", "a b", "ä", &"a".repeat(64)] {
            assert!(!is_driver_name(bad), "{bad}");
        }
    }
}
