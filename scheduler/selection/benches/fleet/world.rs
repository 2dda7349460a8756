//! Hosts and guests in time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use berth_domain::claim::Claim;
use berth_domain::constraint::PreparedDemand;
use berth_domain::host_view::HostView;
use berth_domain::name::HostName;
use berth_domain::policy::SchedulingPolicy;
use berth_selection::{Choice, Examined, Index, Request};
use berth_testkit::selection::claims::claim;
use berth_testkit::selection::hosts::host;
use berth_testkit::selection::mix::{self, DEDICATED, Kind, LONG_HOURS, SHORT_HOURS, SHORT_SHARE};
use imbl::OrdMap;
use uuid::Uuid;

/// The generator of all that is random: splitmix64.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to below 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.part()).ln() * mean
    }
}

/// Hosts with their guests, at a moment.
pub(crate) struct World {
    pub(crate) kinds: Vec<Kind>,
    policy: SchedulingPolicy,
    pub(crate) dice: Dice,
    pub(crate) hosts: OrdMap<HostName, Arc<HostView>>,
    pub(crate) index: Index,
    guests: BTreeMap<u64, Claim>,
    /// When each leaves, in nanoseconds of the simulated time: these have an order.
    departures: BinaryHeap<Reverse<(u64, u64)>>,
    arrived: u64,
    /// Guests that came, since it was cleared.
    pub(crate) asked: u32,
    /// Those that were refused, by their kind.
    pub(crate) refused: BTreeMap<&'static str, u32>,
    /// Dedicated CPUs that are taken.
    pub(crate) taken: usize,
}

impl World {
    pub(crate) fn new(hosts: usize, policy: SchedulingPolicy, pages: &str, seed: u64) -> Self {
        let machine = Arc::new(mix::machine());
        let host = |n| HostView::new(Arc::new(host(&format!("host-{n:06}"), &machine)), []);
        let hosts: OrdMap<_, _> = (0..hosts)
            .map(host)
            .map(|view| (view.host.name.clone(), Arc::new(view)))
            .collect();
        let mut index = Index::new();
        index.sync(&hosts);
        Self {
            kinds: mix::kinds(pages),
            policy,
            dice: Dice(seed),
            hosts,
            index,
            guests: BTreeMap::new(),
            departures: BinaryHeap::new(),
            arrived: 0,
            asked: 0,
            refused: BTreeMap::new(),
            taken: 0,
        }
    }

    /// Returns how many dedicated CPUs there are.
    pub(crate) fn cpus(&self) -> usize {
        self.hosts.len() * DEDICATED
    }

    /// Returns how many host cells hold a guest cell with so many dedicated CPUs, an emulator's
    /// included.
    pub(crate) fn cells_with(&self, cpus: usize) -> usize {
        let of = |claim: &Claim| {
            let given = &claim.assignment;
            let cells = given.cells.iter().enumerate();
            let large = cells.filter(|(at, cell)| {
                let emulator = if *at == 0 { given.emulator.len() } else { 0 };
                cell.pins.len() + emulator >= cpus
            });
            large.count()
        };
        self.guests.values().map(of).sum()
    }

    /// Lets guests arrive, and none leave, until the first of up to eight vCPUs is refused.
    pub(crate) fn fill(&mut self) {
        loop {
            let kind = self.draw();
            if self.arrive(kind).is_none() && self.kinds[kind].vcpus <= 8 {
                return;
            }
        }
    }

    /// Fills every host by itself until about this part of its dedicated CPUs is taken: up to a fifth
    /// of them more or less from host to host. Returns how many guests it took. Choosing a host for
    /// each would take hours for the greatest tables.
    pub(crate) fn fill_to(&mut self, part: f64) -> usize {
        let mut views: Vec<Arc<HostView>> = self.hosts.values().cloned().collect();
        let mut guests = 0;
        for view in &mut views {
            let target = DEDICATED as f64 * (part + 0.4 * (self.dice.part() - 0.5));
            let view = Arc::make_mut(view);
            let (mut taken, mut in_vain) = (0, 0);
            while (taken as f64) < target && in_vain < 30 {
                let request = self.draw();
                let request = self.request(request);
                let placed =
                    PreparedDemand::new(&request.demand).try_place(view, self.policy.cells);
                in_vain += 1;
                if let Some(assignment) = placed {
                    taken += assignment.dedicated().len();
                    guests += 1;
                    in_vain = 0;
                    view.place(&claim(&Choice {
                        host: view.host.name.clone(),
                        resources: request.demand.resources,
                        assignment,
                        cpu: None,
                        examined: Examined::default(),
                        ranking: Vec::new(),
                        warnings: Vec::new(),
                    }));
                }
            }
        }
        let named = views.into_iter().map(|v| (v.host.name.clone(), v));
        self.hosts = named.collect();
        self.index.sync(&self.hosts);
        guests
    }

