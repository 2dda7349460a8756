//! Stopping a guest, starting it again with the disks that it has, and recreating those.
//!
//! Not here: whether a guest that was requested to power off does; the agent waits for that.
//!
//! Invariant: no disk is removed, and one is recreated only where just that is requested. A guest that is off is no domain of libvirt's at all, so
//! that nothing but the cluster starts it again.

use berth_domain::agent::DomainState as State;
use berth_domain::id::VmUid;

use super::{LibvirtDriver, stop};
use crate::disks::is_fetching;
use crate::domain::DomainSpec;
use crate::error::Error;
use crate::libvirt::error::error_of;
use crate::libvirt::{Domain, Kind, disk, inspect};
use crate::xml;

impl LibvirtDriver {
    pub(super) fn power_button(&self, vm: VmUid) -> Result<(), Error> {
        let Some(domain) = self.stationary(vm, "shut down")? else {
            return Ok(());
        };
        match domain.shutdown() {
            Ok(()) => Ok(()),
            // It has powered off meanwhile.
            Err(error) if matches!(error.kind(), Kind::NoDomain | Kind::OperationInvalid) => Ok(()),
            Err(error) => Err(error_of(&error)),
        }
    }

    pub(super) fn power_off(&self, vm: VmUid) -> Result<(), Error> {
        let half = self.find_ours(vm)?;
        let domain = match half {
            // Half a guest goes on nowhere, and is stopped only by a caller that knows that the other half
            // is dead, or that the guest runs elsewhere.
            Some(half) if self.state(&half)? == State::PostCopyBroken => Some(half),
            Some(_) | None => self.stationary(vm, "stop")?,
        };
        if let Some(domain) = domain {
            stop(&domain)?;
        }
        disk::remove_socket(vm, &self.config.settings);
        Ok(())
    }

    pub(super) fn power_on(&self, guest: &DomainSpec) -> Result<(), Error> {
        if let Some(domain) = self.find(guest.uid)? {
            let claim = self.record(&domain)?.and_then(|r| r.claim);
            match self.state(&domain)? {
                State::Absent => {}
                State::Stopped => self.power_off(guest.uid)?,
                State::Running if claim == guest.claim => return Ok(()),
                State::Running
                | State::Starting
                | State::Paused
                | State::Prepared
                | State::MigratingIn
                | State::PostCopyBroken
                | State::MigratingOut => {
                    return Err(Error::Exists {
                        vm: guest.uid,
                        claim,
                    });
                }
            }
        }
        let settings = &self.config.settings;
        let xml = xml::domain(guest, settings)?;
        self.check_surroundings(guest)?;
        self.check_cpu(guest)?;
        if is_fetching(&settings.directory(guest.uid)) {
            let message = format!("the disks of guest {} are still being fetched", guest.vm);
            return Err(Error::refused(message));
        }
        for index in 0..guest.spec.disks.len() {
            let path = settings.disk(guest.uid, index);
            if !path.exists() {
                return Err(guest.disk_missing(index, path));
            }
            inspect::disk(guest, index, settings)?;
        }
        // The console log goes there also for a guest without disks.
        for directory in [&settings.directory(guest.uid), &settings.runtime_dir] {
            std::fs::create_dir_all(directory).map_err(|error| {
                Error::refused(format!("{} cannot be made: {error}", directory.display()))
            })?;
        }
        let created = self.connection()?.create(&xml);
        created.map(drop).map_err(|error| error_of(&error))
    }

    pub(super) fn remake_disks(&self, guest: &DomainSpec) -> Result<(), Error> {
        if let Some(domain) = self.find(guest.uid)? {
            let state = self.state(&domain)?;
            if state != State::Absent {
                return Err(Self::wrong_state(guest.uid, state, "make the disks of"));
            }
        }
        self.check_surroundings(guest)?;
        disk::make(guest, &self.config.settings, &self.config.qemu_img)
    }

    /// Returns the guest, if it is here and is not on its way.
    pub(super) fn stationary(
        &self,
        vm: VmUid,
        attempted: &'static str,
    ) -> Result<Option<Domain>, Error> {
        let Some(domain) = self.find_ours(vm)? else {
            return Ok(None);
        };
        match self.state(&domain)? {
            State::Absent => Ok(None),
            state @ (State::MigratingIn | State::MigratingOut | State::PostCopyBroken) => {
                Err(Self::wrong_state(vm, state, attempted))
            }
            State::Starting | State::Running | State::Paused | State::Prepared | State::Stopped => {
                Ok(Some(domain))
            }
        }
    }
}
