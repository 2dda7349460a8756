//! The best move off a host: every guest of it to every other host, by arithmetic; those that may be
//! the best by the exact fit.
//!
//! Invariant: what [`best`] returns is the best, by the exact fit, of all moves that gain more than
//! the minimum, of equal ones the first; nothing means that there is none.

use std::collections::BTreeMap;

use berth_domain::constraint::Demand;
use berth_domain::server_group::GroupPolicy;

use super::aim::Aim;
use super::cluster_model::ClusterModel;
use super::policy::Options;

/// More than is lost in rounding a score.
const SLACK: f64 = 1e-12;

/// A move that could be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) piece: usize,
    pub(super) to: usize,
    /// What it gains by host, less its cost.
    pub(super) net: f64,
    /// Its cost in the same measure.
    pub(super) cost: f64,
}

/// Moves that were refused by others: by piece and place, after how many moves.
pub(super) type Refused = BTreeMap<(usize, usize), usize>;

/// Returns the best move off a host that gains more than `floor` by host.
pub(super) fn best(
    model: &mut ClusterModel<'_>,
    options: &Options,
    refused: &Refused,
    source: usize,
    floor: f64,
) -> Option<Candidate> {
    if !model.columns.can_leave[source] {
        return None;
    }
    let mut best = None;
    for at in 0..model.lodgers[source].len() {
        let piece = model.lodgers[source][at];
        let mut search = Search::new(model, options, refused, piece, floor, best);
        let bounds = search.bounds();
        // The one that looks best first, so that few of the others do look better.
        let lowest = bounds.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
        if let Some((to, bound)) = lowest {
            search.try_host(to, *bound);
        }
        for (to, bound) in bounds.iter().enumerate() {
            search.try_host(to, *bound);
        }
        best = search.best;
        model.bounds = bounds;
    }
    best
}

/// The search of a host for one guest.
struct Search<'a, 'f> {
    model: &'a mut ClusterModel<'f>,
    options: &'a Options,
    refused: &'a Refused,
    piece: usize,
    source: usize,
    demand: Demand,
    aim: Aim,
    is_flexible: bool,
    /// The only host that may be looked at.
    only: Option<usize>,
    scale: f64,
    /// What sending its memory costs.
    cost: f64,
    floor: f64,
    best: Option<Candidate>,
    /// The score that has to be beaten.
    below: f64,
}

impl<'a, 'f> Search<'a, 'f> {
    fn new(
        model: &'a mut ClusterModel<'f>,
        options: &'a Options,
        refused: &'a Refused,
        piece: usize,
        floor: f64,
        best: Option<Candidate>,
    ) -> Self {
        let outbound = model.outbound(piece);
        let aim = Aim::new(&model.gauge, &outbound, &model.pieces[piece]);
        let guest = model.pieces[piece].guest.clone();
        let demand = model.fleet.demand(&guest).into_owned();
        let cost = cost(options, model.pieces[piece].memory_mib);
        let mut search = Self {
            source: model.pieces[piece].at,
            is_flexible: model.pieces[piece].is_flexible,
            only: only_place(model, &demand),
            scale: scale(model),
            model,
            options,
            refused,
            piece,
            demand,
            aim,
            cost,
            floor,
            best,
            below: 0.0,
        };
        search.raise();
        search
    }

    /// Works out the score that has to be beaten.
    fn raise(&mut self) {
        let reached = self.best.map_or(self.floor, |best| best.net);
        self.below = self.model.gauge.now - (reached + self.cost) / self.scale;
    }

    fn bounds(&mut self) -> Vec<f64> {
        let mut bounds = std::mem::take(&mut self.model.bounds);
        self.aim.bounds(&self.model.columns, &mut bounds);
        bounds
    }

    /// Takes note of a host, if it is the best so far.
    #[inline]
    fn try_host(&mut self, to: usize, bound: f64) {
        // In case of doubt it is looked at: the bound is rounded, too.
        if self.is_flexible
            || bound < self.below + SLACK
                && self.aim.total(&self.model.columns, to) < self.below + SLACK
        {
            self.look_at(to);
        }
    }

    fn look_at(&mut self, to: usize) {
        let is_out = to == self.source
            || !self.model.columns.is_open[to]
            || self.only.is_some_and(|only| only != to)
            || self.refused.contains_key(&(self.piece, to));
        if is_out {
            return;
        }
        let Some(inbound) = self
            .model
            .inbound(self.piece, to, &self.demand, self.options.cells)
        else {
            return;
        };
        let outbound = self.model.outbound(self.piece);
        let total = self.model.gauge.total_with(&outbound, &inbound);
        let views = self.model.fleet.views();
        let (from, there) = (&views[self.source], &views[to]);
        let sent_mib = self.model.pieces[self.piece].sent_mib(from, there);
        let cost = cost(self.options, sent_mib);
        let net = (self.model.gauge.now - total) * self.scale - cost;
        if net > self.best.map_or(self.floor, |best| best.net) {
            self.best = Some(Candidate {
                piece: self.piece,
                to,
                net,
                cost,
            });
            self.raise();
        }
    }
}

/// Returns the only host that a hard affinity leaves; where it leaves none, one that is not there.
fn only_place(model: &ClusterModel<'_>, demand: &Demand) -> Option<usize> {
    let group = demand.group.as_ref()?;
    match group.policy {
        GroupPolicy::Affinity if group.is_separated => None,
        GroupPolicy::Affinity => {
            let mut hosts = group.hosts.keys();
            let first = hosts.next()?;
            let only = hosts.next().is_none().then_some(first);
            let place = only.and_then(|host| model.fleet.place(host));
            Some(place.unwrap_or(usize::MAX))
        }
        GroupPolicy::AntiAffinity | GroupPolicy::SoftAffinity | GroupPolicy::SoftAntiAffinity => {
            None
        }
    }
}

/// Returns what a gain is multiplied with to be one by host.
pub(super) fn scale(model: &ClusterModel<'_>) -> f64 {
    model.metric.online().max(1) as f64
}

fn cost(options: &Options, sent_mib: u64) -> f64 {
    options.cost_per_gib * (sent_mib as f64 / 1024.0)
}
