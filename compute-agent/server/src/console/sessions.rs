//! Who types on the consoles of this host's guests: one session a guest.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use berth_domain::id::VmUid;
use berth_domain::refusal::{Code, Refusal};
use tokio_util::sync::CancellationToken;

/// Which sessions type on the consoles of this host's guests. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    typing: BTreeMap<VmUid, Typing>,
    /// How many there were.
    count: u64,
}

/// A session that types.
struct Typing {
    number: u64,
    user: String,
    since: Instant,
    /// Cancelled when another one takes its place.
    taken_over: CancellationToken,
}

impl Sessions {
    /// Begins a session, in the place of another one where `take_over` says so.
    pub(super) fn enter(
        &self,
        vm: VmUid,
        user: String,
        take_over: bool,
    ) -> Result<Session, Refusal> {
        let mut table = self.table();
        if let Some(other) = table.typing.get(&vm) {
            if !take_over {
                return Err(in_use(vm, other));
            }
            other.taken_over.cancel();
        }
        table.count += 1;
        let number = table.count;
        let taken_over = CancellationToken::new();
        let typing = Typing {
            number,
            user,
            since: Instant::now(),
            taken_over: taken_over.clone(),
        };
        table.typing.insert(vm, typing);
        Ok(Session {
            sessions: self.clone(),
            vm,
            number,
            taken_over,
        })
    }

    /// Returns who types on the console of a guest now.
    pub(super) fn user(&self, vm: VmUid) -> Option<String> {
        let table = self.table();
        table.typing.get(&vm).map(|typing| typing.user.clone())
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The map is whole between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to type, until it is dropped or taken over.
pub(super) struct Session {
    pub(super) sessions: Sessions,
    pub(super) vm: VmUid,
    number: u64,
    /// Cancelled when another one has taken its place.
    pub(super) taken_over: CancellationToken,
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut table = self.sessions.table();
        let own = table.typing.get(&self.vm);
        if own.is_some_and(|typing| typing.number == self.number) {
            table.typing.remove(&self.vm);
        }
    }
}

fn in_use(vm: VmUid, other: &Typing) -> Refusal {
    let Typing { user, since, .. } = other;
    let seconds = since.elapsed().as_secs();
    let message = format!("{user} has typed on this console for {seconds} s");
    Refusal::new(Code::FailedPrecondition, "CONSOLE_IN_USE", message)
        .with("vm_uid", vm)
        .with("user", user)
        .with("since_s", seconds)
        .with_hint("--take-over ends that session; without --interactive any number of users read")
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    /// Goal: one session a guest, whatever ends first.
    #[test]
    fn a_session_holds_its_console_until_it_ends_or_is_taken_over() {
        let sessions = Sessions::default();
        let vm = VmUid(Uuid::from_u128(1));
        let other = VmUid(Uuid::from_u128(2));
        let enter = |vm, user: &str, take_over| sessions.enter(vm, user.to_owned(), take_over);
        let alice = enter(vm, "operator:alice", false).unwrap();
        let apart = enter(other, "operator:bob", false).unwrap();
        let refusal = enter(vm, "operator:bob", false).err().unwrap();
        assert_eq!(refusal.reason, "CONSOLE_IN_USE");
        assert_eq!(refusal.metadata["user"], "operator:alice");
        assert!(!alice.taken_over.is_cancelled());

        let bob = enter(vm, "operator:bob", true).unwrap();
        assert!(alice.taken_over.is_cancelled() && !apart.taken_over.is_cancelled());
        // The end of the one that was taken over ends nothing of the other.
        drop(alice);
        assert_eq!(sessions.user(vm).as_deref(), Some("operator:bob"));
        assert!(enter(vm, "operator:alice", false).is_err());
        drop(bob);
        assert_eq!(sessions.user(vm), None);
        assert!(enter(vm, "operator:alice", false).is_ok());
    }
}
