//! Retries: the outcome is given again as it was, for as long as it is remembered.

use berth_domain::flavor::Flavor;
use berth_domain::id::{ClusterId, RequestId, TimeMs};
use berth_domain::refusal::Refusal;
use berth_domain::version::ServiceVersion;
use berth_state::command::{Command, Envelope, RequestKey};
use berth_state::request::{OUTCOMES_BYTES_MAX, REMEMBERED_MAX};
use berth_state::{Reply, State};
use berth_testkit::state::placement::{create, inventories};
use berth_testkit::state::*;
use uuid::{NoContext, Timestamp, Uuid};

fn small(number: u64) -> Flavor {
    flavor(&format!("f{number}"), 1, 64, &[])
}

fn made_at(milliseconds: u64, number: u128) -> RequestId {
    let nanos = u32::try_from(milliseconds % 1000).unwrap() * 1_000_000;
    let time = Timestamp::from_unix(NoContext, milliseconds / 1000, nanos);
    let id = Uuid::new_v7(time).as_u128();
    // The random part is replaced, so that the test always sees the same ids.
    let (version, variant) = (7 << 76, 0b10 << 62);
    RequestId(Uuid::from_u128(id >> 80 << 80 | version | variant | number))
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
    assert_eq!(world.run_as(Some(request(1, 7)), create), first);
    assert_eq!(world.state.flavor(&small(1).name), None, "it ran once");
}

/// A client that wrote at generation 1 got the provider at generation 5, with what others had
/// written; its next write overwrote that.
#[test]
fn a_retry_does_not_show_later_writes() {
    let mut world = World::with_hosts(0);
    world.run(create(1, None)).unwrap();
    let write = |generation, total| inventories(1, generation, &[("VCPU", total)]);
    let first = world.run_as(Some(request(1, 7)), write(0, 111));
    for (generation, total) in [(1, 222), (2, 333), (3, 444)] {
        world.run(write(generation, total)).unwrap();
    }
    let again = world.run_as(Some(request(1, 7)), write(0, 111));
    assert_eq!(again, first);
    let Ok(Reply::Provider(provider)) = again else {
        panic!("{again:?}");
    };
    assert_eq!(provider.generation.0, 1);
    let stale = world.run(write(provider.generation.0, 112));
    assert_eq!(reason(&stale), "PROVIDER_GENERATION");
}

