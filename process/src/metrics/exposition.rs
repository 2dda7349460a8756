//! The values of one scrape, and their text.
//!
//! Two formats: `OpenMetrics`, and the older text format of Prometheus for clients that accept nothing
//! else (`promtool check metrics` among them). They differ in the names of counters' families and in the
//! end.
//!
//! Invariant: all series of a metric are together, each has all labels of its definition, and no two have
//! the same values of them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::registry::Registry;

use super::counters::Distribution;
use super::definition::{Definition, Kind};

/// The content type of `OpenMetrics`.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of the older text format.
pub const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(u64),
    /// Any other number.
    Real(f64),
    /// How often values were within bounds.
    Distribution(Distribution),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::Whole(value as u64)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<std::time::Duration> for Value {
    fn from(value: std::time::Duration) -> Self {
        Self::Real(value.as_secs_f64())
    }
}

impl From<Distribution> for Value {
    fn from(value: Distribution) -> Self {
        Self::Distribution(value)
    }
}

/// A label and its value.
type Label = (&'static str, Cow<'static, str>);

/// A metric with its series.
#[derive(Debug)]
struct Family {
    definition: &'static Definition,
    series: Vec<(Vec<Label>, Value)>,
}

/// The values of one scrape.
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<Family>,
}

impl Exposition {
    /// Adds a metric that has no series, if it has none yet: its type and its text are exposed.
    pub fn declare(&mut self, definition: &'static Definition) {
        self.family(definition);
    }

    /// Adds a series without labels.
    pub fn set(&mut self, definition: &'static Definition, value: impl Into<Value>) {
        self.add(definition, [], value);
    }

    /// Adds a series with these values of the labels, in the order of the definition.
    ///
    /// # Panics
    ///
    /// When the definition has another number of labels.
    pub fn add<const N: usize>(
        &mut self,
        definition: &'static Definition,
        labels: [&'static str; N],
        value: impl Into<Value>,
    ) {
        self.add_named(definition, labels.map(Cow::Borrowed), value);
    }

    /// As [`Self::add`], with values that are no constants of the program.
    ///
    /// # Panics
    ///
    /// When the definition has another number of labels.
    pub fn add_named<const N: usize>(
        &mut self,
        definition: &'static Definition,
        labels: [Cow<'static, str>; N],
        value: impl Into<Value>,
    ) {
        assert_eq!(definition.labels.len(), N, "labels of {}", definition.name);
        let labels = definition.labels.iter().copied().zip(labels).collect();
        self.family(definition).series.push((labels, value.into()));
    }

    fn family(&mut self, definition: &'static Definition) -> &mut Family {
        // Values of one metric usually come one after the other.
        let known = self
            .families
            .iter()
            .rposition(|family| family.definition.name == definition.name);
        let at = known.unwrap_or_else(|| {
            self.families.push(Family {
                definition,
                series: Vec::new(),
            });
            self.families.len() - 1
        });
        &mut self.families[at]
    }

    /// Returns how many lines with values there are.
    #[must_use]
    pub fn series(&self) -> usize {
        let series = self.families.iter().flat_map(|family| &family.series);
        series
            .map(|(_, value)| match value {
                Value::Whole(_) | Value::Real(_) => 1,
                Value::Distribution(distribution) => distribution.buckets.len() + 2,
            })
            .sum()
    }

    /// Returns the text in the format of `OpenMetrics`.
    #[must_use]
    pub fn to_open_metrics(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        let encoded = prometheus_client::encoding::text::encode(&mut text, &registry);
        encoded.expect("a string takes every text");
        text
    }

    /// Returns the text in the older format.
    #[must_use]
    pub fn to_classic(self) -> String {
        let families = self.families.iter();
        let definitions: HashMap<&str, &Definition> = families
            .map(|family| (family.definition.family(), family.definition))
            .collect();
        let mut classic = String::new();
        for line in self.to_open_metrics().lines() {
            if let Some(line) = to_classic_line(line, &definitions) {
                classic.push_str(&line);
                classic.push('\n');
            }
        }
        classic
    }
}

/// Returns a line in the older format; nothing for one that it does not have.
fn to_classic_line<'a>(
    line: &'a str,
    definitions: &HashMap<&str, &Definition>,
) -> Option<Cow<'a, str>> {
    let Some(comment) = line.strip_prefix("# ") else {
        return Some(line.into());
    };
    let (keyword, rest) = comment.split_once(' ')?;
    let (family, rest) = rest.split_once(' ')?;
    let definition = definitions.get(family)?;
    match keyword {
        "HELP" => Some(format!("# HELP {} {rest}", definition.name).into()),
        "TYPE" => {
            let kind = match definition.kind {
                Kind::Info => Kind::Gauge,
                Kind::Counter | Kind::Gauge | Kind::Histogram => definition.kind,
            };
            Some(format!("# TYPE {} {}", definition.name, kind.as_str()).into())
        }
        _ => None,
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in &self.families {
            let definition = family.definition;
            let (name, unit) = definition.family_and_unit();
            let kind = definition.kind.to_type();
            let mut metric =
                encoder.encode_descriptor(name, definition.help, unit.as_ref(), kind)?;
            for (labels, value) in &family.series {
                encode_series(&mut metric, definition.kind, labels, value)?;
            }
        }
        Ok(())
    }
}

