//! `hw:cpu_model`: what the guest sees as its processor.

use super::Side;
use super::faults::Faults;
use super::settings::Settings;
use crate::cpu_model::CpuModelChoice;

/// The name of the setting.
const NAME: &str = "cpu_model";

/// Returns which CPU the guest is to have.
pub(super) fn evaluate(settings: &Settings<'_>, faults: &mut Faults) -> CpuModelChoice {
    let setting = &settings.cpu_model;
    if let (Some(flavor), Some(image)) = (&setting.flavor, &setting.image)
        && flavor.value != image.value
    {
        let rule = format!("contradicts the flavor's hw:cpu_model={}", flavor.text);
        faults.add(&Side::Image.named(NAME), image.text, rule);
    }
    let chosen = setting.flavor.as_ref().or(setting.image.as_ref());
    chosen
        .map(|chosen| chosen.value.clone())
        .unwrap_or_default()
}
