//! `hw:locked_memory`: the guest's memory is never swapped out.

use super::Side;
use super::faults::Faults;
use super::settings::Settings;

/// The name of the setting.
const NAME: &str = "locked_memory";

/// Returns whether the guest's memory is to be locked.
pub(super) fn judge(settings: &Settings<'_>, faults: &mut Faults) -> bool {
    let said = &settings.locked_memory;
    if let (Some(flavor), Some(image)) = (said.flavor, said.image)
        && flavor.value != image.value
    {
        let rule = format!("contradicts the flavor's hw:locked_memory={}", flavor.text);
        faults.add(&Side::Image.named(NAME), image.text, rule);
    }
    let Some((side, said)) = said.first() else {
        return false;
    };
    if said.value && settings.page_size.flavor.is_none() {
        faults.add(&side.named(NAME), said.text, "needs hw:mem_page_size");
    }
    said.value
}
