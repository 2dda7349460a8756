//! How well guests are spread over the hosts of a state, and which moves would improve it.
//!
//! Pure. Live signals of hosts are given by the caller: they are not part of the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::constraint::Demand;
use berth_domain::fault;
use berth_domain::host_view::HostView;
use berth_domain::name::{FlavorName, HostName};
use berth_domain::policy::Admission;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::ResourceClass;
use berth_selection::balance::defragment::{
    Budget as DefragmentBudget, Goal, Verdict as Headroom, Way, defragment,
};
use berth_selection::balance::{
    Admit, Guard, Metric, Options, Plan, Proposal, Score, Signals, Standing, Threshold, Weights,
    plan,
};
use berth_selection::failover::{Budget, Domain, Verdict, evaluate};
use berth_selection::fleet::Fleet;
use berth_state::State;

use super::capacity::spec_of;
use super::fleet::{Purpose, fleet_of};

/// The memory that guests really occupy on each host, in MiB, as reported by the agents.
pub type Live = BTreeMap<HostName, u64>;

/// The parameters of a plan; absent ones follow from the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BalanceParams {
    /// Minimum gain of a move.
    pub gain_min: Option<f64>,
    /// Score below which nothing is moved.
    pub threshold: Option<f64>,
    /// Usage of the fullest host below which nothing is moved.
    pub usage: f64,
    /// Maximum number of moves; 0 for no limit.
    pub moves_max: u32,
}

/// Returns how well the guests are spread.
///
/// # Errors
///
/// The state contradicts itself.
pub fn score(state: &State, live: &Live) -> Result<Score, Refusal> {
    let fleet = fleet_of(state, Purpose::Balance)?;
    Ok(score_of(&fleet, live))
}

/// Plans the moves that spread them better.
///
/// # Errors
///
/// The parameters are invalid; the state is inconsistent.
pub fn plan_balance(state: &State, live: Live, params: &BalanceParams) -> Result<Plan, Refusal> {
    let mut fleet = fleet_of(state, Purpose::Balance)?;
    let options = options(state, &fleet, live, params)?;
    if state.policy().failover.admission == Admission::Off {
        return Ok(plan(&mut fleet, &options, None));
    }
    let mut proofs = Proofs::of(state)?;
    let mut admit = |fleet: &mut Fleet, proposal: &Proposal| proofs.admit(fleet, proposal);
    let admit: &mut Admit<'_> = &mut admit;
    Ok(plan(&mut fleet, &options, Some(admit)))
}

/// Plans the moves that free capacity for `count` VMs of a flavor.
///
/// # Errors
///
/// The flavor is unknown; the capacity cannot be freed, or no plan was found.
pub fn plan_headroom(
    state: &State,
    flavor: &FlavorName,
    count: usize,
) -> Result<HeadroomPlan, Refusal> {
    let spec = spec_of(state, flavor)?;
    let demand = state.with_cpu(Demand::boot(&spec)?)?;
    let mut fleet = fleet_of(state, Purpose::Balance)?;
    let goal = Goal {
        demand: &demand,
        count,
        cells: state.policy().cells,
    };
    let verdict = defragment(&mut fleet, &goal, DefragmentBudget::default());
    let summary = verdict.to_string();
    let Headroom::Possible(way) = verdict else {
        let message = format!("cannot free capacity for {count} of flavor {flavor}: {summary}");
        let refusal = Refusal::new(Code::ResourceExhausted, "NO_ROOM_CAN_BE_MADE", message);
        return Err(refusal.with("flavor", flavor));
    };
    let mut proofs = match state.policy().failover.admission {
        Admission::Off => None,
        Admission::Warn | Admission::Refuse => Some(Proofs::of(state)?),
    };
    let before = score_of(&fleet, &Live::new());
    let mut scores = Vec::new();
    for step in &way.moves {
        let to = fleet.place(&step.to);
        let to = to.ok_or_else(|| Refusal::not_found("host", &step.to))?;
        let from = fleet.place(&step.from);
        let from = from.ok_or_else(|| Refusal::not_found("host", &step.from))?;
        fleet.shift(&step.vm, to, step.assignment.clone());
        let vm = step.vm.clone();
        let proposal = Proposal { vm, from, to };
        if let Some(Err(why)) = proofs.as_mut().map(|p| p.admit(&fleet, &proposal)) {
            let message = format!("cannot free capacity without breaking a failover proof: {why}");
            let refusal = Refusal::new(Code::ResourceExhausted, "NO_ROOM_CAN_BE_MADE", message);
            return Err(refusal.with("flavor", flavor));
        }
        scores.push(score_of(&fleet, &Live::new()));
    }
    Ok(HeadroomPlan {
        way,
        before,
        scores,
        summary,
    })
}

