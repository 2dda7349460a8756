//! `berth vm console`: prints what a guest wrote on its serial console, or types on it.
//!
//! | module | contents |
//! |---|---|
//! | [`escape`] | what is typed, and the key that leaves the console |
//! | `attach` | a session that types |
//! | `terminal` | the terminal while each key is for the guest |
//!
//! Invariant: what a guest writes goes to the terminal as it is, and nothing of it is interpreted.

mod attach;
mod escape;
mod terminal;

use berth_proto::conductor::v1::ReadConsoleRequest;

use crate::arguments::Console;
use crate::output;
use crate::session::{Session, ended, resource};

/// Runs the command.
///
/// # Errors
///
/// When the guest has no console, or another user types on it.
pub(super) async fn run(session: &Session, args: &Console) -> anyhow::Result<()> {
    match args.interactive {
        true => attach::run(session, args).await,
        false => print(session, &args.vm, args.follow).await,
    }
}

async fn print(session: &Session, vm: &str, follow: bool) -> anyhow::Result<()> {
    let request = ReadConsoleRequest {
        vm: resource("vms", vm),
        offset: 0,
        follow,
    };
    let response = session.conductor().await?.read_console(request).await;
    let mut stream = response.map_err(|s| ended(&s))?.into_inner();
    while let Some(part) = stream.message().await.map_err(|s| ended(&s))? {
        if output::raw(&part.data).is_err() {
            // The reader has closed the pipe.
            break;
        }
    }
    Ok(())
}
