//! What a metric is: its name, its type, its labels, and a sentence about it.
//!
//! Not here: values ([`super::exposition`]).
//!
//! Invariant: a name is written once, as it is in the exposition, so that a search for it leads here. The
//! unit is its end, and a counter ends with `_total`.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while the process runs.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How often values were within bounds.
    Histogram,
    /// Its labels are the information, and its value is 1.
    Info,
}

impl Kind {
    /// Returns its name in the exposition and in the document.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    pub(super) fn to_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
            Self::Histogram => MetricType::Histogram,
            Self::Info => MetricType::Info,
        }
    }

    /// Returns what its name ends with besides the name of its family.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// A metric.
#[derive(Debug)]
pub struct Definition {
    /// Its whole name, as `berth_decisions_total`.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The names of its labels, in the order in which values are given.
    pub labels: &'static [&'static str],
    /// What it is, as a sentence.
    pub help: &'static str,
}

impl Definition {
    /// Defines a counter.
    #[must_use]
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, Kind::Counter, labels, help)
    }

    /// Defines a gauge.
    #[must_use]
    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, Kind::Gauge, labels, help)
    }

    /// Defines a histogram.
    #[must_use]
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, Kind::Histogram, labels, help)
    }

    /// Defines information.
    #[must_use]
    pub const fn info(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self::new(name, Kind::Info, labels, help)
    }

    const fn new(
        name: &'static str,
        kind: Kind,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            labels,
            help,
        }
    }

    /// Returns the name of its family: that without what a counter or information ends with.
    #[must_use]
    pub fn family(&self) -> &'static str {
        let name = self.name;
        name.strip_suffix(self.kind.suffix()).unwrap_or(name)
    }

    /// Returns the name of its family without the unit, and the unit.
    pub(super) fn family_and_unit(&self) -> (&'static str, Option<Unit>) {
        let family = self.family();
        for unit in [Unit::Seconds, Unit::Bytes] {
            let bare = family.strip_suffix(unit.as_str());
            if let Some(bare) = bare.and_then(|bare| bare.strip_suffix('_')) {
                return (bare, Some(unit));
            }
        }
        (family, None)
    }

    /// Returns its unit, as `seconds`.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        match self.family_and_unit().1? {
            Unit::Seconds => Some("seconds"),
            Unit::Bytes => Some("bytes"),
            Unit::Amperes
            | Unit::Celsius
            | Unit::Grams
            | Unit::Joules
            | Unit::Meters
            | Unit::Ratios
            | Unit::Volts
            | Unit::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_units_follow_from_names() {
        let check = |definition: Definition, family: &str, unit: Option<&str>| {
            assert_eq!((definition.family(), definition.unit()), (family, unit));
        };
        check(Definition::counter("a_b_total", &[], "B."), "a_b", None);
        let name = "a_cpu_seconds_total";
        check(
            Definition::counter(name, &[], "C."),
            "a_cpu_seconds",
            Some("seconds"),
        );
        check(
            Definition::gauge("a_bytes", &[], "D."),
            "a_bytes",
            Some("bytes"),
        );
        check(Definition::info("a_info", &[], "E."), "a", None);
        check(
            Definition::gauge("a_kilobytes", &[], "F."),
            "a_kilobytes",
            None,
        );
    }
}
