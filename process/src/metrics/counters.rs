//! What is counted while a program works: relaxed atomic numbers, in arrays by label.
//!
//! Not here: what is read only at a scrape, as the size of a queue.
//!
//! Invariant: counting takes no lock, allocates nothing and searches for no name. A label is an index into
//! a closed set, so that the number of series is bounded by the type.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::definition::Definition;
use super::exposition::Exposition;

/// A closed set of values of a label.
pub trait Label: Copy + 'static {
    /// All values, each at its index.
    const ALL: &'static [Self];

    /// Returns the position in [`Self::ALL`].
    fn index(self) -> usize;

    /// Returns it as text.
    fn as_str(self) -> &'static str;
}

/// Declares an enum as a closed set of values of a label, each with its text.
#[macro_export]
macro_rules! label {
    ($(#[$about:meta])* $visible:vis enum $name:ident { $($(#[$doc:meta])* $value:ident = $text:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum $name { $($(#[$doc])* $value),+ }

        impl $crate::metrics::Label for $name {
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn index(self) -> usize {
                self as usize
            }

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text),+
                }
            }
        }
    };
}

/// A count.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Counts one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts so many.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Counts one less: for what goes up and down.
    pub fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Replaces the number.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Returns the number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn zeros(count: usize) -> Box<[Count]> {
    (0..count).map(|_| Count::default()).collect()
}

/// A count for each value of a label.
#[derive(Debug)]
pub struct Counts<A> {
    counts: Box<[Count]>,
    label: PhantomData<A>,
}

impl<A: Label> Default for Counts<A> {
    fn default() -> Self {
        Self {
            counts: zeros(A::ALL.len()),
            label: PhantomData,
        }
    }
}

impl<A: Label> Counts<A> {
    /// Returns the count of a value.
    #[must_use]
    pub fn of(&self, value: A) -> &Count {
        &self.counts[value.index()]
    }

    /// Adds a series for each value to the exposition.
    pub fn expose(&self, definition: &'static Definition, out: &mut Exposition) {
        for (value, count) in A::ALL.iter().zip(&self.counts) {
            out.add(definition, [value.as_str()], count.get());
        }
    }
}

/// A count for each pair of values of two labels.
#[derive(Debug)]
pub struct Pairs<A, B> {
    counts: Box<[Count]>,
    labels: PhantomData<(A, B)>,
}

impl<A: Label, B: Label> Default for Pairs<A, B> {
    fn default() -> Self {
        Self {
            counts: zeros(A::ALL.len() * B::ALL.len()),
            labels: PhantomData,
        }
    }
}

impl<A: Label, B: Label> Pairs<A, B> {
    /// Returns the count of a pair.
    #[must_use]
    pub fn of(&self, a: A, b: B) -> &Count {
        &self.counts[a.index() * B::ALL.len() + b.index()]
    }

    /// Adds a series for each pair to the exposition.
    pub fn expose(&self, definition: &'static Definition, out: &mut Exposition) {
        for a in A::ALL {
            for b in B::ALL {
                let count = self.of(*a, *b).get();
                out.add(definition, [a.as_str(), b.as_str()], count);
            }
        }
    }
}

impl<A: Label, B: Label> Pairs<A, B> {
    /// As [`Self::expose`], without pairs that never occurred.
    pub fn expose_nonzero(&self, definition: &'static Definition, out: &mut Exposition) {
        out.declare(definition);
        for a in A::ALL {
            for b in B::ALL {
                let count = self.of(*a, *b).get();
                if count > 0 {
                    out.add(definition, [a.as_str(), b.as_str()], count);
                }
            }
        }
    }
}

/// The upper bounds of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds(&'static [u64]);

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;

impl Bounds {
    /// For what takes from 100 microseconds to 10 seconds, as a request.
    pub const SHORT: Self = Self(&[
        100 * US,
        250 * US,
        500 * US,
        MS,
        5 * MS / 2,
        5 * MS,
        10 * MS,
        25 * MS,
        50 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        5 * S / 2,
        10 * S,
    ]);
    /// For what takes from a tenth of a second to hours, as an operation.
    pub const LONG: Self = Self(&[
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        5 * S / 2,
        5 * S,
        10 * S,
        30 * S,
        60 * S,
        300 * S,
        900 * S,
        3_600 * S,
        14_400 * S,
    ]);
}

