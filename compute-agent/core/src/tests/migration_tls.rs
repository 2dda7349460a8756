//! Encryption of live migrations: what two agents agree on, and that a guest never moves in plain text
//! where one of them requires encryption.

use berth_domain::agent::{DomainState, Reply};
use berth_domain::claim::{Claim, Owner};
use berth_domain::id::ClaimId;
use berth_domain::instance::PageSize;
use berth_domain::migration_tls::TlsPolicy;
use berth_domain::refusal::Refusal;
use berth_driver::Kind;
use berth_driver::conformance::sample;
use berth_driver::sim::Behaviour;
use uuid::Uuid;

use super::rig::{Guest, Rig, host, migration};

fn rig(here: TlsPolicy, there: TlsPolicy) -> (Rig, Guest) {
    let mut rig = Rig::new(&[4, 4]);
    let guest = Guest::new("a", 1, sample::pinned_spec(2, PageSize::Unspecified));
    let on = sample::pins(0, &[1, 2], None);
    rig.spawn(&host("h1"), &guest, on).unwrap();
    rig.set_tls(&host("h1"), here);
    rig.set_tls(&host("h2"), there);
    (rig, guest.under(77, 2))
}

/// Goal: each pair of settings encrypts, stays plain or is refused with the name of the host to change,
/// whatever each side can do; and a refusal is before anything is prepared.
#[test]
fn every_pair_of_agents_agrees_or_is_refused_before_anything_moves() {
    let (h1, h2) = (host("h1"), host("h2"));
    for (here, there) in TlsPolicy::ALL
        .into_iter()
        .flat_map(|here| TlsPolicy::ALL.map(|there| (here, there)))
    {
        for cannot in [None, Some(&h1), Some(&h2)] {
            let (mut rig, guest) = rig(here, there);
            if let Some(name) = cannot {
                let refuse = Behaviour::Refuse("no certificates".to_owned());
                rig.world.script(name, Kind::CheckTls, [refuse]);
            }
            let on = |policy: TlsPolicy, name| policy != TlsPolicy::Off && cannot != Some(name);
            let both = on(here, &h1) && on(there, &h2);
            let required = [here, there].contains(&TlsPolicy::Require);
            match rig.check(&h1, &h2, &guest) {
                Ok(data) => {
                    assert_eq!(data.tls, both, "{here} {there} {cannot:?}");
                    assert!(both || !required, "{here} {there} {cannot:?}");
                }
                Err(refusal) => {
                    assert!(required && !both, "{here} {there} {cannot:?}: {refusal:?}");
                    let blamed = if on(here, &h1) { "h2" } else { "h1" };
                    assert_eq!(refusal.metadata["host"], blamed, "{refusal:?}");
                }
            }
            assert_eq!(rig.state(&h1, &guest), DomainState::Running);
            assert_eq!(rig.state(&h2, &guest), DomainState::Absent);
        }
    }
}

fn is_not_encrypted(refusal: &Refusal, host: &str) {
    assert_eq!(refusal.reason, "MIGRATION_NOT_ENCRYPTED");
    assert_eq!(refusal.metadata["host"], host);
}

/// Goal: an older conductor that drops what was agreed on, or an older source, cannot have a guest sent in
/// plain text. Method: the agreement is taken out of `migrate_data` on its way.
#[test]
fn a_side_that_requires_encryption_refuses_plain_text_by_itself() {
    let (h1, h2) = (host("h1"), host("h2"));
    let (mut rig, guest) = rig(TlsPolicy::Require, TlsPolicy::Require);
    let mut data = rig.check(&h1, &h2, &guest).unwrap();
    assert!(data.tls);
    data.claim = Some(Claim {
        id: ClaimId(Uuid::from_u128(4242)),
        owner: Owner::Migration(migration(1)),
        ..guest.claim(&h2, sample::pins(0, &[1, 2], None))
    });
    let (_, data) = rig.fit(&h2, &guest, data).unwrap();
    assert!(data.tls, "the destination keeps it");
    let plain = berth_domain::migration::MigrateData {
        tls: false,
        ..data.clone()
    };
    is_not_encrypted(&rig.prepare(&h2, &guest, 1, &plain).unwrap_err(), "h2");
    assert_eq!(rig.state(&h2, &guest), DomainState::Absent);
    rig.prepare(&h2, &guest, 1, &data).unwrap();
    // Its state is not queried in between: after that nothing is sent at all.
    is_not_encrypted(&rig.send(&h1, &guest, 1, &plain).unwrap_err(), "h1");
    assert_eq!(rig.send(&h1, &guest, 1, &data), Ok(Reply::Done));
    while rig.state(&h2, &guest) != DomainState::Running {}
}

/// Goal: a hypervisor that does not answer is no hypervisor without certificates.
#[test]
fn a_check_that_is_not_answered_is_no_verdict() {
    let (h1, h2) = (host("h1"), host("h2"));
    for name in [&h1, &h2] {
        let (mut rig, guest) = rig(TlsPolicy::Prefer, TlsPolicy::Prefer);
        let gone = Behaviour::Gone { effect: false };
        rig.world.script(name, Kind::CheckTls, [gone]);
        let refusal = rig.check(&h1, &h2, &guest).unwrap_err();
        assert_ne!(refusal.reason, "MIGRATION_TLS_UNAVAILABLE", "{refusal:?}");
        assert!(rig.check(&h1, &h2, &guest).unwrap().tls);
    }
}

/// A fault of any length fits into a report.
#[test]
fn a_long_fault_is_cut() {
    let h2 = host("h2");
    let (mut rig, guest) = rig(TlsPolicy::Require, TlsPolicy::Require);
    let refuse = Behaviour::Refuse("é".repeat(5_000));
    rig.world.script(&h2, Kind::CheckTls, [refuse]);
    let check = rig.check_destination(&h2, &guest).unwrap();
    let fault = check.tls.and_then(|report| report.fault);
    assert!(fault.is_some_and(|fault| (400..=512).contains(&fault.len())));
}
