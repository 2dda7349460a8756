//! Every fact that can be read of a host, with the finding that follows.

use std::collections::BTreeMap;

use berth_domain::host_check::{CheckOutcome, HostFinding, check};
use berth_domain::migration_tls::TlsPolicy;
use berth_driver::conformance::sample;
use berth_driver_api::FreePages;

use super::rig::{Rig, host};
use crate::Facts;
use crate::host_check::{
    DirectoryFacts, HypervisorFacts, MachineFacts, Space, WatchdogFacts, WatchdogStanding,
    own_findings, peer_finding,
};

fn facts() -> Facts {
    Rig::new(&[4]).agents[&host("h1")].facts().clone()
}

/// A hypervisor without guests on a host with 128 pages of 2 MiB on each of two NUMA nodes.
fn hypervisor(free: u64) -> HypervisorFacts {
    let pools = BTreeMap::from([(4, 0), (2048, free)]);
    let nodes = facts()
        .topology
        .cells()
        .iter()
        .map(|c| (c.id, pools.clone()))
        .collect();
    HypervisorFacts {
        name: "simulated 1".to_owned(),
        version: "1.0.0".to_owned(),
        assignments: Vec::new(),
        free_pages: Ok(nodes),
    }
}

/// Returns the outcomes of one check.
fn outcomes(findings: &[HostFinding], of: &str) -> Vec<CheckOutcome> {
    for finding in findings {
        let is_good = finding.outcome == CheckOutcome::Ok;
        assert_eq!(finding.hint.is_none(), is_good, "{finding:?}");
    }
    let of = findings.iter().filter(|finding| finding.check == of);
    of.map(|finding| finding.outcome).collect()
}

#[test]
fn every_setting_and_fault_of_encryption() {
    use CheckOutcome::{Failed, Ok as Good, Warning};
    for (policy, fault, expected) in [
        (TlsPolicy::Off, false, Good),
        (TlsPolicy::Prefer, false, Good),
        (TlsPolicy::Require, false, Good),
        (TlsPolicy::Prefer, true, Warning),
        (TlsPolicy::Require, true, Failed),
    ] {
        let facts = Facts {
            tls: policy,
            ..facts()
        };
        let machine = MachineFacts {
            tls_fault: fault.then(|| "é".repeat(5_000)),
            ..MachineFacts::default()
        };
        let findings = own_findings(&facts, Ok(&hypervisor(128)), Some(&machine), None);
        assert_eq!(
            outcomes(&findings, check::ENCRYPTION),
            [expected],
            "{policy} {fault}"
        );
        assert!(findings.iter().all(|finding| finding.message.len() <= 1024));
    }
}

#[test]
fn every_state_of_a_watchdog() {
    use CheckOutcome::{Failed, Ok as Good};
    for (standing, expected) in [
        (WatchdogStanding::Off, Good),
        (WatchdogStanding::Armed, Good),
        (WatchdogStanding::Broken, Failed),
    ] {
        let watchdog = WatchdogFacts {
            device: "/dev/watchdog0".to_owned(),
            timeout_s: 10,
            standing,
        };
        // Whatever else hangs.
        for machine in [None, Some(&MachineFacts::default())] {
            let findings = own_findings(&facts(), Err("no answer"), machine, Some(&watchdog));
            assert_eq!(outcomes(&findings, check::WATCHDOG), [expected]);
        }
    }
    let findings = own_findings(&facts(), Err("no answer"), None, None);
    assert_eq!(outcomes(&findings, check::WATCHDOG), []);
}

