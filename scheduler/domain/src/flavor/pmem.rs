//! `hw:pmem`: persistent-memory namespaces by the labels of their classes.

use super::faults::Faults;
use super::{Side, settings::Settings};
use crate::allocation::Resources;
use crate::pmem::{CLASS_PREFIX, Label};
use crate::resource::ResourceClass;

/// Reads `LABEL[,LABEL…]`; blanks around labels and empty ones are passed over. Each appearance
/// is one namespace.
pub(super) fn parse(text: &str) -> Result<Vec<ResourceClass>, String> {
    let rule =
        "must be labels of persistent memory out of letters, digits and _, as 128G,128G,SMALL";
    let labels: Vec<_> = text
        .split(',')
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    if labels.is_empty() {
        return Err(rule.to_owned());
    }
    labels
        .into_iter()
        .map(|label| match Label::parse(label) {
            Ok(label) => Ok(label.class()),
            Err(_) => Err(rule.to_owned()),
        })
        .collect()
}

/// Returns how many namespaces of each class are asked for.
pub(super) fn counted(namespaces: &[ResourceClass]) -> Resources {
    let mut counted = Resources::new();
    for class in namespaces {
        *counted.entry(class.clone()).or_default() += 1;
    }
    counted
}

/// Refuses namespaces that are asked for as plain resources: the guest would pay for a device
/// that it does not see.
pub(super) fn check_resources(settings: &Settings<'_>, faults: &mut Faults) {
    for (key, class, amount) in settings.groups.resources() {
        if class.as_str().starts_with(CLASS_PREFIX) {
            let rule = "persistent memory is asked for with hw:pmem";
            faults.add(&Side::Flavor.field(key), amount, rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_classes() {
        let names = |text: &str| {
            let classes = parse(text).ok()?;
            let names = classes
                .iter()
                .map(|c| c.as_str().strip_prefix(CLASS_PREFIX).unwrap().to_owned());
            Some(names.collect::<Vec<_>>().join(" "))
        };
        for (text, expected) in [
            ("128G", Some("128G")),
            ("128g, 128G,,small_1", Some("128G 128G SMALL_1")),
            ("", None),
            (" , ", None),
            ("a-b", None),
            ("ä", None),
        ] {
            assert_eq!(names(text).as_deref(), expected, "{text:?}");
        }
        let counted = counted(&parse("a,b,a").unwrap());
        assert_eq!(counted.values().copied().collect::<Vec<_>>(), [2, 1]);
    }
}
