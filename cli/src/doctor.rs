//! `berth doctor`: what is wrong between this command and the guests, and what to do about it.
//!
//! ```text
//!   own options and certificate ─▶ each scheduler ─▶ all of them together ─▶ conductors, hosts, VMs
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `finding` | the result of one check |
//! | `own` | the options and the certificate of this command |
//! | `schedulers` | schedulers, each as it answers for itself, and all together |
//! | `cluster` | conductors, hosts and VMs, as the schedulers know them |
//!
//! Not here: what agents check on their hosts; that is `berth host check`.
//!
//! Invariant: it changes nothing, and what cannot be checked is a finding too.

mod cluster;
mod finding;
mod own;
mod schedulers;
#[cfg(test)]
mod tests;

use berth_domain::host_check::CheckOutcome;
use berth_tls::Tls;

use self::finding::Finding;
use crate::arguments::Arguments;
use crate::host::check::summary;
use crate::output::{self, Columns, Format};
use crate::reading::reading;
use crate::session::Session;
use crate::usage::Usage;

/// A check failed. The output names which.
#[derive(Debug, thiserror::Error)]
#[error("a check failed")]
pub struct Failed;

/// The columns of the list.
pub(crate) const COLUMNS: Columns<5, 0> = Columns {
    usual: ["check", "of", "result", "what", "what to do"],
    wide: [],
};

/// Runs the command.
///
/// # Errors
///
/// Wrong usage; [`Failed`] when the result of a check is FAILED.
pub async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let global = &arguments.global;
    let format = global.format();
    let mut findings = vec![own::addresses(&global.scheduler)];
    match global.certificates() {
        Ok(tls) => {
            let identity = tls.as_ref().map(Tls::identity);
            let now = berth_tls::identity::now();
            findings.push(own::certificate(
                identity.as_deref(),
                &global.scheduler,
                now,
            ));
            let session = Session::with_certificates(&global.scheduler, format, tls)?;
            let session =
                session.with_reading(reading(&arguments.command, global.stale, global.revision()));
            let is_reached = schedulers::check(&session, &mut findings).await;
            cluster::check(&session, is_reached, &mut findings).await;
        }
        Err(error) if error.is::<Usage>() => return Err(error),
        Err(error) => findings.push(own::unusable(&error)),
    }
    show(format, &findings)?;
    match findings.iter().any(|f| f.outcome == CheckOutcome::Failed) {
        true => Err(Failed.into()),
        false => Ok(()),
    }
}

fn show(format: Format, findings: &[Finding]) -> anyhow::Result<()> {
    if format.is_of_value() {
        return output::value(&findings);
    }
    let rows = findings.iter().map(|finding| {
        let row = [
            finding.check.to_owned(),
            finding.of.clone(),
            finding.outcome.to_string(),
            finding.message.clone(),
            finding.hint.clone().unwrap_or_default(),
        ];
        (row, [])
    });
    output::list(&COLUMNS, rows.collect(), "nothing was checked")?;
    output::message(summary(findings.iter().map(|finding| finding.outcome)));
    Ok(())
}
