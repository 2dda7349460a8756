//! How a fleet goes back to what it was, and how it follows what really happens.
//!
//! Invariant: a step is undone only after all that came later; what really happens is reported only to
//! a fleet whose steps are undone.

use std::sync::Arc;

use berth_domain::host_view::HostView;
use berth_domain::name::{HostName, VmName};

use super::{Error, Fleet, FleetGuest};
use crate::table::Row;

/// How to undo one step.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A host was taken to have failed.
    Failed {
        at: usize,
        row: Box<Row>,
        lodgers: Vec<VmName>,
    },
    /// A guest was taken off a host.
    Taken {
        guest: Arc<FleetGuest>,
        at: usize,
        row: Box<Row>,
    },
    /// A guest was put on a host; what it was before.
    Put {
        before: Arc<FleetGuest>,
        at: usize,
        row: Box<Row>,
    },
    /// A guest on no host demands something else; what it was before.
    Altered { before: Arc<FleetGuest> },
    /// A claim was placed on a host; what its guest was before, if it was known.
    Joined {
        vm: VmName,
        before: Option<Arc<FleetGuest>>,
        at: usize,
        row: Box<Row>,
    },
}

/// A moment to which a fleet can go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

impl Fleet {
    /// Returns this moment.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.journal.len())
    }

    /// Goes back to a moment.
    pub fn undo(&mut self, mark: Mark) {
        while self.journal.len() > mark.0 {
            let step = self.journal.pop().expect("it is longer than that");
            self.undo_step(step);
        }
    }

    /// Returns the guests that were put on hosts since a moment, in this order; none of them was
    /// taken off again.
    pub fn put_since(&self, mark: Mark) -> impl Iterator<Item = &Arc<FleetGuest>> {
        self.journal[mark.0..].iter().filter_map(|step| match step {
            Step::Put { before, .. } => self.guest(&before.vm),
            Step::Failed { .. }
            | Step::Taken { .. }
            | Step::Altered { .. }
            | Step::Joined { .. } => None,
        })
    }

    /// Places a new claim with its guest. A guest that is known stays where it is: its claim is
    /// for a move that is to begin.
    ///
    /// # Errors
    ///
    /// The claim is on no host that is there; nothing was changed then.
    pub fn join(&mut self, guest: FleetGuest) -> Result<(), Error> {
        let Some(at) = self.place(&guest.claim.host) else {
            return Err(Error::UnknownHost {
                vm: guest.vm.clone(),
                host: guest.claim.host.clone(),
            });
        };
        let row = self.change(at, |view| view.place(&guest.claim));
        let vm = guest.vm.clone();
        let before = self.guest(&vm).cloned();
        match &before {
            Some(known) => {
                let mut known = (**known).clone();
                self.members.add_at(&known, &guest.claim.host);
                known.also_on.push(guest.claim.host.clone());
                self.replace(Arc::new(known));
            }
            None => self.lodge(guest)?,
        }
        self.journal.push(Step::Joined {
            vm,
            before,
            at,
            row,
        });
        Ok(())
    }

    /// Keeps all steps for good: they cannot be undone any more.
    ///
    /// # Panics
    ///
    /// When a host is taken to have failed.
    pub fn keep(&mut self) {
        assert!(self.failed.is_empty(), "a failure is never for good");
        self.journal.clear();
    }

    fn undo_step(&mut self, step: Step) {
        match step {
            Step::Failed { at, row, lodgers } => {
                self.table.restore(at, *row);
                for vm in &lodgers {
                    self.lodged(vm).at = Some(at);
                }
                self.lodgers[at] = lodgers;
                self.failed.pop();
            }
            Step::Taken { guest, at, row } => {
                self.table.restore(at, *row);
                let host = self.name(at).clone();
                self.members.add_at(&guest, &host);
                self.arrive(guest, at);
            }
            Step::Put { before, at, row } => {
                self.table.restore(at, *row);
                let host = self.name(at).clone();
                self.members.remove_at(&before, &host);
                self.leave(&before.vm, at);
                self.replace(before);
            }
            Step::Joined {
                vm,
                before,
                at,
                row,
            } => {
                self.table.restore(at, *row);
                match before {
                    Some(before) => {
                        let host = self.name(at).clone();
                        self.members.remove_at(&before, &host);
                        self.replace(before);
                    }
                    None => self.evict(&vm),
                }
            }
            Step::Altered { before } => {
                self.replace(before);
            }
        }
    }

    fn replace(&mut self, guest: Arc<FleetGuest>) {
        let vm = guest.vm.clone();
        self.lodged(&vm).guest = guest;
    }

    /// Takes a host with its guests as they really are now, in place of what was known of it.
    ///
    /// A guest that was known to be elsewhere is here now; the other host is reported in a call of
    /// its own.
    ///
    /// # Errors
    ///
    /// A guest has its claim on another host, or is given twice; nothing was changed then.
    ///
    /// # Panics
    ///
    /// When there are steps to undo.
    pub fn renew(
        &mut self,
        view: &Arc<HostView>,
        guests: impl IntoIterator<Item = FleetGuest>,
    ) -> Result<(), Error> {
        let guests: Vec<FleetGuest> = guests.into_iter().collect();
        check(&view.host.name, &guests)?;
        self.expect_no_steps();
        self.set_view(view);
        let at = self.place(&view.host.name).expect("it was just set");
        for vm in self.lodgers[at].clone() {
            self.evict(&vm);
        }
        for guest in guests {
            self.evict(&guest.vm.clone());
            self.lodge(guest)?;
        }
        Ok(())
    }

    /// Forgets a host with its guests.
    ///
    /// # Panics
    ///
    /// When there are steps to undo.
    pub fn remove(&mut self, host: &HostName) {
        self.expect_no_steps();
        let Some(at) = self.places.remove(host) else {
            return;
        };
        for vm in self.lodgers[at].clone() {
            self.evict(&vm);
        }
        self.table.remove(at);
        self.lodgers.swap_remove(at);
        if let Some(moved) = self.table.views.get(at) {
            self.places.insert(moved.host.name.clone(), at);
            for vm in self.lodgers[at].clone() {
                self.lodged(&vm).at = Some(at);
            }
        }
    }

    pub(super) fn set_view(&mut self, view: &Arc<HostView>) {
        let name = &view.host.name;
        if let Some(at) = self.place(name) {
            self.table.replace(at, view);
            return;
        }
        self.places.insert(name.clone(), self.table.len());
        self.table.push(view);
        self.lodgers.push(Vec::new());
    }

    /// Takes note of a guest whose claim its host's view counts already.
    pub(super) fn lodge(&mut self, guest: FleetGuest) -> Result<(), Error> {
        let host = &guest.claim.host;
        if let Some(known) = self.guest(&guest.vm) {
            return Err(Error::Twice {
                vm: guest.vm.clone(),
                first: known.claim.host.clone(),
                second: host.clone(),
            });
        }
        let Some(at) = self.place(host) else {
            return Err(Error::UnknownHost {
                vm: guest.vm.clone(),
                host: host.clone(),
            });
        };
        self.members.add(&guest);
        self.arrive(Arc::new(guest), at);
        Ok(())
    }

    /// Forgets a guest, if it is known; its host's view stays as it is.
    fn evict(&mut self, vm: &VmName) {
        let Some(guest) = self.guest(vm).cloned() else {
            return;
        };
        if let Some(at) = self.place_of(vm) {
            self.leave(vm, at);
            self.members.remove_at(&guest, &guest.claim.host);
        }
        for host in &guest.also_on {
            self.members.remove_at(&guest, host);
        }
        self.guests.remove(vm);
    }

    fn expect_no_steps(&self) {
        assert!(self.journal.is_empty(), "all steps are undone before");
    }
}

fn check(host: &HostName, guests: &[FleetGuest]) -> Result<(), Error> {
    let mut names = std::collections::BTreeSet::new();
    for guest in guests {
        if guest.claim.host != *host {
            return Err(Error::UnknownHost {
                vm: guest.vm.clone(),
                host: guest.claim.host.clone(),
            });
        }
        if !names.insert(&guest.vm) {
            return Err(Error::Twice {
                vm: guest.vm.clone(),
                first: host.clone(),
                second: host.clone(),
            });
        }
    }
    Ok(())
}
