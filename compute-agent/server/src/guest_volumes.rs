//! Volumes of guests: found and marked as used before a guest starts, given back once it is gone.
//!
//! ```text
//!   create, start:  marked for the guest ─▶ device found ─▶ the hypervisor starts it
//!   afterwards, and with every look at what runs: is it gone? ─▶ the mark is taken away
//!   at the agent's start: marks of guests that are gone go, those of guests that run are made again
//! ```
//!
//! It stands between the core and the driver, as the core does no I/O and the driver knows no volumes:
//! it writes the devices into what the driver is given.
//!
//! A mark says that a guest uses a volume now. That a VM has it, running or not, is the scheduler's word,
//! which `volumes/owners.rs` keeps.
//!
//! Invariant: while a guest runs, its volumes are marked as used by it, so that nobody else on this
//! host is given them; only in between a lost file and the agent's next start that may be broken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_domain::agent::DomainState;
use berth_domain::id::VmUid;
use berth_domain::name::{VmName, VolumeId};
use berth_domain::vm::VolumeAttachment;
use berth_driver::{Answer, DomainSpec, Driver, Error, Known, Request, VolumeDevice, perform};

/// A guest that has volumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest<'a> {
    /// This life of the VM.
    pub(crate) uid: VmUid,
    /// What people call it.
    pub(crate) name: &'a VmName,
}

impl<'a> Guest<'a> {
    fn of(domain: &'a DomainSpec) -> Self {
        Self {
            uid: domain.uid,
            name: &domain.vm,
        }
    }
}

/// What guests need of the volumes of this host. All calls block.
pub(crate) trait HostVolumes: Send + Sync {
    /// Marks a volume as used by a guest, makes ready what the guest is to see of it, and returns that.
    /// Repeated for the same guest: no effect, same answer.
    ///
    /// # Errors
    ///
    /// [`Error::VolumeInUse`] where somebody else uses it, [`Error::VolumeUnusable`]; it is not marked
    /// then.
    fn attach(&self, guest: Guest<'_>, wanted: &VolumeAttachment) -> Result<VolumeDevice, Error>;

    /// Takes a guest's mark away, and what was made ready for it. Not marked: no effect.
    ///
    /// # Errors
    ///
    /// Why it stays.
    fn detach(&self, vm: VmUid, volume: &VolumeId) -> Result<(), Error>;

    /// Returns which guests have marks, and on what.
    fn marks(&self) -> BTreeMap<VmUid, BTreeSet<VolumeId>>;
}

/// The volumes of a host that has none.
pub(crate) struct NoVolumes;

impl HostVolumes for NoVolumes {
    fn attach(&self, _: Guest<'_>, wanted: &VolumeAttachment) -> Result<VolumeDevice, Error> {
        Err(Error::VolumeUnusable {
            volume: wanted.volume.clone(),
            why: "this host manages no volumes: see volumes.manager in its configuration"
                .to_owned(),
        })
    }

    fn detach(&self, _: VmUid, _: &VolumeId) -> Result<(), Error> {
        Ok(())
    }

    fn marks(&self) -> BTreeMap<VmUid, BTreeSet<VolumeId>> {
        BTreeMap::new()
    }
}

/// Which guests are being started, and how many were.
#[derive(Default)]
struct Starting {
    now: BTreeSet<VmUid>,
    count: u64,
}

/// The volumes of guests.
pub(crate) struct GuestVolumes {
    host: Arc<dyn HostVolumes>,
    /// Held while marks are taken away, never while a driver is asked.
    starting: Mutex<Starting>,
}

impl GuestVolumes {
    pub(crate) fn new(host: Arc<dyn HostVolumes>) -> Self {
        Self {
            host,
            starting: Mutex::default(),
        }
    }

