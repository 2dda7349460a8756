//! Goal: the audit holds what somebody asked for and what came of it, once and in bounded number,
//! on every member the same.

use berth_domain::audit::{Entry, Outcome, RequestSummary};
use berth_domain::id::TimeMs;
use berth_state::apply::AUDIT_MAX;
use berth_state::command::{Command, Envelope, RequestKey};
use berth_state::{Key, State};
use berth_testkit::state::*;

fn request_summary(method: &str) -> RequestSummary {
    RequestSummary {
        method: method.to_owned(),
        request_id: None,
        vm: None,
        host: None,
        summary: String::new(),
        choice: None,
    }
}

fn envelope(request: Option<RequestKey>, command: Command) -> Envelope {
    Envelope {
        at: TimeMs(7_000),
        principal: "somebody".to_owned(),
        audit: Some(Box::new(request_summary("Test"))),
        request,
        command,
    }
}

fn apply(state: &mut State, envelope: &Envelope) -> Vec<Key> {
    let index = state.revision() + 1;
    let mut speculative = state.clone();
    let foretold = speculative.speculate(index, envelope);
    let applied = state.apply(index, envelope);
    assert_eq!(applied.outcome, foretold);
    assert!(*state == speculative, "speculating differs");
    state.check().unwrap();
    let keys = applied.changes.into_iter().map(|change| change.key);
    keys.filter(|key| matches!(key, Key::Audit(_))).collect()
}

fn latest(state: &State) -> &Entry {
    state.audit().get_max().map(|(_, entry)| entry).unwrap()
}

/// Goal: what was done and what was refused are noted, a retry is not, nor what nobody asked for.
#[test]
fn each_request_is_noted_once() {
    let mut state = World::with_hosts(1).state;
    let make = Command::CreateFlavor(flavor("a", 1, 64, &[]));
    let request = RequestKey {
        method: "CreateFlavor".to_owned(),
        id: berth_domain::id::RequestId(uuid(9, 1)),
        payload_hash: 1,
    };
    let made = envelope(Some(request), make.clone());
    let revision = state.revision() + 1;
    assert_eq!(apply(&mut state, &made), [Key::Audit(revision)]);
    let entry = latest(&state).clone();
    assert_eq!(
        (entry.revision, entry.principal.as_str()),
        (revision, "somebody")
    );
    assert_eq!(
        (entry.at, entry.request),
        (state.time(), request_summary("Test"))
    );
    assert_eq!(entry.outcome, Outcome::Accepted { operation: None });

    assert_eq!(apply(&mut state, &made), [], "a retry");
    let again = envelope(None, make.clone());
    assert_eq!(apply(&mut state, &again).len(), 1);
    let Outcome::Refused(refusal) = &latest(&state).outcome else {
        panic!("{:?}", latest(&state));
    };
    assert_eq!(refusal.reason, "FLAVOR_EXISTS");
    let nobody = Envelope {
        audit: None,
        ..envelope(
            None,
            Command::DeleteFlavor {
                flavor: flavor("a", 1, 64, &[]).name,
            },
        )
    };
    assert_eq!(apply(&mut state, &nobody), []);
    assert_eq!(state.audit().len(), 2);
    assert!(State::from_rows(state.rows()).unwrap() == state);
}

/// Goal: who names an operation alone is found with its VM.
#[test]
fn an_operation_leads_to_its_vm() {
    let mut world = World::with_hosts(1);
    let operation = world.begin_boot("a", &pinned(1), "h1").unwrap();
    let cancel = envelope(None, Command::CancelOperation { operation });
    let _ = apply(&mut world.state, &cancel);
    let entry = latest(&world.state);
    assert_eq!(
        entry.request.vm,
        world
            .state
            .operation(operation)
            .and_then(|o| o.vm().cloned())
    );
    assert_eq!(
        entry.outcome,
        Outcome::Accepted {
            operation: Some(operation)
        }
    );
}

/// Goal: the oldest entries make room, and members are told that they are gone.
#[test]
fn the_oldest_are_forgotten() {
    let mut state = World::with_hosts(1).state;
    let wrong = envelope(
        None,
        Command::DeleteFlavor {
            flavor: flavor("x", 1, 64, &[]).name,
        },
    );
    let first = state.revision() + 1;
    for index in first..first + AUDIT_MAX as u64 {
        let _ = state.apply(index, &wrong);
    }
    assert_eq!(state.audit().len(), AUDIT_MAX);
    let more = state.revision() + 1;
    assert_eq!(
        apply(&mut state, &wrong),
        [Key::Audit(more), Key::Audit(first)]
    );
    assert_eq!(state.audit().len(), AUDIT_MAX);
    assert_eq!(
        state.audit().get_min().map(|(revision, _)| *revision),
        Some(first + 1)
    );
}
