//! Changes of the request: no named host, another policy, a smaller guest.
//!
//! What a changed request demands is for the caller to say: flavors, images and zones are not known
//! here.

use berth_domain::constraint::{Demand, PreparedDemand};
use berth_domain::hint::{Hint, RequestChange};

use super::Search;
use crate::request::Request;

/// How many hosts are tried for one changed request.
const HOSTS_MAX: u32 = 24;
/// How many steps a search for the greatest size makes.
const SIZES_MAX: u32 = 10;

impl Search<'_> {
    /// Tries the request without the host that it names.
    pub(super) fn any_host(&mut self) -> Option<Hint> {
        self.request.requested.as_ref()?;
        let demand = self.request.demand.clone();
        let fits = self.fits_somewhere(&demand, true);
        fits.then_some(Hint::ChangeRequest(RequestChange::AnyHost))
    }

    /// Tries other policies of the request.
    pub(super) fn change_policy(&mut self) -> Option<Hint> {
        let changes = self.cluster.changes();
        let change = changes.into_iter().find(|change| self.is_fitting(change))?;
        Some(Hint::ChangeRequest(change))
    }

    /// Tries a guest with fewer vCPUs, then one with less memory: the greatest that fits.
    pub(super) fn change_size(&mut self) -> Option<Hint> {
        let (vcpus, memory_mib) = self.cluster.size()?;
        let fewer = self.greatest(u64::from(vcpus), 1, |vcpus| {
            Some(RequestChange::Vcpus(u32::try_from(vcpus).ok()?))
        });
        let change = fewer.or_else(|| {
            let step = if memory_mib > 1024 { 256 } else { 64 };
            self.greatest(memory_mib.div_ceil(step), step, |memory_mib| {
                Some(RequestChange::MemoryMib(memory_mib))
            })
        })?;
        Some(Hint::ChangeRequest(change))
    }

    /// Returns the change to the greatest multiple of `step` below `end` steps that fits, by
    /// bisection: a smaller guest nearly always fits where a greater one does.
    fn greatest(
        &mut self,
        end: u64,
        step: u64,
        change: impl Fn(u64) -> Option<RequestChange>,
    ) -> Option<RequestChange> {
        let (mut fits, mut fails) = (0, end);
        let mut best = None;
        for _ in 0..SIZES_MAX {
            let middle = fits + (fails - fits) / 2;
            if middle == fits {
                break;
            }
            let tried = change(middle * step)?;
            if self.is_fitting(&tried) {
                (fits, best) = (middle, Some(tried));
            } else {
                fails = middle;
            }
        }
        best
    }

    fn is_fitting(&mut self, change: &RequestChange) -> bool {
        let demand = self.cluster.changed(change);
        demand.is_some_and(|demand| self.fits_somewhere(&demand, false))
    }

    /// Decides the request with another demand: on the named host, or on any.
    fn fits_somewhere(&mut self, demand: &Demand, is_host_free: bool) -> bool {
        if !self.spend() {
            return false;
        }
        let named = self.request.requested.as_ref().filter(|_| !is_host_free);
        if named.is_some() {
            let view = self.refused.first().map(|refused| refused.view);
            let cells = self.request.policy.cells;
            return view
                .is_some_and(|view| PreparedDemand::new(demand).try_place(view, cells).is_some());
        }
        let request = Request {
            demand: demand.clone(),
            requested: None,
            ..self.request.clone()
        };
        self.index().select_within(&request, HOSTS_MAX).is_some()
    }
}