/// Goal: members before and after the upgrade agree: the older version answers with the object as
/// it is by then, also after the version is raised, until the request is forgotten.
#[test]
fn a_receipt_of_an_older_version_stays_what_it_was() {
    let before = ServiceVersion(ServiceVersion::RECORDED_OUTCOMES.0 - 1);
    let mut world = World::at_version(before, 0);
    let flavor = Command::CreateFlavor(small(1));
    world.run_as(Some(request(1, 7)), flavor.clone()).unwrap();
    world.run_as(Some(request(2, 7)), create(1, None)).unwrap();
    assert_eq!(world.state.remembered(), (2, 0), "it weighs nothing");
    let raise = Command::FinalizeUpgrade {
        version: ServiceVersion::RECORDED_OUTCOMES,
        gone: Default::default(),
    };
    world.run_as(Some(request(3, 7)), raise).unwrap();
    assert_eq!(world.state.remembered(), (3, 0));
    let name = small(1).name;
    world.run(Command::DeleteFlavor { flavor: name }).unwrap();
    let deleted = world.run_as(Some(request(1, 7)), flavor);
    assert_eq!(reason(&deleted), "ANSWER_GONE");
    world.run(inventories(1, 0, &[("VCPU", 1)])).unwrap();
    let Ok(Reply::Provider(provider)) = world.run_as(Some(request(2, 7)), create(1, None)) else {
        panic!("a provider");
    };
    assert_eq!(provider.generation.0, 1);
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
        spec: Box::new(pinned(1)),
        requested_host: None,
        claim: claim.clone(),
        lease: lease.clone(),
        project: None,
        restart: Default::default(),
        first_boot: None,
        metadata: Default::default(),
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
fn run(state: &mut State, at: u64, id: RequestId) -> String {
    let envelope = Envelope {
        at: TimeMs(at),
        principal: "p".to_owned(),
        audit: None,
        request: Some(RequestKey {
            method: "Bootstrap".to_owned(),
            id,
            payload_hash: 1,
        }),
        command: Command::Bootstrap {
            cluster: ClusterId(uuid(30, 1)),
        },
    };
    reason(&state.apply(state.revision() + 1, &envelope).outcome).to_owned()
}

/// Fills the window with requests that were made `ahead` of the moment when they were received.
fn fill(state: &mut State, now: u64, ahead: u64) {
    for number in 0..REMEMBERED_MAX as u64 {
        let id = made_at(now + ahead + number, 3);
        assert_eq!(run(state, now + number, id), "ok");
    }
}

const NOW: u64 = 1_700_000_000_000;

#[test]
fn an_id_older_than_the_window_is_refused_not_run_again() {
    let mut state = State::new();
    let first = made_at(NOW, 1);
    assert_eq!(run(&mut state, NOW, first), "ok");
    fill(&mut state, NOW + 10, 0);
    state.check().unwrap();
    assert_eq!(state.rows().count(), 1 + REMEMBERED_MAX);
    let late = NOW + 10 + REMEMBERED_MAX as u64;
    assert_eq!(run(&mut state, late, first), "REQUEST_ID_FORGOTTEN");
    let before = made_at(NOW - 1, 9);
    assert_eq!(run(&mut state, late, before), "REQUEST_ID_FORGOTTEN");
    let after = made_at(NOW + 1, 9);
    assert_eq!(run(&mut state, late, after), "ok");
}

/// Ids made some minutes ahead raised the mark to their own time, and everybody else's requests
/// counted as forgotten from then on.
#[test]
fn a_client_whose_clock_is_ahead_shuts_nobody_out() {
    let mut state = State::new();
    let minutes = 4 * 60_000;
    let first = made_at(NOW + minutes, 1);
    assert_eq!(run(&mut state, NOW, first), "ok");
    fill(&mut state, NOW + 1, minutes);
    let late = NOW + 1 + REMEMBERED_MAX as u64;
    let fresh = made_at(late, 9);
    assert_eq!(run(&mut state, late, fresh), "ok");
    let old = made_at(NOW, 9);
    assert_eq!(run(&mut state, late, old), "REQUEST_ID_FORGOTTEN");
    // Its own id meets the mark once requests of that time are dropped.
    fill(&mut state, late + minutes, 0);
    fill(&mut state, late + 2 * minutes, 0);
    let at = late + 3 * minutes;
    assert_eq!(run(&mut state, at, first), "REQUEST_ID_FORGOTTEN");
}

/// Creates a flavor of this size in memory, under an id that was made then.
fn create_large(state: &mut State, at: u64, bytes: usize) -> Result<Reply, Refusal> {
    let envelope = Envelope {
        at: TimeMs(at),
        principal: "p".to_owned(),
        audit: None,
        request: Some(RequestKey {
            method: "CreateFlavor".to_owned(),
            id: made_at(at, 1),
            payload_hash: 1,
        }),
        command: Command::CreateFlavor(flavor(
            &format!("f{at}"),
            1,
            64,
            &[("description", &"x".repeat(bytes))],
        )),
    };
    state.apply(state.revision() + 1, &envelope).outcome
}

/// Goal: outcomes are bounded by their memory; the oldest are forgotten first, and their requests are
/// not run again; a member that was rebuilt forgets the same ones. Method: outcomes of 64 KiB, half as
/// many again as are remembered.
#[test]
fn the_oldest_outcomes_are_forgotten_by_their_memory() {
    const LARGE: usize = 64 << 10;
    let mut state = World::with_hosts(0).state;
    let fit = OUTCOMES_BYTES_MAX / LARGE as u64;
    let half = NOW + fit / 2;
    for at in NOW..half {
        create_large(&mut state, at, LARGE).unwrap();
    }
    assert_eq!(state.remembered().0 as u64, fit / 2);
    let mut rebuilt = State::from_rows(state.rows()).unwrap();
    assert_eq!(rebuilt.remembered(), state.remembered());
    let end = NOW + fit * 3 / 2;
    for at in half..end {
        create_large(&mut state, at, LARGE).unwrap();
        create_large(&mut rebuilt, at, LARGE).unwrap();
    }
    assert!(state == rebuilt && State::from_rows(state.rows()).unwrap() == state);
    state.check().unwrap();
    let (requests, bytes) = state.remembered();
    assert_eq!(requests as u64, end - NOW, "the requests are known");
    assert!(bytes <= OUTCOMES_BYTES_MAX && bytes > OUTCOMES_BYTES_MAX * 9 / 10);
    let answers = (NOW..end).map(|at| create_large(&mut state, at, LARGE));
    let answers: Vec<_> = answers.map(|outcome| reason(&outcome).to_owned()).collect();
    let recalled = answers.iter().filter(|answer| *answer == "ok").count();
    assert!(recalled as u64 * LARGE as u64 > OUTCOMES_BYTES_MAX * 9 / 10);
    let (forgotten, newer) = answers.split_at(answers.len() - recalled);
    assert!(forgotten.iter().all(|answer| answer == "OUTCOME_FORGOTTEN"));
    assert!(newer.iter().all(|answer| answer == "ok"));
    assert_eq!(state.flavors().len() as u64, end - NOW, "each ran once");
}

/// Goal: an outcome that alone exceeds the bound is given again, until there is a newer one.
#[test]
fn the_newest_outcome_is_remembered_whatever_it_weighs() {
    let mut state = World::with_hosts(0).state;
    create_large(&mut state, NOW, 1).unwrap();
    let huge = usize::try_from(OUTCOMES_BYTES_MAX).unwrap() + 1;
    let first = create_large(&mut state, NOW + 1, huge);
    state.check().unwrap();
    assert!(create_large(&mut state, NOW + 1, huge) == first && first.is_ok());
    let before = create_large(&mut state, NOW, 1);
    assert_eq!(reason(&before), "OUTCOME_FORGOTTEN");
    create_large(&mut state, NOW + 2, 1).unwrap();
    assert!(state.remembered().1 < OUTCOMES_BYTES_MAX);
    let after = create_large(&mut state, NOW + 1, huge);
    assert_eq!(reason(&after), "OUTCOME_FORGOTTEN");
}

/// Who asks is a part of a request's name: one client's ids do not meet another's.
#[test]
fn one_principals_ids_do_not_meet_anothers() {
    let mut state = State::new();
    let create = |state: &mut State, principal: &str, method: &str, number| {
        let envelope = Envelope {
            at: TimeMs(NOW),
            principal: principal.to_owned(),
            audit: None,
            request: Some(RequestKey {
                method: method.to_owned(),
                ..request(1, u128::from(number))
            }),
            command: Command::CreateFlavor(small(number)),
        };
        let outcome = state.apply(state.revision() + 1, &envelope).outcome;
        reason(&outcome).to_owned()
    };
    assert_eq!(create(&mut state, "a", "CreateFlavor", 1), "ok");
    assert_eq!(create(&mut state, "a", "CreateFlavor", 1), "ok");
    assert_eq!(
        create(&mut state, "a", "CreateFlavor", 2),
        "REQUEST_ID_REUSED"
    );
    assert_eq!(create(&mut state, "b", "CreateFlavor", 2), "ok");
    assert_eq!(
        create(&mut state, "b", "CreateFlavor", 1),
        "REQUEST_ID_REUSED"
    );
    let other = create(&mut state, "c", "CreateFlavor", 1);
    assert_eq!(
        other, "FLAVOR_EXISTS",
        "it was carried out, not answered again"
    );
    assert_eq!(
        create(&mut state, "a", "AddFlavor", 3),
        "ok",
        "nor do methods"
    );
    state.check().unwrap();
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