/// How long things took.
#[derive(Debug)]
pub struct Durations {
    bounds: Bounds,
    /// One more than there are bounds: what took longer.
    buckets: Box<[Count]>,
    /// Of 584 years at most.
    sum_ns: Count,
}

impl Durations {
    /// Returns a histogram of nothing.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            buckets: zeros(bounds.0.len() + 1),
            sum_ns: Count::default(),
        }
    }

    /// Counts a duration.
    pub fn observe(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let at = self.bounds.0.iter().position(|bound| ns <= *bound);
        self.buckets[at.unwrap_or(self.bounds.0.len())].increment();
        self.sum_ns.add(ns);
    }

    /// Returns what was counted. While it is read more may be counted, which may be in the sum alone.
    #[must_use]
    pub fn read(&self) -> Distribution {
        let bounds = self.bounds.0.iter().map(|ns| seconds(*ns));
        let counts = self.buckets.iter().map(Count::get);
        Distribution {
            // What the encoder writes as infinity.
            buckets: bounds.chain([f64::MAX]).zip(counts).collect(),
            sum_seconds: seconds(self.sum_ns.get()),
        }
    }
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

/// What a histogram has counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// The upper bound of each bucket, and how often a value was in it and in none before.
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum_seconds: f64,
}

impl Distribution {
    /// Returns how many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

/// A histogram for each value of a label.
#[derive(Debug)]
pub struct DurationsBy<A> {
    durations: Box<[Durations]>,
    label: PhantomData<A>,
}

impl<A: Label> DurationsBy<A> {
    /// Returns histograms of nothing.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            durations: A::ALL.iter().map(|_| Durations::new(bounds)).collect(),
            label: PhantomData,
        }
    }

    /// Returns the histogram of a value.
    #[must_use]
    pub fn of(&self, value: A) -> &Durations {
        &self.durations[value.index()]
    }

    /// As [`Self::expose`], without values of which nothing was counted.
    pub fn expose_nonempty(&self, definition: &'static Definition, out: &mut Exposition) {
        out.declare(definition);
        for (value, durations) in A::ALL.iter().zip(&self.durations) {
            let read = durations.read();
            if read.count() > 0 {
                out.add(definition, [value.as_str()], read);
            }
        }
    }

    /// Adds a histogram for each value to the exposition.
    pub fn expose(&self, definition: &'static Definition, out: &mut Exposition) {
        for (value, durations) in A::ALL.iter().zip(&self.durations) {
            out.add(definition, [value.as_str()], durations.read());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::label! {
        enum Fruit { Apple = "apple", Pear = "pear" }
    }

    #[test]
    fn pairs_are_counted_apart() {
        let pairs = Pairs::<Fruit, Fruit>::default();
        for (index, (a, b)) in Fruit::ALL
            .iter()
            .flat_map(|a| Fruit::ALL.iter().map(move |b| (*a, *b)))
            .enumerate()
        {
            pairs.of(a, b).add(index as u64 + 1);
        }
        let read = |a, b| pairs.of(a, b).get();
        assert_eq!(read(Fruit::Apple, Fruit::Apple), 1);
        assert_eq!(read(Fruit::Apple, Fruit::Pear), 2);
        assert_eq!(read(Fruit::Pear, Fruit::Apple), 3);
        assert_eq!(read(Fruit::Pear, Fruit::Pear), 4);
    }

    #[test]
    fn a_duration_is_in_the_first_bucket_that_holds_it() {
        let durations = Durations::new(Bounds::SHORT);
        for ns in [0, 100_000, 100_001, 10_000_000_000, 10_000_000_001] {
            durations.observe(Duration::from_nanos(ns));
        }
        let read = durations.read();
        let counts: Vec<u64> = read.buckets.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts[..2], [2, 1]);
        assert_eq!(counts[counts.len() - 2..], [1, 1]);
        assert_eq!(read.count(), 5);
        assert!((read.sum_seconds - 20.000_200_002).abs() < 1e-9, "{read:?}");
    }
}
