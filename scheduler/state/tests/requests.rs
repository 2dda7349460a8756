//! Retries: the first answer is given again, for as long as it is remembered.

mod support;

use berth_domain::flavor::Flavor;
use berth_domain::id::{ClusterId, RequestId};
use berth_state::command::{Command, RequestKey};
use berth_state::request::{AHEAD_MS_MAX, REMEMBERED_MAX};
use berth_state::{Reply, State};
use support::*;
use uuid::{NoContext, Timestamp, Uuid};

fn small(number: u64) -> Flavor {
    flavor(&format!("f{number}"), 1, 64, &[])
}

fn made_at(milliseconds: u64, number: u128) -> RequestId {
    let nanos = u32::try_from(milliseconds % 1000).unwrap() * 1_000_000;
    let time = Timestamp::from_unix(NoContext, milliseconds / 1000, nanos);
    let id = Uuid::new_v7(time).as_u128();
    // The random part is replaced, so that the test always sees the same ids.
    RequestId(Uuid::from_u128((id >> 62 << 62) | number))
}

#[test]
fn a_retry_gets_the_first_answer() {
    let mut world = World::with_hosts(1);
    let create = Command::CreateFlavor(small(1));
    let first = world.run_as(Some(request(1, 7)), create.clone());
    assert!(matches!(first, Ok(Reply::Flavor(_))));
    assert_eq!(world.run_as(Some(request(1, 7)), create.clone()), first);
    let again = world.run_as(Some(request(2, 7)), create.clone());
    assert_eq!(
        reason(&again),
        "FLAVOR_EXISTS",
        "another id is another request"
    );
    assert_eq!(
        world.run_as(Some(request(2, 7)), create.clone()),
        again,
        "refusals too"
    );
    let other = world.run_as(Some(request(1, 8)), Command::CreateFlavor(small(2)));
    assert_eq!(reason(&other), "REQUEST_ID_REUSED");
    assert!(world.state.flavor(&small(2).name).is_none());
    let name = small(1).name;
    world.run(Command::DeleteFlavor { flavor: name }).unwrap();
    let gone = world.run_as(Some(request(1, 7)), create);
    assert_eq!(reason(&gone), "ANSWER_GONE", "it does not run again");
}

#[test]
fn a_retry_of_a_boot_gets_the_same_operation() {
    let mut world = World::with_hosts(1);
    let claim = world.claim("a", &pinned(1), "h1", berth_domain::claim::Owner::Vm);
    let lease = world.lease();
    let begin = |number| Command::BeginBoot {
        operation: operation_id(number),
        vm: vm_name("a"),
        uid: berth_domain::id::VmUid(uuid(4, number)),
        spec: pinned(1),
        requested_host: None,
        claim: claim.clone(),
        lease: lease.clone(),
    };
    let id = |outcome| match outcome {
        Ok(Reply::Operation(operation)) => operation.id,
        other => panic!("{other:?}"),
    };
    let first = id(world.run_as(Some(request(1, 7)), begin(100)));
    let again = id(world.run_as(Some(request(1, 7)), begin(101)));
    assert_eq!((first, again), (operation_id(100), operation_id(100)));
}

/// Applies without the checks of [`World`], which would take quadratic time here.
fn run(state: &mut State, index: u64, at: u64, request: RequestKey, number: u64) -> String {
    let envelope = berth_state::command::Envelope {
        at: berth_domain::id::TimeMs(at),
        principal: "p".to_owned(),
        request: Some(request),
        command: Command::CreateFlavor(small(number)),
    };
    reason(&state.apply(index, &envelope).outcome).to_owned()
}

#[test]
fn an_id_older_than_the_window_is_refused_not_run_again() {
    let mut state = State::new();
    let now = 1_700_000_000_000;
    let key = |id| RequestKey {
        method: "CreateFlavor".to_owned(),
        id,
        payload_hash: 1,
    };
    let first = made_at(now, 1);
    let ahead = made_at(now + AHEAD_MS_MAX + 1_000, 2);
    assert_eq!(run(&mut state, 1, now, key(ahead), 1), "ok");
    assert_eq!(run(&mut state, 2, now, key(first), 2), "ok");
    for number in 0..REMEMBERED_MAX as u64 {
        let id = made_at(now + 10 + number, 3);
        assert_eq!(
            run(&mut state, 3 + number, now + 10, key(id), 10 + number),
            "ok"
        );
    }
    state.check().unwrap();
    assert_eq!(state.rows().count(), 1 + 2 * REMEMBERED_MAX + 2);
    let index = state.revision() + 1;
    let late = run(&mut state, index, now, key(first), 3);
    assert_eq!(late, "REQUEST_ID_FORGOTTEN");
    let before = made_at(now - 1, 9);
    assert_eq!(
        run(&mut state, index + 1, now, key(before), 4),
        "REQUEST_ID_FORGOTTEN"
    );
    let fresh = made_at(now + 1, 9);
    assert_eq!(
        run(&mut state, index + 2, now, key(fresh), 5),
        "ok",
        "a wrong clock shut nobody out"
    );
}

#[test]
fn a_cluster_is_named_once() {
    let mut world = World::default();
    let bootstrap = |number| Command::Bootstrap {
        cluster: ClusterId(uuid(30, number)),
    };
    world.run(bootstrap(1)).unwrap();
    world.run(bootstrap(1)).unwrap();
    assert_eq!(reason(&world.run(bootstrap(2))), "CLUSTER_EXISTS");
    assert_eq!(world.state.cluster(), Some(ClusterId(uuid(30, 1))));
}
