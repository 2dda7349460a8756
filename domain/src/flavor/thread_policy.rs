//! `hw:cpu_thread_policy`: how dedicated vCPUs lie on cores; or the same set by
//! `trait:HW_CPU_HYPERTHREADING`.

use super::Side;
use super::faults::Faults;
use super::groups::TraitRule;
use super::settings::Settings;
use crate::instance::{CpuPolicy, ThreadPolicy};
use crate::resource::Trait;

/// The name of the setting.
const NAME: &str = "cpu_thread_policy";

pub(super) fn parse(text: &str) -> Result<ThreadPolicy, String> {
    match text {
        "prefer" => Ok(ThreadPolicy::Prefer),
        "isolate" => Ok(ThreadPolicy::Isolate),
        "require" => Ok(ThreadPolicy::Require),
        _ => Err("must be prefer, isolate or require".to_owned()),
    }
}

/// Returns the policy of a guest. An image chooses where the flavor sets nothing or prefer.
pub(super) fn evaluate(
    settings: &Settings<'_>,
    cpu_policy: CpuPolicy,
    faults: &mut Faults,
) -> ThreadPolicy {
    let setting = &settings.thread_policy;
    let flavor_leaves_open = setting
        .flavor
        .is_none_or(|flavor| flavor.value == ThreadPolicy::Prefer);
    let (side, policy) = match (setting.flavor, setting.image) {
        (_, Some(image)) if flavor_leaves_open => (Side::Image, Some(image)),
        (Some(flavor), Some(image)) if flavor.value != image.value => {
            let rule = format!(
                "contradicts the flavor's hw:cpu_thread_policy={}: an image may choose only where \
                 the flavor says nothing or prefer",
                flavor.text
            );
            faults.add(&Side::Image.named(NAME), image.text, rule);
            (Side::Flavor, Some(flavor))
        }
        (Some(flavor), _) => (Side::Flavor, Some(flavor)),
        (None, image) => (Side::Image, image),
    };
    let trait_rule = settings.groups.trait_rule(&Trait::hyperthreading());
    if let (Some(policy), Some((field, trait_rule))) = (policy, &trait_rule) {
        let rule = format!(
            "cannot be combined with {}={}; use one or the other",
            side.key(NAME),
            policy.text
        );
        faults.add(field, trait_rule.text(), rule);
    }
    if cpu_policy == CpuPolicy::Shared {
        let rule = "needs dedicated CPUs: hw:cpu_policy=dedicated or mixed";
        let open = settings.may_tighten();
        if let Some(policy) = policy {
            faults.add_if_closed(open, &side.named(NAME), policy.text, rule);
        } else if let Some((field, trait_rule)) = &trait_rule {
            faults.add_if_closed(open, field, trait_rule.text(), rule);
        }
    }
    match (policy, trait_rule) {
        (Some(policy), _) => policy.value,
        (None, Some((_, TraitRule::Required))) => ThreadPolicy::Require,
        (None, Some((_, TraitRule::Forbidden))) => ThreadPolicy::Isolate,
        (None, None) => ThreadPolicy::Prefer,
    }
}
