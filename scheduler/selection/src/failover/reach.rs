//! Which hosts have room for which guests before anything is planned: known once for all domains.
//!
//! Nearly all that verdicts look at are hosts without capacity, and the guests of a cluster are of few
//! shapes. So what one verdict found of a host and a shape is kept for the others until the host
//! changes; a cluster all of whose verdicts turn at once looks at every host once for each shape,
//! not once for each guest.
//!
//! Not here: what a server group allows. It differs from domain to domain.
//!
//! Invariant: of the fleet without steps, but for hosts that failed: a host that is said to have no
//! room for a shape takes no guest of it, whatever was put where.

use std::sync::Arc;

use berth_domain::constraint::{Demand, Leaving};
use berth_domain::numa::Strategy;

use crate::fleet::{Fleet, FleetGuest, Seeker};

/// So many shapes are kept; with more, all are looked at again.
const SHAPES_MAX: usize = 64;

/// What is known of a host and a shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Capacity {
    #[default]
    Unknown,
    None,
    /// At a glance there is.
    Glance,
    /// It takes the guest, or the search for its PCI functions was given up.
    Fits,
}

/// The place of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape(usize);

/// What is known of a shape.
#[derive(Clone, Debug)]
struct Surveyed {
    demand: Arc<Demand>,
    /// By place of the host.
    capacities: Vec<Capacity>,
}

/// What is known of all shapes.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    shapes: Vec<Surveyed>,
}

impl Reach {
    /// Makes room for the shapes of one more domain with so many guests.
    pub(super) fn begin(&mut self, guests: usize) {
        if self.shapes.len() + guests > SHAPES_MAX.max(guests) {
            self.shapes.clear();
        }
    }

    /// Returns the shape of a guest.
    pub(super) fn shape(&mut self, guest: &FleetGuest) -> Shape {
        let mut known = self.shapes.iter();
        let known = known.position(|shape| is_same_shape(&shape.demand, &guest.demand));
        Shape(known.unwrap_or_else(|| {
            self.shapes.push(Surveyed {
                demand: Arc::clone(&guest.demand),
                capacities: Vec::new(),
            });
            self.shapes.len() - 1
        }))
    }

    /// Looks at all hosts, where they are not known; none of the domain's guests is on one.
    pub(super) fn survey(&mut self, shape: Shape, fleet: &Fleet, seeker: &Seeker<'_>) {
        let capacities = &mut self.shapes[shape.0].capacities;
        capacities.resize(fleet.len(), Capacity::Unknown);
        for (at, capacity) in capacities.iter_mut().enumerate() {
            if *capacity == Capacity::Unknown && !fleet.has_failed_at(at) {
                *capacity = match seeker.glance(fleet, at, Strategy::Pack) {
                    Some(_) => Capacity::Glance,
                    None => Capacity::None,
                };
            }
        }
    }

    /// Returns the hosts that are not known to have no capacity, in their order.
    pub(super) fn hosts(&self, shape: Shape, fleet: &Fleet) -> Vec<usize> {
        let capacities = self.shapes[shape.0].capacities.iter().enumerate();
        let open = capacities.filter(|(at, capacity)| match capacity {
            Capacity::None => false,
            Capacity::Unknown | Capacity::Glance | Capacity::Fits => !fleet.has_failed_at(*at),
        });
        open.map(|(at, _)| at).collect()
    }

    /// Returns whether a host is known to have no capacity.
    pub(super) fn is_full(&self, shape: Shape, at: usize) -> bool {
        self.shapes[shape.0].capacities.get(at) == Some(&Capacity::None)
    }

    /// Returns whether a host could take a guest of this shape alone; also where the search for PCI
    /// functions was given up, since then it is not known. None of the domain's guests is on a host.
    pub(super) fn may_take(
        &mut self,
        shape: Shape,
        fleet: &Fleet,
        seeker: &Seeker<'_>,
        at: usize,
    ) -> bool {
        let is_common = is_common(seeker.demand, fleet, at);
        let known = self.shapes[shape.0].capacities.get(at).copied();
        let known = known.unwrap_or_default();
        match known {
            Capacity::None => return false,
            Capacity::Fits if is_common => return !fleet.has_failed_at(at),
            Capacity::Unknown | Capacity::Glance | Capacity::Fits => {}
        }
        let fits = seeker.glance(fleet, at, Strategy::Spread).is_some()
            && (seeker.try_place(fleet, at, Strategy::Spread).is_some()
                || seeker.gave_up(fleet, at));
        if is_common && !fleet.has_failed_at(at) {
            let capacities = &mut self.shapes[shape.0].capacities;
            capacities.resize(fleet.len(), Capacity::Unknown);
            capacities[at] = if fits { Capacity::Fits } else { Capacity::None };
        }
        fits
    }

    /// Forgets what is known of a host, which changed.
    pub(super) fn forget(&mut self, at: usize) {
        for shape in &mut self.shapes {
            if let Some(capacity) = shape.capacities.get_mut(at) {
                *capacity = Capacity::Unknown;
            }
        }
    }

    /// Forgets all, since hosts got other places.
    pub(super) fn clear(&mut self) {
        self.shapes.clear();
    }
}

/// Returns whether what a host says to a guest it says to all of its shape: it is not the guest's
/// own host, and no server group has a say.
fn is_common(demand: &Demand, fleet: &Fleet, at: usize) -> bool {
    let own = demand.leaving.as_ref().map(|leaving| &leaving.host);
    demand.group.is_none() && own != Some(fleet.name(at))
}

/// Returns whether two guests request the same, but for their server groups and where they are.
fn is_same_shape(a: &Arc<Demand>, b: &Arc<Demand>) -> bool {
    if Arc::ptr_eq(a, b) {
        return true;
    }
    // Spelled out, so that a new field has a place here.
    let Demand {
        resources,
        topology,
        pci,
        pmem,
        required,
        forbidden,
        leaving,
        group: _,
        volumes,
        zone,
        aggregate_specs,
        platform,
        has_seed,
        cpu,
        networks,
    } = &**a;
    *resources == b.resources
        && *topology == b.topology
        && *pci == b.pci
        && *pmem == b.pmem
        && *required == b.required
        && *forbidden == b.forbidden
        && *volumes == b.volumes
        && *zone == b.zone
        && *aggregate_specs == b.aggregate_specs
        && *platform == b.platform
        && *has_seed == b.has_seed
        && *cpu == b.cpu
        && *networks == b.networks
        && is_same_leaving(leaving.as_ref(), b.leaving.as_ref())
}

fn is_same_leaving(a: Option<&Leaving>, b: Option<&Leaving>) -> bool {
    let (Some(a), Some(b)) = (a, b) else {
        return a.is_none() && b.is_none();
    };
    let Leaving {
        kind,
        host: _,
        version,
        driver,
        storage_id,
        has_disks,
        can_be_read,
    } = a;
    *kind == b.kind
        && *version == b.version
        && *driver == b.driver
        && *storage_id == b.storage_id
        && *has_disks == b.has_disks
        && *can_be_read == b.can_be_read
}
