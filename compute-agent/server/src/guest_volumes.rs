//! Volumes of guests: looked up and marked as used before a guest starts, unmarked once it is gone.
//!
//! ```text
//!   create, start:  marked for the guest ─▶ device looked up ─▶ the hypervisor starts it
//!   afterwards, and with every listing of guests: is it gone? ─▶ the mark is removed
//!   at the agent's start: marks of absent guests are removed, those of running guests are made again
//! ```
//!
//! It stands between the core and the driver, as the core does no I/O and the driver knows no volumes:
//! it writes the devices into the driver's requests.
//!
//! A mark says that a guest uses a volume now. That a VM owns it, running or not, is recorded by the
//! scheduler and cached by `volumes/owners.rs`.
//!
//! Invariant: while a guest runs, its volumes are marked as used by it, so that no other user on this
//! host gets them; only between the loss of a file and the agent's next start may that be broken.

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
    /// Marks a volume as used by a guest, prepares what the guest is to see of it, and returns that.
    /// Repeated for the same guest: no effect, same result.
    ///
    /// # Errors
    ///
    /// [`Error::VolumeInUse`] where it has another user, [`Error::VolumeUnusable`]; it is not marked
    /// then.
    fn attach(
        &self,
        guest: Guest<'_>,
        attachment: &VolumeAttachment,
    ) -> Result<VolumeDevice, Error>;

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
    fn attach(&self, _: Guest<'_>, attachment: &VolumeAttachment) -> Result<VolumeDevice, Error> {
        Err(Error::VolumeUnusable {
            volume: attachment.volume.clone(),
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
    /// Locked while marks are removed, never while a driver is called.
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
            | Request::CheckTls(_)
            | Request::CheckPeer(..)
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

    /// Compares the marks with the guests that run, before any call is served.
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
            for attachment in &domain.spec.volumes {
                if let Err(error) = self.host.attach(Guest::of(domain), attachment) {
                    tracing::error!(guest = %domain.vm, %error, "guest runs with a volume that it does not own");
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
        let attachment = domain.spec.volumes.iter();
        let devices = attachment.map(|attachment| self.host.attach(guest, attachment));
        domain.volumes = devices.collect::<Result<_, Error>>()?;
        Ok(())
    }

    fn settle_all(&self, driver: &dyn Driver) {
        for vm in self.host.marks().into_keys() {
            self.settle(driver, vm);
        }
    }

    /// Removes a guest's marks if it is gone and no start of it is under way.
    fn settle(&self, driver: &dyn Driver, vm: VmUid) {
        let count = lock(&self.starting).count;
        if !self.host.marks().contains_key(&vm) {
            return;
        }
        // What is unknown now is checked again with the next listing of guests.
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
            Ok(()) => tracing::info!(%vm, %volume, "volume released by its guest"),
            Err(error) => tracing::warn!(%vm, %volume, %error, "volume not released yet"),
        }
    }
}

/// Returns whether a guest uses no volumes any more.
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