    /// Begins with about as many guests as there are in the steady state, and goes on for so many
    /// arrivals. Returns the mean of the dedicated CPUs that are taken meanwhile.
    pub(crate) fn run(&mut self, load: f64, arrivals: usize) -> f64 {
        let mean = SHORT_SHARE * SHORT_HOURS + (1.0 - SHORT_SHARE) * LONG_HOURS;
        let standing = self.cpus() as f64 * load / self.cpus_of_a_guest();
        let rate = standing / mean;
        // Of those who are there, as many stay long as their share of the time says.
        let long_share = (1.0 - SHORT_SHARE) * LONG_HOURS / mean;
        for _ in 0..standing as usize {
            self.settle(0.0, long_share);
        }
        self.asked = 0;
        self.refused.clear();
        let (mut now, mut sum) = (0.0, 0.0);
        for _ in 0..arrivals {
            now += self.dice.exponential(1.0 / rate);
            self.depart(now);
            self.settle(now, 1.0 - SHORT_SHARE);
            sum += self.taken as f64;
        }
        sum / arrivals as f64
    }

    fn cpus_of_a_guest(&self) -> f64 {
        let weights: u32 = self.kinds.iter().map(|k| k.weight).sum();
        let of = |kind: &Kind| f64::from(kind.weight) * f64::from(kind.dedicated());
        self.kinds.iter().map(of).sum::<f64>() / f64::from(weights)
    }

    fn draw(&mut self) -> usize {
        let weights: u32 = self.kinds.iter().map(|k| k.weight).sum();
        let mut at = (self.dice.next() % u64::from(weights)) as u32;
        let found = self.kinds.iter().position(|kind| {
            let is_here = at < kind.weight;
            at = at.saturating_sub(kind.weight);
            is_here
        });
        found.expect("the weights add up")
    }

    fn settle(&mut self, now: f64, long_share: f64) {
        let kind = self.draw();
        let is_long = self.dice.part() < long_share;
        let mean = if is_long { LONG_HOURS } else { SHORT_HOURS };
        let until = nanos(now + self.dice.exponential(mean));
        if let Some(guest) = self.arrive(kind) {
            self.departures.push(Reverse((until, guest)));
        }
    }

    /// Returns what a guest of this kind asks.
    pub(crate) fn request(&mut self, kind: usize) -> Request {
        Request {
            demand: self.kinds[kind].demand.clone(),
            requested: None,
            excluded: Vec::new(),
            seed: Uuid::from_u64_pair(self.dice.next(), self.dice.next()),
            policy: self.policy.clone(),
        }
    }

    fn arrive(&mut self, kind: usize) -> Option<u64> {
        self.arrived += 1;
        self.asked += 1;
        let request = self.request(kind);
        let Ok(choice) = self.index.select(&request) else {
            *self.refused.entry(self.kinds[kind].name).or_default() += 1;
            return None;
        };
        let claim = claim(&choice);
        self.taken += claim.assignment.dedicated().len();
        self.change(&claim.host, |view| view.place(&claim));
        self.guests.insert(self.arrived, claim);
        Some(self.arrived)
    }

    fn depart(&mut self, now: f64) {
        while let Some(Reverse((at, guest))) = self.departures.peek().copied() {
            if at > nanos(now) {
                break;
            }
            self.departures.pop();
            let claim = self.guests.remove(&guest).expect("it is there");
            self.taken -= claim.assignment.dedicated().len();
            self.change(&claim.host, |view| view.release(&claim));
        }
    }

    pub(crate) fn change(&mut self, host: &HostName, change: impl FnOnce(&mut HostView)) {
        let view = self.hosts.get_mut(host).expect("it is there");
        change(Arc::make_mut(view));
        self.index.sync(&self.hosts);
    }
}

fn nanos(hours: f64) -> u64 {
    (hours * 3.6e12) as u64
}
