//! The sending of one domain: what goes on beside the call that carries it.
//!
//! Invariant: a guest that is made to stand still so that its transfer ends goes on by itself, on
//! whichever side it is then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{Domain, DomainState, Error as Fault, Kind, Migration, paused};
use crate::domain::Force;

/// Interval between attempts to set the bounds of a transfer that begins.
const TELL_PERIOD: Duration = Duration::from_millis(20);

/// Carries a transfer to its end. The hypervisor takes the bound of the stand-still while it sends
/// only.
pub(super) fn migrate(
    domain: &Domain,
    destination_uri: &str,
    migration: &Migration,
    downtime_ms_max: Option<u32>,
) -> Result<(), Fault> {
    let Some(downtime_ms) = downtime_ms_max else {
        return domain.migrate(destination_uri, migration);
    };
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                let sends = domain.job().is_ok_and(|job| job.is_running());
                if sends && domain.set_downtime_max(downtime_ms.into()).is_ok() {
                    return;
                }
                thread::park_timeout(TELL_PERIOD);
            }
        });
        let sent = domain.migrate(destination_uri, migration);
        ended.store(true, Ordering::Release);
        sent
    })
}

/// Returns whether the guest runs at the destination while its memory is still partly here.
pub(super) fn is_post_copy(domain: &Domain) -> bool {
    domain
        .status()
        .is_ok_and(|s| s.state == DomainState::Paused && s.reason == paused::POST_COPY)
}

/// Makes a transfer end soon.
pub(super) fn force(domain: &Domain, how: Force) -> Result<(), Fault> {
    let result = match how {
        Force::PostCopy => domain.start_post_copy(),
        Force::Pause => pause(domain),
    };
    match result {
        // It has ended, or has not begun: then it is retried.
        Err(error) if matches!(error.kind(), Kind::OperationInvalid | Kind::NoDomain) => Ok(()),
        result => result,
    }
}

/// Lets the guest stand still. libvirt lets it go on by itself when the transfer ends, on either
/// side; if it had ended when the guest was stopped, that is made good here.
fn pause(domain: &Domain) -> Result<(), Fault> {
    domain.suspend()?;
    let sends = domain.job().is_ok_and(|job| job.is_running());
    let stands_still = domain
        .status()
        .is_ok_and(|s| s.state == DomainState::Paused && s.reason == paused::USER);
    if !sends && stands_still {
        return domain.resume();
    }
    Ok(())
}
