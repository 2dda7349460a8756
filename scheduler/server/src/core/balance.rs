//! How well guests are spread over the hosts, and which moves would help, asked of a state.
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
    Budget as DefragmentBudget, Goal, Verdict as Room, Way, defragment,
};
use berth_selection::balance::{
    Admit, Guard, Metric, Options, Plan, Proposal, Score, Signals, Standing, Threshold, Weights,
    plan,
};
use berth_selection::failover::{Budget, Domain, Verdict, judge};
use berth_selection::fleet::Fleet;
use berth_state::State;

use super::capacity::spec_of;
use super::fleet::{Purpose, fleet_of};

/// What hosts say of their memory: what guests really hold there, in MiB.
pub type Live = BTreeMap<HostName, u64>;

/// What is asked of a plan; what is absent follows from the policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// What a move must gain.
    pub gain_min: Option<f64>,
    /// The score below which nothing is moved.
    pub threshold: Option<f64>,
    /// The share of the fullest host below which nothing is moved.
    pub usage: f64,
    /// The most moves; 0 for as many as help.
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
/// What is asked makes no sense; the state contradicts itself.
pub fn plan_balance(state: &State, live: Live, wanted: &Wanted) -> Result<Plan, Refusal> {
    let mut fleet = fleet_of(state, Purpose::Balance)?;
    let options = options(state, &fleet, live, wanted)?;
    if state.policy().failover.admission == Admission::Off {
        return Ok(plan(&mut fleet, &options, None));
    }
    let mut proofs = Proofs::of(state)?;
    let mut admit = |fleet: &mut Fleet, proposal: &Proposal| proofs.admit(fleet, proposal);
    let admit: &mut Admit<'_> = &mut admit;
    Ok(plan(&mut fleet, &options, Some(admit)))
}

/// Plans the moves that make room for so many VMs of a flavor.
///
/// # Errors
///
/// The flavor is not known; there can be no room, or no way to make it was found.
pub fn plan_room(state: &State, flavor: &FlavorName, count: usize) -> Result<Made, Refusal> {
    let spec = spec_of(state, flavor)?;
    let demand = Demand::boot(&spec)?;
    let mut fleet = fleet_of(state, Purpose::Balance)?;
    let goal = Goal {
        demand: &demand,
        count,
        cells: state.policy().cells,
    };
    let verdict = defragment(&mut fleet, &goal, DefragmentBudget::default());
    let told = verdict.to_string();
    let Room::Possible(way) = verdict else {
        let message = format!("no room can be made for {count} of flavor {flavor}: {told}");
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
            let message = format!("room could be made, but not without breaking a proof: {why}");
            let refusal = Refusal::new(Code::ResourceExhausted, "NO_ROOM_CAN_BE_MADE", message);
            return Err(refusal.with("flavor", flavor));
        }
        scores.push(score_of(&fleet, &Live::new()));
    }
    Ok(Made {
        way,
        before,
        scores,
        told,
    })
}

/// How room is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// The moves, and where there is room then.
    pub way: Way,
    /// The score before them.
    pub before: Score,
    /// The score after each of them.
    pub scores: Vec<Score>,
    /// All of it in words.
    pub told: String,
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

fn options(state: &State, fleet: &Fleet, live: Live, wanted: &Wanted) -> Result<Options, Refusal> {
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
        gain_min: wanted.gain_min.unwrap_or(milli(policy.gain_min_milli)),
        threshold: Threshold {
            score: wanted.threshold.unwrap_or(score),
            usage: wanted.usage,
        },
        moves_max: match wanted.moves_max {
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

/// The more memory is promised than there is anywhere, the more it matters what guests really hold.
fn weights(fleet: &Fleet) -> Weights {
    let ratio = |view: &Arc<HostView>| {
        let memory = view.inventories.get(&ResourceClass::memory_mb());
        memory.map_or(1.0, |memory| memory.allocation_ratio.get())
    };
    let greatest = fleet.views().iter().map(ratio).fold(1.0, f64::max);
    Weights::at_ratio(greatest)
}

/// Which failures are survived, as the moves of a plan are made one by one. What an evacuation
/// demands is not what a live migration does, so it has a fleet of its own, in which the same moves
/// are made.
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
        let judged = domains
            .iter()
            .map(|domain| judge(&mut fleet, domain, budget));
        let verdicts: Vec<Verdict> = judged.collect();
        let guard = Guard::new(domains.iter().zip(&verdicts), budget);
        Ok(Self { fleet, guard })
    }

    /// Says of a move whether it leaves every proof; then it counts as made.
    fn admit(&mut self, fleet: &Fleet, proposal: &Proposal) -> Result<(), String> {
        let vm = &proposal.vm;
        let moved = fleet.guest(vm).ok_or_else(|| format!("vm {vm} is gone"))?;
        let assignment = moved.claim.assignment.clone();
        let mark = self.fleet.mark();
        // Both fleets are made of the same hosts in the same order: places are the same.
        self.fleet.shift(vm, proposal.to, assignment);
        let admitted = self.guard.admit(&mut self.fleet, proposal);
        if admitted.is_err() {
            self.fleet.undo(mark);
        }
        admitted
    }
}
