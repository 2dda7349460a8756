//! How far the transfer of a running migration is: measured by the source's agent, and not a part of the state.

use berth_domain::transfer::{Phase, TransferProgress};
use berth_proto::conductor::v1::WatchMigrationResponse;
use maud::{Markup, html};

use crate::table::facts;
use crate::text::{Wrapped, bytes, duration};

/// After how many milliseconds a view with a measurement is loaded again.
pub(crate) const AGAIN_MS: u64 = 1_000;

/// What was measured of a migration, or why nothing is known.
pub type Measured = Result<Box<WatchMigrationResponse>, String>;

/// Returns the progress of a transfer.
pub(crate) fn transfer(measured: &Measured) -> Markup {
    html! {
        div data-again=(AGAIN_MS) {
            @match measured {
                Err(why) => p class="note" { "The progress of its transfer is not known: " (Wrapped(why)) }
                Ok(answer) => (progress(answer)),
            }
        }
    }
}

fn progress(answer: &WatchMigrationResponse) -> Markup {
    let read = answer.progress.map(TransferProgress::try_from);
    let Some(Ok(progress)) = read else {
        return html! { p { "Its transfer has not begun, or its agent does not report it." } };
    };
    let phase = match progress.phase {
        Phase::Setup => "being set up",
        Phase::PreCopy => "the guest runs on the source",
        Phase::PostCopy => "the guest runs on the destination",
        Phase::Switch => "the guest stands still for the rest",
    };
    let percent = progress.percent();
    let left = match answer.remaining_ms {
        Some(ms) => duration(ms),
        None => "not known, or it does not end at these rates".to_owned(),
    };
    html! {
        (facts(&[
            ("Transferred", html! {
                progress max="100" value=(percent) aria-label="Transferred" { (percent) " %" }
                " " (percent) " %, " (bytes(progress.remaining())) " of " (bytes(progress.total())) " left"
            }),
            ("Phase", html! { (phase) ", pass " (progress.iteration) " over its memory" }),
            ("Rate", html! {
                (bytes(progress.bytes_per_s)) "/s; the guest writes " (bytes(progress.dirty_bytes_per_s)) "/s"
            }),
            ("Downtime", html! { (duration(progress.downtime_ms)) ", as far as is known" }),
            ("Time", html! { (duration(progress.elapsed_ms)) " so far; left: " (left) }),
        ]))
    }
}
