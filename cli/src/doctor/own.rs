//! What the command itself was given: addresses of schedulers, and a certificate.

use std::net::IpAddr;

use berth_process::error_chain;
use berth_tls::{Identity, Role};

use super::finding::{Finding, count};
use crate::address::without_scheme;

/// From how many days before its end on a certificate is warned of.
const DAYS_LEFT_MIN: i64 = 14;

/// The environment variable with the addresses.
const VARIABLE: &str = "BERTH_SCHEDULER";

/// Reports which schedulers are called, and where that is stated.
pub(super) fn addresses(schedulers: &[String]) -> Finding {
    let variable = std::env::var(VARIABLE).ok();
    let origin = origin(schedulers, variable.as_deref());
    let count = count(schedulers.len(), "scheduler");
    let message = format!("{count}: {}", schedulers.join(", "));
    Finding::ok("addresses", message).of(origin)
}

fn origin(schedulers: &[String], variable: Option<&str>) -> &'static str {
    let is_of_variable = variable.is_some_and(|text| text.split(',').eq(schedulers));
    match is_of_variable {
        true => VARIABLE,
        false if schedulers == ["127.0.0.1:7100"] => "default",
        false => "--scheduler",
    }
}

/// Judges the certificate of the command; `now` is in seconds since 1970.
pub(super) fn certificate(identity: Option<&Identity>, schedulers: &[String], now: i64) -> Finding {
    const CHECK: &str = "certificate";
    let Some(identity) = identity else {
        return match schedulers.iter().all(|address| is_loopback(address)) {
            true => Finding::ok(CHECK, "none: connections are within this machine"),
            false => Finding::warning(
                CHECK,
                "none: connections to other machines are neither encrypted nor authenticated",
                "docs/security.md sets up certificates; --tls-ca, --tls-cert and --tls-key name them",
            ),
        };
    };
    let (principal, days) = (identity.principal(), identity.days_left(now));
    if !matches!(identity.role, Role::Operator | Role::Reader) {
        return Finding::warning(
            CHECK,
            format!("{principal}: it is that of a program, which may call little"),
            "`berth certs issue --role operator` makes one for a person",
        );
    }
    let message = format!("{principal}, valid for {days} days");
    match days < DAYS_LEFT_MIN {
        true => Finding::warning(CHECK, message, "`berth certs renew` makes a new one"),
        false => Finding::ok(CHECK, message),
    }
}

/// Reports files that hold no certificate that can be used.
pub(super) fn unusable(error: &anyhow::Error) -> Finding {
    Finding::failed(
        "certificate",
        error_chain(error.as_ref()),
        "`berth certs show` shows what a file holds, and docs/security.md how to issue one",
    )
}

/// Returns whether an address of the command line is one of this machine.
fn is_loopback(address: &str) -> bool {
    let host = without_scheme(address.trim());
    let host = match host.rsplit_once(':') {
        // An IPv6 address without brackets has no port.
        Some((before, _)) if !before.contains(':') || before.ends_with(']') => before,
        Some(_) | None => host,
    };
    let host = host.trim_matches(['[', ']']);
    let is_loopback = host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    host == "localhost" || is_loopback
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_told_apart() {
        for address in [
            "127.0.0.1:7100",
            "127.3.0.1",
            "localhost",
            "localhost:7100",
            "::1",
            "[::1]",
            "[::1]:7100",
            "http://127.0.0.1:7100",
        ] {
            assert!(is_loopback(address), "{address}");
        }
        for address in [
            "10.0.0.1:7100",
            "m1",
            "m1:7100",
            "fe80::1",
            "[fe80::1]:7100",
        ] {
            assert!(!is_loopback(address), "{address}");
        }
    }

    #[test]
    fn where_addresses_are_stated_is_known() {
        let typed = ["a".to_owned(), "b".to_owned()];
        assert_eq!(origin(&typed, Some("a,b")), "BERTH_SCHEDULER");
        assert_eq!(origin(&typed, Some("c")), "--scheduler");
        assert_eq!(origin(&["127.0.0.1:7100".to_owned()], None), "default");
    }
}