fn encode_series(
    metric: &mut MetricEncoder<'_>,
    kind: Kind,
    labels: &Vec<Label>,
    value: &Value,
) -> Result<(), fmt::Error> {
    if kind == Kind::Info {
        return metric.encode_info(labels);
    }
    match labels.is_empty() {
        true => encode_value(metric, kind, value),
        false => encode_value(&mut metric.encode_family(labels)?, kind, value),
    }
}

fn encode_value(
    metric: &mut MetricEncoder<'_>,
    kind: Kind,
    value: &Value,
) -> Result<(), fmt::Error> {
    match (value, kind) {
        (Value::Whole(value), Kind::Counter) => {
            metric.encode_counter::<NoLabelSet, u64, u64>(value, None)
        }
        (Value::Real(value), Kind::Counter) => {
            metric.encode_counter::<NoLabelSet, f64, f64>(value, None)
        }
        (Value::Whole(value), Kind::Gauge | Kind::Histogram | Kind::Info) => {
            metric.encode_gauge(&i64::try_from(*value).unwrap_or(i64::MAX))
        }
        (Value::Real(value), Kind::Gauge | Kind::Histogram | Kind::Info) => {
            metric.encode_gauge(value)
        }
        (Value::Distribution(distribution), _) => metric.encode_histogram::<NoLabelSet>(
            distribution.sum_seconds,
            distribution.count(),
            &distribution.buckets,
            None,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Bounds, Durations};
    use std::time::Duration;

    static COUNTER: Definition = Definition::counter("a_things_total", &["of"], "Things.");
    static GAUGE: Definition = Definition::gauge("a_size_bytes", &[], "Size.");
    static TIME: Definition = Definition::histogram("a_time_seconds", &[], "Time.");
    static INFO: Definition = Definition::info("a_build_info", &["version"], "Build.");
    static NONE: Definition = Definition::gauge("a_none", &[], "Nothing.");

    fn exposition() -> Exposition {
        let mut out = Exposition::default();
        out.add(&COUNTER, ["x"], 3_u64);
        out.set(&GAUGE, 1.5);
        // The series of one metric are together in whatever order they come.
        out.add(&COUNTER, ["y"], 4_u64);
        out.add(&INFO, ["1"], 1_u64);
        out.declare(&NONE);
        let durations = Durations::new(Bounds::LONG);
        durations.observe(Duration::from_millis(200));
        out.set(&TIME, durations.read());
        out
    }

    #[test]
    fn open_metrics_name_families_and_units() {
        let out = exposition();
        assert_eq!(out.series(), 4 + 16);
        let text = out.to_open_metrics();
        let begin = "# HELP a_things Things.\n# TYPE a_things counter\n\
                     a_things_total{of=\"x\"} 3\na_things_total{of=\"y\"} 4\n\
                     # HELP a_size_bytes Size.\n# TYPE a_size_bytes gauge\n# UNIT a_size_bytes bytes\n\
                     a_size_bytes 1.5\n\
                     # HELP a_build Build.\n# TYPE a_build info\na_build_info{version=\"1\"} 1\n\
                     # HELP a_none Nothing.\n# TYPE a_none gauge\n";
        assert!(text.starts_with(begin), "{text}");
        for line in [
            "a_time_seconds_bucket{le=\"0.1\"} 0\n",
            "a_time_seconds_bucket{le=\"0.25\"} 1\n",
            "a_time_seconds_bucket{le=\"+Inf\"} 1\n",
            "a_time_seconds_sum 0.2\n",
            "a_time_seconds_count 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn the_older_format_names_what_its_lines_are_called() {
        let text = exposition().to_classic();
        let begin = "# HELP a_things_total Things.\n# TYPE a_things_total counter\n\
                     a_things_total{of=\"x\"} 3\na_things_total{of=\"y\"} 4\n\
                     # HELP a_size_bytes Size.\n# TYPE a_size_bytes gauge\na_size_bytes 1.5\n\
                     # HELP a_build_info Build.\n# TYPE a_build_info gauge\n\
                     a_build_info{version=\"1\"} 1\n";
        assert!(text.starts_with(begin), "{text}");
        assert!(!text.contains("EOF") && !text.contains("UNIT"), "{text}");
    }
}
