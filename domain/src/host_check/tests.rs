//! Every pair of facts that hosts can report, with the findings that follow.

use super::*;
use crate::migration_tls::TlsPolicy;

const NOW: TimeMs = TimeMs(1_700_000_000_000);

fn name(text: &str) -> HostName {
    HostName::new(text).unwrap()
}

fn report(host: &str) -> HostCheck {
    HostCheck {
        host: name(host),
        findings: vec![HostFinding::ok(check::HYPERVISOR, &name(host), "answers")],
        hypervisor_version: "7.2.0".to_owned(),
        tls: TlsReport {
            host: name(host),
            policy: TlsPolicy::Off,
            fault: None,
        },
        wall_clock: NOW,
    }
}

fn checked(report: HostCheck) -> CheckedHost {
    CheckedHost {
        name: report.host.clone(),
        driver: "sim".to_owned(),
        agent_address: format!("http://{}:7300", report.host),
        reply: CheckReply::Report {
            report: Box::new(report),
            between: (NOW, NOW),
        },
        is_checked: true,
    }
}

/// Returns the findings that need attention, as `host>peer check OUTCOME`.
fn bad(hosts: &[CheckedHost]) -> Vec<String> {
    let all = findings(hosts);
    let bad = all.iter().filter(|f| f.outcome != CheckOutcome::Ok);
    bad.map(|finding| {
        assert!(
            finding.hint.as_ref().is_some_and(|hint| !hint.is_empty()),
            "{finding:?}"
        );
        let peer = finding.peer.as_ref().map(|peer| format!(">{peer}"));
        format!(
            "{}{} {} {}",
            finding.host,
            peer.unwrap_or_default(),
            finding.check,
            finding.outcome
        )
    })
    .collect()
}

#[test]
fn hosts_that_are_alike_have_no_fault_and_are_in_order() {
    let hosts = ["h3", "h1", "h2"].map(|host| checked(report(host)));
    assert_eq!(bad(&hosts), Vec::<String>::new());
    let order: Vec<_> = findings(&hosts)
        .iter()
        .map(|f| f.host.to_string())
        .collect();
    assert_eq!(order, ["h1", "h1", "h2", "h2", "h3", "h3"]);
}

#[test]
fn every_pair_of_encryption_settings() {
    for (here, there) in TlsPolicy::ALL
        .into_iter()
        .flat_map(|here| TlsPolicy::ALL.map(|there| (here, there)))
    {
        for (fault_here, fault_there) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            let side = |host: &str, policy, fault: bool| {
                let mut report = report(host);
                report.tls.policy = policy;
                report.tls.fault = fault.then(|| "no certificate".to_owned());
                checked(report)
            };
            let hosts = [side("h1", here, fault_here), side("h2", there, fault_there)];
            let encrypts = |policy, fault: bool| policy != TlsPolicy::Off && !fault;
            let required = here == TlsPolicy::Require || there == TlsPolicy::Require;
            let both = encrypts(here, fault_here) && encrypts(there, fault_there);
            let expected: &[&str] = match required && !both {
                true => &["h1>h2 encryption FAILED", "h2>h1 encryption FAILED"],
                false => &[],
            };
            assert_eq!(
                bad(&hosts),
                expected,
                "{here} {there} {fault_here} {fault_there}"
            );
        }
    }
}

#[test]
fn every_pair_of_versions() {
    let versions = ["7.2.0", "7.2.1", "7.10.0", "8.0", "", "unreadable"];
    let comparable = 4;
    for (a, here) in versions.into_iter().enumerate() {
        for (b, there) in versions.into_iter().enumerate() {
            let side = |host: &str, version: &str| {
                let mut report = report(host);
                report.hypervisor_version = version.to_owned();
                checked(report)
            };
            let hosts = [side("h1", here), side("h2", there)];
            let expected: &[&str] = match (a.max(b) < comparable, a.cmp(&b)) {
                (true, std::cmp::Ordering::Greater) => &["h1>h2 version WARNING"],
                (true, std::cmp::Ordering::Less) => &["h2>h1 version WARNING"],
                (true, std::cmp::Ordering::Equal) | (false, _) => &[],
            };
            assert_eq!(bad(&hosts), expected, "{here} {there}");
        }
    }
}

