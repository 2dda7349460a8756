//! The table of what is allowed, and its comparison with what was spent.

use std::collections::BTreeMap;

use crate::group::Spent;

/// By how many per cent a figure may be above the table.
const ABOVE_PERCENT: f64 = 3.0;
/// By how many per cent it may be below, before the table is to be lowered.
const BELOW_PERCENT: f64 = 8.0;

/// What was spent, by operation and figure: the sum, and of how many requests.
#[derive(Default)]
pub(crate) struct Figures {
    sums: BTreeMap<(String, String), u64>,
    requests: BTreeMap<String, u64>,
}

impl Figures {
    /// Adds what so many requests of an operation spent.
    pub(crate) fn add(&mut self, operation: &str, spent: &Spent, requests: usize) {
        *self.requests.entry(operation.to_owned()).or_default() += requests as u64;
        let figures = [
            ("commands", spent.commands),
            ("command_bytes", spent.command_bytes),
            ("row_bytes", spent.row_bytes),
            ("leader_decide_allocations", spent.decide.times),
            ("leader_decide_bytes", spent.decide.bytes),
            ("leader_commit_allocations", spent.commit.times),
            ("leader_commit_bytes", spent.commit.bytes),
            ("follower_allocations", spent.follow.times),
            ("follower_bytes", spent.follow.bytes),
        ];
        for (figure, value) in figures {
            self.record(operation, figure.to_owned(), value);
        }
        for (table, rows) in &spent.rows {
            self.record(operation, format!("rows_of_{table}"), *rows);
        }
    }

    fn record(&mut self, operation: &str, figure: String, value: u64) {
        *self.sums.entry((operation.to_owned(), figure)).or_default() += value;
    }

    /// Compares the means with the table.
    ///
    /// # Panics
    ///
    /// A figure is above its line by more than is tolerated, far below it, or in no line.
    pub(crate) fn compare(&self, allowed: &str) {
        let now = self.means();
        let now: Vec<_> = now
            .map(|(name, mean)| format!("{name} {mean:.1}"))
            .collect();
        let now = now.join("\n");
        println!("{now}");
        let faults = self.faults(allowed).join("\n");
        assert!(
            faults.is_empty(),
            "the price of decisions differs from tests/price/allowed.txt:\n{faults}\n\
             hint: find what costs more; where that is intended, put these figures there:\n{now}"
        );
    }

    fn means(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        self.sums.iter().map(|((operation, figure), sum)| {
            let mean = *sum as f64 / self.requests[operation] as f64;
            (format!("{operation} {figure}"), mean)
        })
    }

    /// Returns what differs from the table by more than is tolerated.
    fn faults(&self, allowed: &str) -> Vec<String> {
        let mut allowed = read(allowed);
        let mut faults = Vec::new();
        for (name, mean) in self.means() {
            let Some(allowed) = allowed.remove(&name) else {
                faults.push(format!("{name}: {mean:.1}, and the table has no such line"));
                continue;
            };
            let percent = (mean / allowed - 1.0) * 100.0;
            let fault = if percent > ABOVE_PERCENT {
                format!("{percent:.1} % above {allowed}")
            } else if percent < -BELOW_PERCENT {
                format!("{:.1} % below {allowed}: lower the line", -percent)
            } else {
                continue;
            };
            faults.push(format!("{name}: {mean:.1} is {fault}"));
        }
        let unknown = allowed.keys();
        faults.extend(unknown.map(|name| format!("{name}: nothing is measured under this name")));
        faults
    }
}

fn read(allowed: &str) -> BTreeMap<String, f64> {
    let lines = allowed.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a figure");
            (name.to_owned(), value.parse().expect("a figure"))
        })
        .collect()
}

/// Goal: a figure that is too high, far too low, or in no line is a fault, and so is a line without a
/// figure. Method: one request of a hundred rows, against tables around that.
#[test]
fn what_differs_from_the_table_is_a_fault() {
    let mut figures = Figures::default();
    figures.requests.insert("boot".to_owned(), 1);
    figures.record("boot", "rows".to_owned(), 100);
    let faults = |allowed: &str| figures.faults(allowed).len();
    for (allowed, expected) in [
        ("# rows\nboot rows 100.0\n", 0),
        ("boot rows 98", 0),
        ("boot rows 108", 0),
        ("boot rows 97", 1),
        ("boot rows 109", 1),
        ("", 1),
        ("boot rows 100\nboot bytes 1", 1),
        ("boot bytes 1", 2),
    ] {
        assert_eq!(faults(allowed), expected, "{allowed}");
    }
}
