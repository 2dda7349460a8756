//! `hw:locked_memory`: the guest's memory is never swapped out.

use super::Side;
use super::faults::Faults;
use super::settings::Settings;

/// The name of the setting.
const NAME: &str = "locked_memory";

/// Returns whether the guest's memory is to be locked.
pub(super) fn evaluate(settings: &Settings<'_>, faults: &mut Faults) -> bool {
    let setting = &settings.locked_memory;
    if let (Some(flavor), Some(image)) = (setting.flavor, setting.image)
        && flavor.value != image.value
    {
        let rule = format!("contradicts the flavor's hw:locked_memory={}", flavor.text);
        faults.add(&Side::Image.named(NAME), image.text, rule);
    }
    let Some((side, setting)) = setting.first() else {
        return false;
    };
    if setting.value && settings.page_size.flavor.is_none() {
        faults.add(&side.named(NAME), setting.text, "needs hw:mem_page_size");
    }
    setting.value
}