#[test]
fn clocks_are_compared_with_the_time_of_the_call() {
    let at = |offset: i64| {
        let mut host = checked(report("h1"));
        let mut report = report("h1");
        report.wall_clock = TimeMs(NOW.0.checked_add_signed(offset).unwrap());
        host.reply = CheckReply::Report {
            report: Box::new(report),
            between: (NOW, TimeMs(NOW.0 + 20_000)),
        };
        bad(&[host])
    };
    let limit = i64::try_from(CLOCK_DIFFERENCE_MS_MAX).unwrap();
    // A call that took 20 s says nothing about a clock within these.
    for good in [0, 10_000, 20_000, 20_000 + limit, -limit] {
        assert_eq!(at(good), Vec::<String>::new(), "{good}");
    }
    for bad in [-limit - 1, 20_000 + limit + 1, -1_700_000_000_000] {
        assert_eq!(at(bad), ["h1 clock WARNING"], "{bad}");
    }
}

/// An agent that does not report is a finding about its own host, and the pairs of others are compared.
#[test]
fn every_reply_of_an_agent() {
    let silent = CheckReply::Silent {
        message: "connection refused".to_owned(),
    };
    let refused = CheckReply::Refused {
        message: "busy".to_owned(),
    };
    for (reply, expected) in [
        (silent, "h2 agent FAILED"),
        (refused, "h2 agent UNKNOWN"),
        (CheckReply::TooOld, "h2 agent UNKNOWN"),
    ] {
        for is_checked in [true, false] {
            let mut newer = report("h3");
            newer.hypervisor_version = "9.0.0".to_owned();
            let mut hosts = ["h1", "h2"].map(|host| checked(report(host))).to_vec();
            hosts.push(checked(newer));
            hosts[1].reply = reply.clone();
            hosts[1].is_checked = is_checked;
            assert_eq!(bad(&hosts), [expected, "h3>h1 version WARNING"]);
        }
    }
}

#[test]
fn hosts_with_different_drivers_are_not_compared() {
    let mut other = checked(report("h2"));
    other.driver = "libvirt".to_owned();
    if let CheckReply::Report { report, .. } = &mut other.reply {
        report.tls.policy = TlsPolicy::Require;
        report.hypervisor_version = "9.0.0".to_owned();
    }
    let hosts = [checked(report("h1")), other];
    assert_eq!(
        bad(&hosts),
        ["h1>h2 driver WARNING", "h2>h1 driver WARNING"]
    );
}

/// Of a host that is only a peer, what concerns it alone is left out, and so are pairs of two peers.
#[test]
fn peers_are_reported_in_pairs_only() {
    let peer = |host: &str| {
        let mut report = report(host);
        let h1 = name("h1");
        report
            .findings
            .push(HostFinding::ok(check::PEER, &name(host), "reached").with(&h1));
        report.hypervisor_version = format!("9.{}", &host[1..]);
        report.wall_clock = TimeMs(0);
        CheckedHost {
            is_checked: false,
            ..checked(report)
        }
    };
    let hosts = [checked(report("h1")), peer("h2"), peer("h3")];
    let lines: Vec<_> = findings(&hosts)
        .iter()
        .map(|f| {
            let peer = f.peer.as_ref().map(ToString::to_string);
            (
                f.host.to_string(),
                peer.unwrap_or_default(),
                f.check.clone(),
            )
        })
        .collect();
    let line =
        |host: &str, peer: &str, check: &str| (host.to_owned(), peer.to_owned(), check.to_owned());
    assert_eq!(
        lines,
        [
            line("h1", "", check::HYPERVISOR),
            line("h1", "", check::CLOCK),
            line("h2", "h1", check::PEER),
            line("h2", "h1", check::VERSION),
            line("h3", "h1", check::PEER),
            line("h3", "h1", check::VERSION),
        ]
    );
}
