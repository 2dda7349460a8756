//! The disks of guests that are off, under the virtual clock: on which storage they are, and how they
//! come from one to another.
//!
//! Not modelled for hosts without a storage: those have every disk.
//!
//! Invariant: a fetch lives as long as the agents at both of its ends; disks are there as a whole or not
//! at all.

use std::collections::BTreeMap;

use berth_domain::agent::{DomainState, Side};
use berth_domain::id::{MigrationId, TimeMs, VmUid};
use berth_domain::name::HostName;

use super::world::{Caller, Completion, Step, World, pair};
use crate::domain::DomainSpec;
use crate::error::Error;
use crate::request::{Answer, Fetch, Request};

/// A fetch that goes on.
#[derive(Clone, Debug)]
pub(super) struct Underway {
    pub(super) id: u64,
    pub(super) caller: Caller,
    pub(super) source: HostName,
    pub(super) migration: MigrationId,
}

/// What hosts share, and what is on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Disks {
    /// The storage of each host that has one.
    pub(super) storage: BTreeMap<HostName, String>,
    /// The guests whose disks are on a storage, and the migration for which they were fetched to it.
    there: BTreeMap<(String, VmUid), Option<MigrationId>>,
    /// By destination and guest.
    pub(super) underway: BTreeMap<(HostName, VmUid), Underway>,
}

fn gone(message: &str) -> Error {
    Error::Unreachable {
        message: message.to_owned(),
    }
}

impl Disks {
    fn key(&self, host: &HostName, vm: VmUid) -> Option<(String, VmUid)> {
        let storage = self.storage.get(host)?;
        Some((storage.clone(), vm))
    }

    /// Returns the storages on which a guest has disks.
    pub(super) fn of(&self, vm: VmUid) -> Vec<&str> {
        let there = self.there.keys().filter(|(_, uid)| *uid == vm);
        there.map(|(storage, _)| storage.as_str()).collect()
    }

    /// Returns all guests with disks.
    pub(super) fn guests(&self) -> Vec<VmUid> {
        let mut guests: Vec<VmUid> = self.there.keys().map(|(_, vm)| *vm).collect();
        guests.sort();
        guests.dedup();
        guests
    }

    pub(super) fn made(&mut self, host: &HostName, guest: &DomainSpec) {
        if let Some(key) = self.key(host, guest.uid)
            && !guest.spec.disks.is_empty()
        {
            self.there.entry(key).or_default();
        }
    }

    pub(super) fn removed(&mut self, host: &HostName, vm: VmUid) {
        if let Some(key) = self.key(host, vm) {
            self.there.remove(&key);
        }
    }

    /// A guest that runs has arrived on another host, with its disks where they are not shared.
    pub(super) fn copied(&mut self, source: &HostName, destination: &HostName, vm: VmUid) {
        if let (Some(old), Some(new)) = (self.key(source, vm), self.key(destination, vm))
            && old != new
            && self.there.remove(&old).is_some()
        {
            self.there.insert(new, None);
        }
    }

