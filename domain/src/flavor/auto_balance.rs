//! `berth:auto_balance`: whether a guest may be moved to distribute guests better, as Ganeti's
//! parameter of that name.
//!
//! Not a requirement of placement: where the guest goes when it is made, or when its host fails, is
//! not touched by it.

use super::{Flavor, text};

/// The extra spec.
pub(super) const KEY: &str = "berth:auto_balance";

impl Flavor {
    /// Returns whether its guests may be moved to distribute guests better. What cannot be read
    /// opts out: no guest is moved by a misunderstanding.
    #[must_use]
    pub fn auto_balance(&self) -> bool {
        let setting = self.extra_specs.get(KEY);
        setting.is_none_or(|value| text::boolean(value) == Ok(true))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::name::FlavorName;
    use crate::ownership::Ownership;

    #[test]
    fn guests_are_moved_unless_the_flavor_says_no() {
        let flavor = |extra_specs: &[(&str, &str)]| Flavor {
            name: FlavorName::new("f").unwrap(),
            vcpus: 1,
            memory_mib: 1,
            disk_gib: 0,
            extra_specs: BTreeMap::from_iter(
                extra_specs
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
            ),
            ownership: Ownership::default(),
        };
        assert!(flavor(&[]).auto_balance());
        assert!(flavor(&[(KEY, "yes")]).auto_balance());
        assert!(!flavor(&[(KEY, "false")]).auto_balance());
        let bad = flavor(&[(KEY, "sometimes")]);
        assert!(!bad.auto_balance());
        let message = bad.validate().unwrap_err()[0].to_string();
        assert!(message.contains("must be true or false"), "{message}");
        let unknown = flavor(&[("berth:autobalance", "no")]);
        let message = unknown.validate().unwrap_err()[0].to_string();
        assert!(message.contains("known is berth:auto_balance"), "{message}");
    }
}