#[test]
fn every_state_of_a_directory() {
    use CheckOutcome::{Failed, Ok as Good, Warning};
    let space = |is_writable, free_bytes| {
        Ok(Space {
            is_writable,
            free_bytes,
        })
    };
    let much = 1 << 40;
    for (space, must_write, expected) in [
        (space(true, much), true, Good),
        (space(true, much), false, Good),
        (space(true, 0), true, Warning),
        (space(true, 0), false, Good),
        (space(false, much), true, Failed),
        (space(false, much), false, Warning),
        (Err("absent".to_owned()), true, Failed),
        (Err("absent".to_owned()), false, Failed),
    ] {
        let machine = MachineFacts {
            directories: vec![DirectoryFacts {
                key: "libvirt.instance_dir",
                path: "/instances".to_owned(),
                must_write,
                space: space.clone(),
            }],
            ..MachineFacts::default()
        };
        let findings = own_findings(&facts(), Ok(&hypervisor(128)), Some(&machine), None);
        let case = format!("{space:?} {must_write}");
        assert_eq!(outcomes(&findings, check::DIRECTORY), [expected], "{case}");
    }
}

#[test]
fn what_does_not_answer_is_reported_and_hides_nothing_else() {
    use CheckOutcome::{Failed, Ok as Good, Unknown};
    let machine = MachineFacts::default();
    let findings = own_findings(&facts(), Err("no connection"), Some(&machine), None);
    assert_eq!(outcomes(&findings, check::HYPERVISOR), [Failed]);
    assert_eq!(outcomes(&findings, check::ENCRYPTION), [Good]);
    let findings = own_findings(&facts(), Ok(&hypervisor(128)), None, None);
    assert_eq!(outcomes(&findings, check::HYPERVISOR), [Good]);
    assert_eq!(outcomes(&findings, check::DIRECTORY), [Unknown]);
    assert_eq!(outcomes(&findings, check::HUGE_PAGES), [Good]);
}

#[test]
fn free_huge_pages_are_compared_with_what_the_guests_leave() {
    use CheckOutcome::{Ok as Good, Unknown, Warning};
    // 128 MiB of the guest: 64 pages.
    let guest = sample::pins(0, &[1], Some(2048));
    for (guests, free, expected) in [
        (0, 128, &[Good][..]),
        (0, 127, &[Warning, Warning]),
        (1, 128, &[Good]),
        (2, 128, &[Good]),
        // The guest is on node 0; on node 1 all have to be free.
        (1, 64, &[Warning]),
        (1, 63, &[Warning, Warning]),
        (2, 0, &[Warning]),
    ] {
        let mut hypervisor = hypervisor(free);
        hypervisor.assignments = vec![guest.clone(); guests];
        let findings = own_findings(&facts(), Ok(&hypervisor), None, None);
        let found = outcomes(&findings, check::HUGE_PAGES);
        assert_eq!(found, expected, "{guests} guests, {free} free");
    }
    let mut unreadable = hypervisor(0);
    unreadable.free_pages = Err("no such file".to_owned());
    let findings = own_findings(&facts(), Ok(&unreadable), None, None);
    assert_eq!(outcomes(&findings, check::HUGE_PAGES), [Unknown]);
    // A pool that the host does not report is no pool that is empty: nothing is compared.
    let mut none = hypervisor(0);
    none.free_pages = Ok(FreePages::default());
    let findings = own_findings(&facts(), Ok(&none), None, None);
    assert_eq!(outcomes(&findings, check::HUGE_PAGES), []);
}

#[test]
fn every_result_of_connecting_to_a_peer() {
    let (h1, h2) = (host("h1"), host("h2"));
    for (result, expected) in [
        (Some(Ok(())), CheckOutcome::Ok),
        (Some(Err("refused".to_owned())), CheckOutcome::Failed),
        (None, CheckOutcome::Unknown),
    ] {
        let finding = peer_finding(&h1, &h2, "qemu+tls://h2/system", result);
        assert_eq!(
            outcomes(std::slice::from_ref(&finding), check::PEER),
            [expected]
        );
        assert_eq!((&finding.host, finding.peer.as_ref()), (&h1, Some(&h2)));
        let hint = finding.hint.unwrap_or_default();
        let is_refused = expected == CheckOutcome::Failed;
        assert_eq!(
            hint.contains("virsh --connect qemu+tls://h2/system"),
            is_refused,
            "{hint}"
        );
    }
}
