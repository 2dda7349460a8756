//! Several VMs of one command: each is done, one after the other, whatever becomes of the others.
//!
//! Not here: what is done to one.

use anyhow::bail;
use berth_domain::refusal::{Code, Refusal};
use berth_process::error_chain;

use crate::arguments::Run;
use crate::failure::{Failed, Reported};
use crate::output::{self, Collected};
use crate::session::{Session, short};
use crate::usage::Usage;

/// Does something to each of these VMs. For programs a single one gives its value, and several give a list of
/// the values of those that succeeded, each with its `vm`.
///
/// # Errors
///
/// The refusal of the only VM; of several the worst, which was reported with the others.
pub(super) async fn each(
    session: &Session,
    vms: &[String],
    run: &Run,
    one: impl AsyncFn(&str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if let [vm] = vms {
        return one(vm).await;
    }
    if run.request_id.is_some() {
        let message = "--request-id is the key of a single request: name one VM with it";
        bail!(Usage(message.to_owned()));
    }
    let collected = Collected::begin();
    let mut worst: Option<anyhow::Error> = None;
    for vm in vms {
        let name = short(vm);
        collected.of(name);
        if !session.for_programs() {
            output::message(format!("vm {name}:"));
        }
        let Err(error) = one(vm).await else {
            continue;
        };
        output::refused(session.output, &of_vm(name, &error));
        let is_worse = worst.as_ref().is_none_or(|worst| !is_unreachable(worst));
        if is_worse {
            worst = Some(error);
        }
    }
    collected.print()?;
    match worst {
        None => Ok(()),
        Some(worst) => Err(worst.context(Reported)),
    }
}

/// Whether the exit status is that of a server that was not reached, which is above that of a refusal.
fn is_unreachable(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<Refusal>();
    refusal.is_some_and(|refusal| refusal.code == Code::Unavailable) && !error.is::<Failed>()
}

/// Returns a failure as a refusal that names its VM.
fn of_vm(vm: &str, error: &anyhow::Error) -> Refusal {
    let other = || {
        Refusal::new(
            Code::InvalidArgument,
            "COMMAND_FAILED",
            error_chain(error.as_ref()),
        )
    };
    let mut refusal = error
        .downcast_ref::<Refusal>()
        .cloned()
        .unwrap_or_else(other);
    if refusal.metadata.get("vm").is_none_or(|named| named != vm) {
        refusal.message = format!("vm {vm}: {}", refusal.message);
        refusal.metadata.insert("vm".to_owned(), vm.to_owned());
    }
    refusal
}
