//! Several VMs of one command: each is done, one after the other, whatever becomes of the others.
//!
//! Not here: what is done to one.

use anyhow::bail;
use berth_domain::refusal::Refusal;

use crate::arguments::Run;
use crate::failure;
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
    let mut failures = Vec::new();
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
        failures.push(error);
    }
    collected.print()?;
    match failure::worst(failures) {
        None => Ok(()),
        Some(worst) => Err(worst),
    }
}

/// Returns a failure as a refusal that names its VM.
fn of_vm(vm: &str, error: &anyhow::Error) -> Refusal {
    let mut refusal = failure::refusal(error);
    if refusal.metadata.get("vm").is_none_or(|named| named != vm) {
        refusal.message = format!("vm {vm}: {}", refusal.message);
        refusal.metadata.insert("vm".to_owned(), vm.to_owned());
    }
    refusal
}