    pub(super) fn require(&self, host: &HostName, guest: &DomainSpec) -> Result<(), Error> {
        match self.key(host, guest.uid) {
            Some(key) if !guest.spec.disks.is_empty() && !self.there.contains_key(&key) => {
                Err(Error::DiskMissing {
                    vm: guest.uid,
                    index: 0,
                    path: key.0.into(),
                })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a fetch may begin: `None` if everything is there already.
    pub(super) fn examine(
        &self,
        here: &HostName,
        fetch: &Fetch,
        source_state: Option<DomainState>,
    ) -> Result<Option<()>, Error> {
        let vm = fetch.domain.uid;
        if self.underway.contains_key(&(here.clone(), vm)) {
            return Err(Error::refused("the disks are being fetched already"));
        }
        let (Some(there), Some(source)) = (self.key(here, vm), self.key(&fetch.source.host, vm))
        else {
            return Ok(None);
        };
        if there == source {
            let directory = there.0.into();
            return Err(Error::StorageShared { directory });
        }
        match self.there.get(&there) {
            Some(Some(migration)) if *migration == fetch.migration => return Ok(None),
            Some(None) => return Err(Error::refused("there are disks that were not fetched")),
            Some(Some(_)) | None => {}
        }
        self.readable(&source, source_state)?;
        Ok(Some(()))
    }

    fn readable(&self, source: &(String, VmUid), state: Option<DomainState>) -> Result<(), Error> {
        match state {
            None => return Err(gone("the source is not there")),
            Some(DomainState::Absent | DomainState::Stopped) => {}
            Some(
                state @ (DomainState::Starting
                | DomainState::Running
                | DomainState::Paused
                | DomainState::MigratingOut
                | DomainState::MigratingIn
                | DomainState::Prepared
                | DomainState::PostCopyBroken),
            ) => {
                return Err(Error::WrongState {
                    vm: source.1,
                    state,
                    attempted: "read the disks of",
                });
            }
        }
        match self.there.contains_key(source) {
            true => Ok(()),
            false => Err(Error::refused("the source has no disks of the guest")),
        }
    }

    /// Ends a fetch, if it is still the one of this id; returns its caller and its outcome.
    pub(super) fn end(
        &mut self,
        here: &HostName,
        vm: VmUid,
        id: u64,
        is_cut: bool,
        source_state: Option<DomainState>,
    ) -> Option<(Caller, Result<(), Error>)> {
        let key = (here.clone(), vm);
        self.underway.get(&key).filter(|u| u.id == id)?;
        let done = self.underway.remove(&key)?;
        let result = match (self.key(&done.source, vm), self.key(here, vm)) {
            _ if is_cut => Err(gone("the connection to the source broke")),
            (Some(source), Some(there)) => self.readable(&source, source_state).map(|()| {
                self.there.insert(there, Some(done.migration));
            }),
            (Some(_) | None, Some(_) | None) => Ok(()),
        };
        Some((done.caller, result))
    }

    /// Stops a fetch: its asker.
    pub(super) fn stop(&mut self, here: &HostName, vm: VmUid) -> Option<Caller> {
        self.underway.remove(&(here.clone(), vm)).map(|u| u.caller)
    }

    /// The agent of a host is gone: its fetches end without a report, and fetches from it break off.
    pub(super) fn agent_gone(&mut self, host: &HostName) -> Vec<(Caller, Error)> {
        self.underway.retain(|(here, _), _| here != host);
        let broken = self.underway.iter().filter(|(_, u)| u.source == *host);
        let broken: Vec<_> = broken.map(|(key, _)| key.clone()).collect();
        let broken = broken.iter().filter_map(|key| self.underway.remove(key));
        broken
            .map(|u| (u.caller, gone("the source broke off")))
            .collect()
    }

    /// Deletes disks, as [`crate::disks::drop_disks`] does.
    pub(super) fn dropped(
        &mut self,
        host: &HostName,
        vm: VmUid,
        migration: MigrationId,
        side: Side,
    ) {
        let Some(key) = self.key(host, vm) else {
            return;
        };
        let fetched_for = self.there.get(&key).copied().flatten() == Some(migration);
        if fetched_for == (side == Side::Destination) {
            self.there.remove(&key);
        }
    }
}

impl World {
    /// Sets the storage of a host for the disks of its guests; hosts with the same one share it.
    pub fn set_storage(&mut self, host: &HostName, storage: &str) {
        self.disks.storage.insert(host.clone(), storage.to_owned());
    }

    /// Returns the storages on which a guest has disks.
    #[must_use]
    pub fn disks_of(&self, vm: VmUid) -> Vec<&str> {
        self.disks.of(vm)
    }

    /// Returns the guests that have disks on any storage.
    #[must_use]
    pub fn guests_with_disks(&self) -> Vec<VmUid> {
        self.disks.guests()
    }

    /// What cannot be done for the disks that are there, or for a guest that uses them.
    pub(super) fn look_at_disks(&self, caller: &Caller, request: &Request) -> Option<Error> {
        match request {
            Request::Start(spec) => self.disks.require(&caller.host, spec).err(),
            Request::DropDisks(vm, ..) => match self.state(&caller.host, *vm) {
                DomainState::Absent | DomainState::Stopped => None,
                state @ (DomainState::Starting
                | DomainState::Running
                | DomainState::Paused
                | DomainState::MigratingOut
                | DomainState::MigratingIn
                | DomainState::Prepared
                | DomainState::PostCopyBroken) => Some(Error::WrongState {
                    vm: *vm,
                    state,
                    attempted: "delete the disks of",
                }),
            },
            Request::Create(_)
            | Request::Destroy(_)
            | Request::Domain(_)
            | Request::Domains
            | Request::Prepare { .. }
            | Request::Cancel(_)
            | Request::CheckTls(_)
            | Request::CheckPeer(..)
            | Request::Migrate { .. }
            | Request::Abort(_)
            | Request::Release(_)
            | Request::FreePages
            | Request::Shutdown(_)
            | Request::Stop(_)
            | Request::Force(..)
            | Request::Forget(_)
            | Request::MakeDisks(_)
            | Request::CopyDisk { .. }
            | Request::PublishImage(_)
            | Request::DropImage(_)
            | Request::Everything
            | Request::Evict(..)
            | Request::FetchDisks(_)
            | Request::StopFetch(_)
            | Request::Erase(_) => None,
        }
    }

    /// Begins a fetch; returns whether there is anything to be fetched.
    pub(super) fn begin_fetch(
        &mut self,
        now: TimeMs,
        caller: &Caller,
        fetch: &Fetch,
    ) -> Result<bool, Error> {
        let (here, source, vm) = (&caller.host, &fetch.source.host, fetch.domain.uid);
        if self.cuts.contains(&pair(here, source)) {
            let message = format!("no route to {source}");
            return Err(Error::Unreachable { message });
        }
        let state = self.host(source).map(|host| host.status(vm).state);
        if self.disks.examine(here, fetch, state)?.is_none() {
            return Ok(false);
        }
        self.next += 1;
        let id = self.next;
        let underway = Underway {
            id,
            caller: caller.clone(),
            source: source.clone(),
            migration: fetch.migration,
        };
        self.disks.underway.insert((here.clone(), vm), underway);
        let step = Step::Fetched(here.clone(), vm, id);
        self.after(now, self.settings.transfer_ms, step);
        Ok(true)
    }

    pub(super) fn fetched(
        &mut self,
        host: &HostName,
        vm: VmUid,
        id: u64,
        completions: &mut Vec<Completion>,
    ) {
        let underway = self.disks.underway.get(&(host.clone(), vm));
        let is_cut = underway.is_some_and(|u| self.cuts.contains(&pair(host, &u.source)));
        let source = underway.map(|u| u.source.clone());
        let state = source.and_then(|name| self.host(&name).map(|host| host.status(vm).state));
        if let Some((caller, result)) = self.disks.end(host, vm, id, is_cut, state) {
            self.answer(caller, result.map(|()| Answer::Done), completions);
        }
    }
}
