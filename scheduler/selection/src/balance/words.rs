//! A move in words.

use std::sync::Arc;

use berth_domain::numa::Assignment;

use super::best::{Candidate, scale};
use super::cluster_model::ClusterModel;
use super::metric::{CPU_HOLES, MEMORY, N1, NAMES, OFFLINE_ALL, PAGE_HOLES, Standing};
use super::plan::Move;
use crate::fleet::FleetGuest;

/// What each resource is called.
const CALLED: [&str; N1] = [
    "memory",
    "disk",
    "shared CPUs",
    "dedicated CPUs",
    "memory really held",
    "pages of 2 MiB",
    "pages of 1 GiB",
];

/// What was before a move.
pub(super) struct Before {
    guest: Arc<FleetGuest>,
    from: usize,
    to: usize,
    source: Standing,
    target: Standing,
    total: f64,
    values: [f64; NAMES.len()],
}

impl Before {
    /// Takes note of what is before a guest moves.
    pub(super) fn of(model: &ClusterModel<'_>, piece: usize, to: usize) -> Self {
        let from = model.pieces[piece].at;
        Self {
            guest: Arc::clone(&model.pieces[piece].guest),
            from,
            to,
            source: model.standings[from],
            target: model.standings[to],
            total: model.metric.total(),
            values: model.gauge.values,
        }
    }

    /// Returns the move, which the model has followed.
    pub(super) fn into_move(
        self,
        model: &ClusterModel<'_>,
        candidate: &Candidate,
        assignment: Assignment,
    ) -> Move {
        let views = model.fleet.views();
        let (from, to) = (&views[self.from].host, &views[self.to].host);
        let score_after = model.metric.total();
        let at = self.main_component(model);
        let how = self.how(at);
        let why = format!(
            "from {} ({}) to {} ({}): score {:.4} -> {score_after:.4}, {} by host, mostly {}",
            from.name,
            how.0,
            to.name,
            how.1,
            self.total,
            gained((self.total - score_after) * scale(model)),
            NAMES[at]
        );
        Move {
            vm: self.guest.vm.clone(),
            from: from.name.clone(),
            to: to.name.clone(),
            assignment,
            sent_mib: model.pieces[candidate.piece].sent_mib(&views[self.from], &views[self.to]),
            cost: candidate.cost,
            score_before: self.total,
            score_after,
            component: NAMES[at],
            why,
            set: 0,
        }
    }

    /// Returns the component that says most of the difference; of equal ones the first.
    fn main_component(&self, model: &ClusterModel<'_>) -> usize {
        let gained = |at: usize| {
            let weight = model.metric.weight(at);
            weight * (self.values[at] - model.gauge.values[at])
        };
        let mut main = 0;
        for at in 1..NAMES.len() {
            if gained(at) > gained(main) {
                main = at;
            }
        }
        main
    }

    /// Returns how the two hosts stood in what that component is about.
    fn how(&self, component: usize) -> (String, String) {
        match component {
            CPU_HOLES => (
                holes("CPUs", self.source.cpus.broken),
                holes("CPUs", self.target.cpus.broken),
            ),
            PAGE_HOLES => (
                holes("MiB of huge pages", self.source.pages.broken),
                holes("MiB of huge pages", self.target.pages.broken),
            ),
            OFFLINE_ALL.. => (
                "guests are to leave it".to_owned(),
                part(&self.target, MEMORY),
            ),
            lane => {
                let lane = if lane < N1 { lane } else { MEMORY };
                (part(&self.source, lane), part(&self.target, lane))
            }
        }
    }
}

fn gained(amount: f64) -> String {
    format!("{amount:.3}")
}

fn holes(what: &str, broken: i64) -> String {
    format!("{broken} free {what} in cells that are begun")
}

fn part(standing: &Standing, lane: usize) -> String {
    let called = CALLED[lane];
    match standing.part(lane) {
        Some(part) => format!("{called} {:.0} %", part * 100.0),
        None => format!("no {called}"),
    }
}
