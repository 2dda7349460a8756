//! Hosts and guests as [`berth_testkit::selection::mix`] draws them, without those whose vCPUs all float.
//!
//! Guests arrive and are placed by the choice itself until a tenth more is taken than is wanted,
//! then random ones leave: so the holes are where they happen to be.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_domain::claim::{Claim, Owner, State};
use berth_domain::constraint::{Demand, Leaving, MoveKind};
use berth_domain::host_view::HostView;
use berth_domain::id::ClaimId;
use berth_domain::name::{HostName, VmName};
use berth_domain::numa::Strategy;
use berth_domain::policy::SchedulingPolicy;
use berth_domain::version::ServiceVersion;
use berth_selection::{Fleet, FleetGuest, Index, Request, Rescue};
use berth_testkit::selection::hosts::host;
use berth_testkit::selection::mix::{self, DEDICATED, Kind};
use imbl::OrdMap;
use uuid::Uuid;

/// The generator of all that is random: splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

pub(crate) struct Cluster {
    dice: Dice,
    policy: SchedulingPolicy,
    kinds: Vec<Kind>,
    hosts: OrdMap<HostName, Arc<HostView>>,
    index: Index,
    pub(crate) guests: Vec<FleetGuest>,
    by_host: BTreeMap<HostName, BTreeMap<VmName, FleetGuest>>,
    /// Dedicated CPUs that are taken.
    taken: usize,
}

impl Cluster {
    pub(crate) fn new(hosts: usize, strategy: Strategy, seed: u64) -> Self {
        let machine = Arc::new(mix::machine());
        let view = |n| HostView::new(Arc::new(host(&format!("host-{n:06}"), &machine)), []);
        let views = (0..hosts).map(view);
        let hosts = views.map(|view| (view.host.name.clone(), Arc::new(view)));
        let hosts: OrdMap<_, _> = hosts.collect();
        let mut index = Index::new();
        index.sync(&hosts);
        let mut kinds = mix::kinds("");
        kinds.retain(|kind| kind.dedicated() > 0);
        Self {
            dice: Dice(seed),
            policy: SchedulingPolicy {
                hosts: strategy,
                cells: strategy,
                ..SchedulingPolicy::default()
            },
            kinds,
            hosts,
            index,
            guests: Vec::new(),
            by_host: BTreeMap::new(),
            taken: 0,
        }
    }

    /// Fills this part of the dedicated CPUs.
    pub(crate) fn fill(&mut self, part: f64) {
        let wanted = (self.hosts.len() * DEDICATED) as f64 * part;
        let mut in_vain = 0;
        while (self.taken as f64) < wanted * 1.1 && in_vain < 100 {
            match self.choose() {
                Some(guest) => {
                    self.arrive(guest);
                    in_vain = 0;
                }
                None => in_vain += 1,
            }
        }
        while self.taken as f64 > wanted {
            self.depart();
        }
    }

    /// Draws a guest, and chooses a host for it.
    pub(crate) fn choose(&mut self) -> Option<FleetGuest> {
        let mut demand = self.draw();
        let request = Request {
            demand: demand.clone(),
            requested: None,
            excluded: Vec::new(),
            seed: Uuid::from_u64_pair(self.dice.next(), self.dice.next()),
            policy: self.policy.clone(),
        };
        let choice = self.index.select(&request).ok()?;
        demand.leaving = Some(Leaving {
            kind: MoveKind::Cold { may_stay: false },
            host: choice.host.clone(),
            version: ServiceVersion::CURRENT,
            driver: "sim".to_owned(),
            storage_id: "s".to_owned(),
            has_disks: true,
            can_be_read: false,
        });
        let id = self.dice.next();
        let vm = VmName::new(&format!("vm-{id:016x}")).expect("a good name");
        let claim = Claim {
            id: ClaimId(Uuid::from_u64_pair(0, id)),
            vm: vm.clone(),
            owner: Owner::Vm,
            host: choice.host,
            state: State::Active,
            resources: choice.resources,
            assignment: choice.assignment,
            erasures: BTreeMap::new(),
            cpu: None,
        };
        Some(FleetGuest {
            vm,
            claim: Arc::new(claim),
            also_on: Vec::new(),
            demand: Arc::new(demand),
            fixed: None,
            rescue: Rescue::Restart,
        })
    }

    /// Places the claim of a guest; returns where.
    pub(crate) fn arrive(&mut self, guest: FleetGuest) -> HostName {
        let host = guest.claim.host.clone();
        self.change(&host, |view| view.place(&guest.claim));
        self.taken += guest.claim.assignment.dedicated().len();
        let here = self.by_host.entry(host.clone()).or_default();
        here.insert(guest.vm.clone(), guest.clone());
        self.guests.push(guest);
        host
    }

    /// Releases the claim of a random guest; returns where.
    pub(crate) fn depart(&mut self) -> HostName {
        let guest = self.guests.swap_remove(self.dice.below(self.guests.len()));
        let host = guest.claim.host.clone();
        self.change(&host, |view| view.release(&guest.claim));
        self.taken -= guest.claim.assignment.dedicated().len();
        let here = self.by_host.get_mut(&host).expect("it has a guest");
        here.remove(&guest.vm);
        host
    }

    /// Returns a host with its guests.
    pub(crate) fn host(&self, name: &HostName) -> (Arc<HostView>, Vec<FleetGuest>) {
        let guests = self
            .by_host
            .get(name)
            .into_iter()
            .flat_map(BTreeMap::values);
        (Arc::clone(&self.hosts[name]), guests.cloned().collect())
    }

    pub(crate) fn fleet(&self) -> Fleet {
        let fleet = Fleet::new(self.hosts.values(), self.guests.iter().cloned());
        fleet.expect("guests of these hosts")
    }

    fn draw(&mut self) -> Demand {
        let weights: u32 = self.kinds.iter().map(|kind| kind.weight).sum();
        let mut at = (self.dice.next() % u64::from(weights)) as u32;
        let kind = self.kinds.iter().find(|kind| {
            let is_here = at < kind.weight;
            at = at.saturating_sub(kind.weight);
            is_here
        });
        kind.expect("the weights add up").demand.clone()
    }

    fn change(&mut self, host: &HostName, change: impl FnOnce(&mut HostView)) {
        let view = self.hosts.get_mut(host).expect("it is there");
        change(Arc::make_mut(view));
        self.index.sync(&self.hosts);
    }
}
