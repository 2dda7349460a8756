//! `hw:cpu_sockets`, `hw:cpu_cores`, `hw:cpu_threads` and their limits `hw:cpu_max_*`: how the
//! guest sees its vCPUs.
//!
//! The counts are preferences and the limits are limits, as in OpenStack Nova: of the shapes that
//! make the number of vCPUs within the limits, the one is taken that meets most of the counts;
//! among equals, few threads come before many, and many sockets before few.

use super::faults::Faults;
use super::setting::Setting;
use super::settings::Settings;
use super::{Flavor, Side};
use crate::cpu_shape::CpuShape;

/// The most sockets, cores or threads that can be requested.
pub(super) const COUNT_MAX: u32 = 65_536;

/// Three counts, of sockets, cores and threads.
type Counts = [Option<u32>; 3];

/// The names of the limits, in order.
const LIMITS: [&str; 3] = ["cpu_max_sockets", "cpu_max_cores", "cpu_max_threads"];
/// The names of the counts, in order.
const COUNTS: [&str; 3] = ["cpu_sockets", "cpu_cores", "cpu_threads"];

/// Returns the shape of a guest, if the flavor or the image sets one.
pub(super) fn evaluate(
    flavor: &Flavor,
    settings: &Settings<'_>,
    faults: &mut Faults,
) -> Option<CpuShape> {
    let (counts, limits) = (&settings.shape, &settings.shape_limits);
    let setting = counts.iter().chain(limits).any(|s| s.first().is_some());
    if !setting {
        return None;
    }
    let limit = limits_of(limits, faults);
    let exceeds = |count: Option<u32>, limit: Option<u32>| matches!((count, limit), (Some(count), Some(limit)) if count > limit);
    let mut good = true;
    for ((name, count), limit) in COUNTS.iter().zip(counts).zip(limit) {
        if let Some(image) = count.image
            && exceeds(Some(image.value), limit)
        {
            let most = limit.unwrap_or(COUNT_MAX);
            let rule = format!("is more than the limit, {most}, by hw:cpu_max_* or hw_cpu_max_*");
            faults.add(&Side::Image.named(name), image.text, rule);
            good = false;
        }
    }
    if !good {
        return None;
    }
    let of_image: Counts = std::array::from_fn(|i| counts[i].image.map(|setting| setting.value));
    let of_flavor: Counts = std::array::from_fn(|i| counts[i].flavor.map(|setting| setting.value));
    let flavor_exceeds = of_flavor.iter().zip(limit).any(|(c, l)| exceeds(*c, l));
    // A single count of the image puts aside all of the flavor's; so does a limit below them.
    let requested = if of_image.iter().any(Option::is_some) {
        of_image
    } else if flavor_exceeds {
        Counts::default()
    } else {
        of_flavor
    };
    let best = best(flavor.vcpus, requested, limit);
    if best.is_none() {
        impossible(flavor.vcpus, limits, limit, faults);
    }
    best
}

/// Returns the limits: the image's where it sets some, which may only be lower than the flavor's.
fn limits_of(limits: &[Setting<'_, u32>; 3], faults: &mut Faults) -> Counts {
    std::array::from_fn(|index| {
        let both = &limits[index];
        if let (Some(flavor), Some(image)) = (both.flavor, both.image)
            && image.value > flavor.value
        {
            let rule = format!(
                "an image may only lower the flavor's hw:{}={}",
                LIMITS[index], flavor.text
            );
            faults.add(&Side::Image.named(LIMITS[index]), image.text, rule);
            return Some(flavor.value);
        }
        both.image.or(both.flavor).map(|setting| setting.value)
    })
}

fn impossible(vcpus: u32, limits: &[Setting<'_, u32>; 3], limit: Counts, faults: &mut Faults) {
    let text: Vec<_> = limit
        .iter()
        .map(|limit| limit.map_or_else(|| "any".to_owned(), |most| most.to_string()))
        .collect();
    let rule = format!(
        "{vcpus} vCPUs cannot be made of at most {} sockets, {} cores and {} threads",
        text[0], text[1], text[2]
    );
    for (name, both) in LIMITS.iter().zip(limits) {
        if let Some((side, setting)) = both.first() {
            return faults.add(&side.named(name), setting.text, rule);
        }
    }
}

/// Returns the best shape of this many vCPUs, if there is any within the limits.
fn best(vcpus: u32, requested: Counts, limit: Counts) -> Option<CpuShape> {
    let fits = |count: u32, limit: Option<u32>| limit.is_none_or(|most| count <= most);
    let met = |count: u32, requested: Option<u32>| u8::from(requested == Some(count));
    let divisors = |n: u32| (1..=n).filter(move |d| n.is_multiple_of(*d));
    divisors(vcpus)
        .flat_map(|sockets| {
            divisors(vcpus / sockets).map(move |cores| CpuShape {
                sockets,
                cores,
                threads: vcpus / sockets / cores,
            })
        })
        .filter(|shape| {
            fits(shape.sockets, limit[0])
                && fits(shape.cores, limit[1])
                && fits(shape.threads, limit[2])
        })
        .max_by_key(|shape| {
            let score = met(shape.sockets, requested[0])
                + met(shape.cores, requested[1])
                + met(shape.threads, requested[2]);
            (score, shape.sockets * shape.cores, shape.sockets)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the choice is Nova's. Method: a table, checked with `get_best_cpu_topology` of
    /// Nova 34.0.0.
    #[test]
    fn the_best_shape() {
        let some = |n: u32| (n > 0).then_some(n);
        for (vcpus, requested, limit, expected) in [
            (8, [0, 0, 0], [0, 0, 0], Some((8, 1, 1))),
            (8, [2, 0, 0], [0, 0, 0], Some((2, 4, 1))),
            (8, [2, 2, 2], [0, 0, 0], Some((2, 2, 2))),
            (8, [0, 0, 2], [0, 0, 0], Some((4, 1, 2))),
            (8, [3, 0, 0], [0, 0, 0], Some((8, 1, 1))),
            (8, [0, 0, 0], [2, 0, 0], Some((2, 4, 1))),
            (8, [0, 0, 0], [2, 2, 0], Some((2, 2, 2))),
            (8, [4, 2, 2], [0, 0, 0], Some((4, 2, 1))),
            (7, [0, 0, 0], [2, 2, 2], None),
            (1, [0, 0, 0], [1, 1, 1], Some((1, 1, 1))),
        ] {
            let found = best(vcpus, requested.map(some), limit.map(some));
            let found = found.map(|s| (s.sockets, s.cores, s.threads));
            assert_eq!(found, expected, "{vcpus} {requested:?} {limit:?}");
        }
    }
}