    /// Makes the call that `request` stands for, with the volumes of its guest; blocks as long as it
    /// does.
    pub(crate) fn perform(
        &self,
        driver: &dyn Driver,
        mut request: Request,
    ) -> Result<Answer, Error> {
        if let Request::Create(domain) | Request::Start(domain) = &mut request
            && !domain.spec.volumes.is_empty()
        {
            let vm = domain.uid;
            self.begin(vm);
            let attached = self.attach_all(domain);
            let done = attached.and_then(|()| perform(driver, &request));
            lock(&self.starting).now.remove(&vm);
            if done.is_err() {
                self.settle(driver, vm);
            }
            return done;
        }
        let done = perform(driver, &request);
        match &request {
            Request::Create(_) | Request::Start(_) => {}
            Request::Destroy(vm) | Request::Stop(vm) | Request::Evict(vm, _) => {
                self.settle(driver, *vm);
            }
            Request::Everything | Request::Domains => self.settle_all(driver),
            Request::Domain(_)
            | Request::Prepare { .. }
            | Request::Cancel(_)
            | Request::Migrate { .. }
            | Request::Abort(_)
            | Request::Release(_)
            | Request::FreePages
            | Request::Shutdown(_)
            | Request::Force(..)
            | Request::Forget(_)
            | Request::MakeDisks(_)
            | Request::CopyDisk { .. }
            | Request::PublishImage(_)
            | Request::DropImage(_)
            | Request::Erase(_)
            | Request::FetchDisks(_)
            | Request::StopFetch(_)
            | Request::DropDisks(..) => {}
        }
        done
    }

    /// Holds the marks against what runs, before anybody is served.
    pub(crate) fn adopt(&self, known: &[Known]) {
        let running = known.iter().filter(|known| !is_gone(known.state));
        let running: BTreeMap<VmUid, &DomainSpec> =
            running.map(|k| (k.domain.uid, &k.domain)).collect();
        for (vm, volumes) in self.host.marks() {
            let spec = running.get(&vm).map(|domain| &domain.spec);
            for volume in volumes {
                let has = spec.is_some_and(|s| s.volumes.iter().any(|v| v.volume == volume));
                if !has {
                    self.detach(vm, &volume);
                }
            }
        }
        for domain in running.into_values() {
            for wanted in &domain.spec.volumes {
                if let Err(error) = self.host.attach(Guest::of(domain), wanted) {
                    tracing::error!(guest = %domain.vm, %error, "a guest runs with a volume that is not its own");
                }
            }
        }
    }

    fn begin(&self, vm: VmUid) {
        let mut starting = lock(&self.starting);
        starting.now.insert(vm);
        starting.count += 1;
    }

    fn attach_all(&self, domain: &mut DomainSpec) -> Result<(), Error> {
        let guest = Guest::of(domain);
        let wanted = domain.spec.volumes.iter();
        let devices = wanted.map(|wanted| self.host.attach(guest, wanted));
        domain.volumes = devices.collect::<Result<_, Error>>()?;
        Ok(())
    }

    fn settle_all(&self, driver: &dyn Driver) {
        for vm in self.host.marks().into_keys() {
            self.settle(driver, vm);
        }
    }

    /// Takes a guest's marks away if it is gone, and nobody starts it meanwhile.
    fn settle(&self, driver: &dyn Driver, vm: VmUid) {
        let count = lock(&self.starting).count;
        if !self.host.marks().contains_key(&vm) {
            return;
        }
        // What is not known now is asked again with the next look at what runs.
        if !matches!(driver.domain(vm), Ok(status) if is_gone(status.state)) {
            return;
        }
        let starting = lock(&self.starting);
        if starting.count != count || starting.now.contains(&vm) {
            return;
        }
        for volume in self.host.marks().remove(&vm).unwrap_or_default() {
            self.detach(vm, &volume);
        }
    }

    fn detach(&self, vm: VmUid, volume: &VolumeId) {
        match self.host.detach(vm, volume) {
            Ok(()) => tracing::info!(%vm, %volume, "a volume is given back by its guest"),
            Err(error) => tracing::warn!(%vm, %volume, %error, "a volume is not given back yet"),
        }
    }
}

/// Returns whether a guest uses nothing any more.
fn is_gone(state: DomainState) -> bool {
    match state {
        DomainState::Absent | DomainState::Stopped => true,
        DomainState::Starting
        | DomainState::Running
        | DomainState::Paused
        | DomainState::Prepared
        | DomainState::MigratingIn
        | DomainState::MigratingOut
        | DomainState::PostCopyBroken => false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
