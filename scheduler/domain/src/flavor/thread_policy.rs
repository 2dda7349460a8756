//! `hw:cpu_thread_policy`: how dedicated vCPUs lie on cores; or the same said by
//! `trait:HW_CPU_HYPERTHREADING`.

use super::Side;
use super::faults::Faults;
use super::groups::Quality;
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

/// Returns the policy of a guest. An image chooses where the flavor says nothing or prefer.
pub(super) fn judge(
    settings: &Settings<'_>,
    cpu_policy: CpuPolicy,
    faults: &mut Faults,
) -> ThreadPolicy {
    let said = &settings.thread_policy;
    let flavor_leaves_open = said
        .flavor
        .is_none_or(|flavor| flavor.value == ThreadPolicy::Prefer);
    let (side, policy) = match (said.flavor, said.image) {
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
    let quality = settings.groups.quality(&Trait::hyperthreading());
    if let (Some(policy), Some((field, quality))) = (policy, &quality) {
        let rule = format!(
            "cannot be combined with {}={}; use one or the other",
            side.key(NAME),
            policy.text
        );
        faults.add(field, quality.text(), rule);
    }
    if cpu_policy == CpuPolicy::Shared {
        let rule = "needs dedicated CPUs: hw:cpu_policy=dedicated or mixed";
        let open = settings.may_tighten();
        if let Some(policy) = policy {
            faults.add_if_closed(open, &side.named(NAME), policy.text, rule);
        } else if let Some((field, quality)) = &quality {
            faults.add_if_closed(open, field, quality.text(), rule);
        }
    }
    match (policy, quality) {
        (Some(policy), _) => policy.value,
        (None, Some((_, Quality::Required))) => ThreadPolicy::Require,
        (None, Some((_, Quality::Forbidden))) => ThreadPolicy::Isolate,
        (None, None) => ThreadPolicy::Prefer,
    }
}
