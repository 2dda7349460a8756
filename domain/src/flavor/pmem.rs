//! `hw:pmem`: persistent-memory namespaces by the labels of their classes.

use super::faults::Faults;
use super::{Flavor, Side, settings::Settings};
use crate::pmem::{CLASS_PREFIX, DEVICES_MAX, Label, PmemDemand, PmemNumaPolicy, PmemRequest};
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

/// Reads how near the namespaces must be.
pub(super) fn parse_policy(text: &str) -> Result<PmemNumaPolicy, String> {
    match text {
        "preferred" => Ok(PmemNumaPolicy::Preferred),
        "required" => Ok(PmemNumaPolicy::Required),
        _ => Err("must be preferred or required".to_owned()),
    }
}

/// Returns the persistent memory that a flavor requests, as far as it is understood: a program that
/// starts a guest has had the whole of it validated.
pub(super) fn read(flavor: &Flavor) -> PmemDemand {
    let spec = |key: &str| flavor.extra_specs.get(key);
    let classes = spec("hw:pmem").and_then(|text| parse(text).ok());
    let policy = spec("hw:pmem_numa_policy").and_then(|text| parse_policy(text).ok());
    PmemDemand {
        requests: classes.into_iter().flatten().map(any_of).collect(),
        policy: policy.unwrap_or_default(),
    }
}

fn any_of(class: ResourceClass) -> PmemRequest {
    PmemRequest { class, shape: None }
}

/// Returns the persistent memory that a guest requests.
pub(super) fn evaluate(settings: &Settings<'_>, faults: &mut Faults) -> PmemDemand {
    let policy = settings.pmem_policy.as_ref();
    let Some(setting) = &settings.pmem else {
        if let Some(policy) = policy {
            let field = Side::Flavor.named("pmem_numa_policy");
            faults.add(&field, policy.text, "needs hw:pmem");
        }
        return PmemDemand::NONE;
    };
    if setting.value.len() > DEVICES_MAX {
        let rule = format!("at most {DEVICES_MAX} devices are allowed");
        faults.add(&Side::Flavor.named("pmem"), setting.text, rule);
    }
    PmemDemand {
        requests: setting.value.iter().cloned().map(any_of).collect(),
        policy: policy.map(|setting| setting.value).unwrap_or_default(),
    }
}

/// Refuses namespaces that are requested as plain resources: the guest would pay for a device
/// that it does not see.
pub(super) fn check_resources(settings: &Settings<'_>, faults: &mut Faults) {
    for (key, class, amount) in settings.groups.resources() {
        if class.as_str().starts_with(CLASS_PREFIX) {
            let rule = "persistent memory is requested with hw:pmem";
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
    }
}