/// A plan that frees capacity.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadroomPlan {
    /// The moves, and the hosts with the freed capacity.
    pub way: Way,
    /// The score before them.
    pub before: Score,
    /// The score after each of them.
    pub scores: Vec<Score>,
    /// The plan as text.
    pub summary: String,
}

fn score_of(fleet: &Fleet, live: &Live) -> Score {
    let mut metric = Metric::new(weights(fleet), None);
    for (at, view) in fleet.views().iter().enumerate() {
        let guests = fleet.guests_at(at).count();
        let signal = live.get(&view.host.name).copied();
        metric.add(&Standing::of(view, guests, signal));
    }
    metric.score()
}

fn options(
    state: &State,
    fleet: &Fleet,
    live: Live,
    params: &BalanceParams,
) -> Result<Options, Refusal> {
    let policy = &state.policy().balance;
    let milli = |milli: u32| f64::from(milli) / 1000.0;
    let score = policy.threshold_milli.map_or(0.0, milli);
    let defaults = Options::default();
    let options = Options {
        weights: weights(fleet),
        signals: Signals {
            live_mib: live,
            n1_cnt: None,
        },
        cells: state.policy().cells,
        gain_min: params.gain_min.unwrap_or(milli(policy.gain_min_milli)),
        threshold: Threshold {
            score: params.threshold.unwrap_or(score),
            usage: params.usage,
        },
        moves_max: match params.moves_max {
            0 => defaults.moves_max,
            most => usize::try_from(most).unwrap_or(usize::MAX),
        },
        ..defaults
    };
    let faults = options.faults();
    match faults.is_empty() {
        true => Ok(options),
        false => Err(fault::refusal("balance", &faults)),
    }
}

/// Real memory usage weighs more the more memory is over-committed anywhere.
fn weights(fleet: &Fleet) -> Weights {
    let ratio = |view: &Arc<HostView>| {
        let memory = view.inventories.get(&ResourceClass::memory_mb());
        memory.map_or(1.0, |memory| memory.allocation_ratio.get())
    };
    let greatest = fleet.views().iter().map(ratio).fold(1.0, f64::max);
    Weights::at_ratio(greatest)
}

/// The failures that are survived as the moves of a plan are applied one by one. The demand of an
/// evacuation differs from that of a live migration, so it has a fleet of its own, in which the same
/// moves are applied.
struct Proofs {
    fleet: Fleet,
    guard: Guard,
}

impl Proofs {
    fn of(state: &State) -> Result<Self, Refusal> {
        let mut fleet = fleet_of(state, Purpose::Failover)?;
        let budget = Budget::default();
        let views = fleet.views().iter();
        let domains: Vec<Domain> = views.map(|view| Domain::host(&view.host.name)).collect();
        let verdicts = domains
            .iter()
            .map(|domain| evaluate(&mut fleet, domain, budget));
        let verdicts: Vec<Verdict> = verdicts.collect();
        let guard = Guard::new(domains.iter().zip(&verdicts), budget);
        Ok(Self { fleet, guard })
    }

    /// Checks that a move keeps every proof, and applies it if so.
    fn admit(&mut self, fleet: &Fleet, proposal: &Proposal) -> Result<(), String> {
        let vm = &proposal.vm;
        let moved = fleet.guest(vm).ok_or_else(|| format!("vm {vm} is gone"))?;
        let assignment = moved.claim.assignment.clone();
        let mark = self.fleet.mark();
        // Both fleets consist of the same hosts in the same order: the positions are the same.
        self.fleet.shift(vm, proposal.to, assignment);
        let admitted = self.guard.admit(&mut self.fleet, proposal);
        if admitted.is_err() {
            self.fleet.undo(mark);
        }
        admitted
    }
}
