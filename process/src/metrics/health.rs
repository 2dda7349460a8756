//! Health as HTTP: checks with their reasons, in the text of Kubernetes and etcd.
//!
//! ```text
//!   GET /readyz            200 ok, or 503 with the checks
//!   GET /readyz?verbose    the checks in either case
//!
//!   [+]leader ok
//!   [-]applied failed: 12000 entries behind
//!   readyz check failed
//! ```
//!
//! Not here: gRPC's health service, which each program has on its own port.
//!
//! Invariant: an answer comes within [`TIMEOUT`], whatever the program does.

use std::fmt::Write as _;
use std::time::Duration;

use tonic::codegen::http::StatusCode;

/// How long the checks may take together.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// One thing that must be so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    name: &'static str,
    result: Result<(), String>,
}

impl Check {
    /// Returns a check with its result: why it failed, if it did.
    #[must_use]
    pub fn new(name: &'static str, result: Result<(), String>) -> Self {
        Self { name, result }
    }

    /// Returns a check that holds if this does; else it failed for this reason.
    #[must_use]
    pub fn holds(name: &'static str, holds: bool, reason: &str) -> Self {
        let result = match holds {
            true => Ok(()),
            false => Err(reason.to_owned()),
        };
        Self::new(name, result)
    }
}

/// Returns the status and the text of the checks of an endpoint, as `readyz`.
pub(super) fn render(endpoint: &str, checks: &[Check], verbose: bool) -> (StatusCode, String) {
    let passed = checks.iter().all(|check| check.result.is_ok());
    if passed && !verbose {
        return (StatusCode::OK, "ok".to_owned());
    }
    let mut text = String::new();
    for Check { name, result } in checks {
        // Writing to a string does not fail.
        let _ = match result {
            Ok(()) => writeln!(text, "[+]{name} ok"),
            Err(reason) => writeln!(text, "[-]{name} failed: {reason}"),
        };
    }
    let (status, end) = match passed {
        true => (StatusCode::OK, "passed"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
    };
    let _ = writeln!(text, "{endpoint} check {end}");
    (status, text)
}

/// Waits for checks, and for so long at most.
pub(super) async fn bounded(
    time: Duration,
    checks: impl Future<Output = Vec<Check>>,
) -> Vec<Check> {
    let bounded = tokio::time::timeout(time, checks).await;
    bounded.unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", time.as_secs());
        vec![Check::new("answer", Err(reason))]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_checks_are_shown_with_their_reasons() {
        let good = Check::new("leader", Ok(()));
        let bad = Check::holds("disk", false, "silent for 9 s");
        let check = |checks: &[Check], verbose, status: u16, expected: &str| {
            let (code, text) = render("readyz", checks, verbose);
            assert_eq!((code.as_u16(), text.as_str()), (status, expected));
        };
        let passed = "[+]leader ok\nreadyz check passed\n";
        check(std::slice::from_ref(&good), false, 200, "ok");
        check(std::slice::from_ref(&good), true, 200, passed);
        let failed = "[+]leader ok\n[-]disk failed: silent for 9 s\nreadyz check failed\n";
        for verbose in [false, true] {
            check(&[good.clone(), bad.clone()], verbose, 503, failed);
        }
    }

    #[tokio::test]
    async fn checks_that_hang_fail_in_time() {
        let checks = bounded(Duration::ZERO, std::future::pending()).await;
        let (status, text) = render("livez", &checks, false);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            text,
            "[-]answer failed: no answer within 0 s\nlivez check failed\n"
        );
    }
}
