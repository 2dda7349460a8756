//! What the conductor says of where the time of a migration went, as it says it: one event of its
//! log for each.

use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// What the conductor's line is called.
pub(crate) const TARGET: &str = "berth::phases";

/// Before the hypervisor's transfer, in it and after it, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Phases {
    prepare: Option<u64>,
    transfer: Option<u64>,
    settle: Option<u64>,
}

impl Visit for Phases {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "prepare_us" => self.prepare = Some(value),
            "transfer_us" => self.transfer = Some(value),
            "settle_us" => self.settle = Some(value),
            _ => {}
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

/// Gathers what is said. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Phases>>>);

impl<S: Subscriber> Layer<S> for Heard {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut phases = Phases::default();
        event.record(&mut phases);
        self.lock().push(phases);
    }
}

impl Heard {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Phases>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints what was heard since the last time.
    pub(crate) fn print(&self) {
        let all = std::mem::take(&mut *self.lock());
        println!(
            "{:<36} {:>8} {:>8} {:>8}   of {} migrations",
            "milliseconds",
            "p50",
            "p99",
            "max",
            all.len()
        );
        type Part = fn(&Phases) -> Option<u64>;
        let parts: [(&str, Part); 4] = [
            ("asked until the transfer begins", |p| p.prepare),
            ("the hypervisor's transfer", |p| p.transfer),
            ("its end until ACTIVE is recorded", |p| p.settle),
            ("control plane: first and third", |p| {
                Some(p.prepare? + p.settle?)
            }),
        ];
        for (what, part) in parts {
            let mut times: Vec<u64> = all.iter().filter_map(part).collect();
            times.sort_unstable();
            let Some(last) = times.len().checked_sub(1) else {
                continue;
            };
            let at = |share: usize| times[last * share / 100] as f64 / 1000.0;
            println!(
                "{what:<36} {:>8.1} {:>8.1} {:>8.1}",
                at(50),
                at(99),
                at(100)
            );
        }
    }
}
