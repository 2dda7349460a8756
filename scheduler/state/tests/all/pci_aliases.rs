//! PCI aliases: made once, never changed, deleted without harm, and as many as anybody makes.

use berth_domain::id::TimeMs;
use berth_state::command::{Command, Envelope};
use berth_state::{Reply, State};
use berth_testkit::state::*;

fn create(name: &str) -> Command {
    Command::CreatePciAlias(pci_alias(name))
}

#[test]
fn an_alias_is_made_once_and_deleted() {
    let mut world = World::with_hosts(1);
    let first = world.run_as(Some(request(1, 7)), create("gpu"));
    let Ok(Reply::PciAlias(alias)) = &first else {
        panic!("{first:?}");
    };
    assert_eq!(**alias, pci_alias("gpu"));
    assert_eq!(world.run_as(Some(request(1, 7)), create("gpu")), first);
    let mut other = pci_alias("gpu");
    other.policy = None;
    let refused = world.run(Command::CreatePciAlias(other)).unwrap_err();
    assert_eq!(refused.reason, "PCI_ALIAS_EXISTS");
    assert_eq!(refused.message, "pci alias gpu exists already");

    let remove = Command::DeletePciAlias {
        alias: pci_alias("gpu").name,
    };
    world.run(remove.clone()).unwrap();
    let refused = world.run(remove).unwrap_err();
    assert_eq!(refused.reason, "PCI_ALIAS_NOT_FOUND");
    assert_eq!(refused.message, "pci alias gpu does not exist");
    let again = world.run_as(Some(request(1, 7)), create("gpu"));
    assert_eq!(reason(&again), "ok");
    assert_eq!(world.state.pci_alias(&pci_alias("gpu").name), None);
}

/// Goal: ten thousand aliases are no trouble, and a state made of its rows has them all.
#[test]
fn there_may_be_many() {
    let mut state = State::new();
    for number in 0..10_000 {
        let envelope = Envelope {
            at: TimeMs(number),
            principal: "unverified:test".to_owned(),
            request: None,
            audit: None,
            command: create(&format!("alias-{number}")),
        };
        state.apply(number, &envelope).outcome.unwrap();
    }
    assert_eq!(state.pci_aliases().len(), 10_000);
    assert!(State::from_rows(state.rows()).unwrap() == state);
}
