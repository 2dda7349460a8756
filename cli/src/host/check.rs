//! `berth host check`: what guests will not find on hosts, before a guest meets it.
//!
//! Not here: the checks. Agents carry them out, and a conductor compares the hosts.

use std::collections::BTreeMap;

use berth_domain::host_check::{CheckOutcome, HostFinding};
use berth_domain::refusal::{Code, Refusal};
use berth_domain::version::TOO_OLD;
use berth_proto::conductor::v1::CheckHostsRequest;
use berth_proto::convert::field;
use tonic::Status;

use crate::arguments::HostCheck;
use crate::output::{self, Columns};
use crate::session::{Session, ended, read_all, resource};

/// A check failed. The output names which.
#[derive(Debug, thiserror::Error)]
#[error("a check of a host failed")]
pub struct Failed;

/// The columns of the list.
pub(crate) const COLUMNS: Columns<6, 0> = Columns {
    usual: ["check", "host", "peer", "result", "what", "what to do"],
    wide: [],
};

/// Checks hosts.
///
/// # Errors
///
/// The conductor's refusal; [`Failed`] when the result of a check is FAILED.
pub(super) async fn run(session: &Session, arguments: HostCheck) -> anyhow::Result<()> {
    let names = |names: &[String]| names.iter().map(|name| resource("hosts", name)).collect();
    let request = CheckHostsRequest {
        hosts: names(&arguments.hosts),
        peers: names(&arguments.peers),
        timeout: Some(field::duration(arguments.timeout * 1_000)),
    };
    let response = session.conductor().await?.check_hosts(request).await;
    let response = response.map_err(|status| refusal(&status))?.into_inner();
    let findings: Vec<HostFinding> = read_all(response.findings)?;
    if session.for_programs() {
        output::value(&findings)?;
    } else {
        print(&findings)?;
    }
    match findings.iter().any(|f| f.outcome == CheckOutcome::Failed) {
        true => Err(Failed.into()),
        false => Ok(()),
    }
}

/// Returns why a conductor did not check; it changes nothing, so the command can be repeated.
fn refusal(status: &Status) -> Refusal {
    if status.code() == tonic::Code::Unimplemented {
        let message = "the conductor is too old to check hosts";
        return Refusal::new(Code::FailedPrecondition, TOO_OLD, message)
            .with_hint("upgrade the conductor");
    }
    ended(status)
}

fn print(findings: &[HostFinding]) -> anyhow::Result<()> {
    let rows = findings.iter().map(|finding| {
        let peer = finding.peer.as_ref();
        let row = [
            finding.check.clone(),
            finding.host.to_string(),
            output::or_dash(peer),
            finding.outcome.to_string(),
            finding.message.clone(),
            finding.hint.clone().unwrap_or_default(),
        ];
        (row, [])
    });
    output::list(&COLUMNS, rows.collect(), "no host is UP and runs VMs")?;
    if !findings.is_empty() {
        output::message(summary(findings.iter().map(|finding| finding.outcome)));
    }
    Ok(())
}

/// Returns how many checks ended how, as `1 FAILED, 7 OK`.
pub(crate) fn summary(outcomes: impl IntoIterator<Item = CheckOutcome>) -> String {
    let mut counts: BTreeMap<CheckOutcome, usize> = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome).or_default() += 1;
    }
    let worst_first = counts.iter().rev();
    let counts: Vec<_> = worst_first
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_is_counted() {
        let outcomes = CheckOutcome::ALL.into_iter().enumerate();
        let outcomes = outcomes.flat_map(|(count, outcome)| vec![outcome; count + 1]);
        assert_eq!(summary(outcomes), "4 UNKNOWN, 3 FAILED, 2 WARNING, 1 OK");
    }
}
