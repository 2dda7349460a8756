//! What must hold of images.

use berth_domain::image::{COPIES_MAX, IMAGES_MAX};

use super::{Violation, rule};
use crate::state::State;

/// Only hosts of the cluster have copies, and only of images that are complete.
pub(super) fn copies_are_of_known_hosts(state: &State) -> Result<(), Violation> {
    const RULE: &str = "copies_are_of_known_hosts";
    let count = state.images.len();
    rule(count <= IMAGES_MAX, RULE, format_args!("{count} images"))?;
    for image in state.images.values() {
        let (name, copies) = (&image.name, &image.copies);
        let is_whole = image.content.is_some() || copies.is_empty();
        let are_known = copies.iter().all(|host| state.hosts.contains_key(host));
        let good = is_whole && are_known && copies.len() <= COPIES_MAX;
        rule(
            good,
            RULE,
            format_args!("image {name} has copies on {copies:?}"),
        )?;
    }
    Ok(())
}
