//! `hw:emulator_threads_policy`: where the emulator's own threads run. Only flavors set it.

use super::Side;
use super::faults::Faults;
use super::settings::Settings;
use crate::instance::{CpuPolicy, EmulatorThreads};

/// The name of the setting.
const NAME: &str = "emulator_threads_policy";

pub(super) fn parse(text: &str) -> Result<EmulatorThreads, String> {
    match text {
        "isolate" => Ok(EmulatorThreads::Isolate),
        "share" => Ok(EmulatorThreads::Share),
        _ => Err("must be isolate or share".to_owned()),
    }
}

/// Returns the policy of a guest.
pub(super) fn evaluate(
    settings: &Settings<'_>,
    cpu_policy: CpuPolicy,
    faults: &mut Faults,
) -> EmulatorThreads {
    let Some(setting) = settings.emulator_threads else {
        return EmulatorThreads::Unspecified;
    };
    if setting.value == EmulatorThreads::Isolate && cpu_policy == CpuPolicy::Shared {
        let rule = "isolate needs hw:cpu_policy=dedicated or mixed";
        let open = settings.may_tighten();
        faults.add_if_closed(open, &Side::Flavor.named(NAME), setting.text, rule);
    }
    setting.value
}
