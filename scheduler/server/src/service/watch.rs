//! The streams: operations and VMs as they change.
//!
//! A stream ends with UNAVAILABLE when this member stops; the client goes on at another one.

use std::sync::Arc;

use berth_domain::id::OperationId;
use berth_domain::name::VmName;
use berth_domain::operation::Operation;
use berth_domain::vm::Vm;
use berth_proto::convert::ResourceName as _;
use berth_proto::status::to_status;
use berth_proto::{operation, scheduler};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::context::Context;
use super::refusal;
use crate::feed::VmChanges;

/// Messages that may wait for a slow client. Changes gather behind them and arrive as one.
const WAITING_MAX: usize = 4;

type Messages<T> = mpsc::Sender<Result<T, Status>>;

/// Sends an operation as it is, then after each change, until it is done.
pub(crate) fn operation(
    context: Context,
    id: OperationId,
    first: (Arc<Operation>, u64),
) -> impl Stream<Item = Result<operation::v1::WatchOperationResponse, Status>> {
    let (messages, stream) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        if let Err(status) = follow_operation(&context, id, first, &messages).await {
            // The client may have gone.
            let _ = messages.send(Err(status)).await;
        }
    });
    ReceiverStream::new(stream)
}

async fn follow_operation(
    context: &Context,
    id: OperationId,
    (mut shown, mut revision): (Arc<Operation>, u64),
    messages: &Messages<operation::v1::WatchOperationResponse>,
) -> Result<(), Status> {
    let watch = context.feed().watch_operation(id);
    loop {
        let message = operation::v1::WatchOperationResponse {
            operation: Some((&*shown).into()),
            revision,
        };
        if messages.send(Ok(message)).await.is_err() || shown.is_done() {
            return Ok(());
        }
        loop {
            let changed = watch.changed();
            let now = context
                .stale(move |state| Some((state.operation(id)?.clone(), state.revision())))
                .await?;
            match now {
                // Its end was told, or it was forgotten before it could be.
                None => return Ok(()),
                Some((operation, at)) if operation != shown => {
                    (shown, revision) = (operation, at);
                    break;
                }
                Some(_) => {}
            }
            tokio::select! {
                () = changed => {}
                () = messages.closed() => return Ok(()),
                () = context.stopping().cancelled() => return Err(refusal::stopping()),
            }
        }
    }
}

/// Sends the VMs that changed after a revision, as they change. `first` goes before.
pub(crate) fn vms(
    context: Context,
    after: u64,
    first: Option<scheduler::v1::WatchVmsResponse>,
    only: Option<VmName>,
) -> impl Stream<Item = Result<scheduler::v1::WatchVmsResponse, Status>> {
    let (messages, stream) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        if let Some(first) = first
            && messages.send(Ok(first)).await.is_err()
        {
            return;
        }
        if let Err(status) = follow_vms(&context, after, only.as_ref(), &messages).await {
            // The client may have gone.
            let _ = messages.send(Err(status)).await;
        }
    });
    ReceiverStream::new(stream)
}

async fn follow_vms(
    context: &Context,
    mut after: u64,
    only: Option<&VmName>,
    messages: &Messages<scheduler::v1::WatchVmsResponse>,
) -> Result<(), Status> {
    loop {
        let changes = tokio::select! {
            changes = context.feed().vm_changes(after) => changes.map_err(|r| to_status(&r))?,
            () = messages.closed() => return Ok(()),
            () = context.stopping().cancelled() => return Err(refusal::stopping()),
        };
        let Some(changes) = changes else {
            return Err(refusal::stopping());
        };
        after = changes.revision;
        if let Some(message) = vm_message(changes, only)
            && messages.send(Ok(message)).await.is_err()
        {
            return Ok(());
        }
    }
}

fn vm_message(
    changes: VmChanges,
    only: Option<&VmName>,
) -> Option<scheduler::v1::WatchVmsResponse> {
    let mut message = scheduler::v1::WatchVmsResponse {
        revision: changes.revision,
        ..Default::default()
    };
    for (name, vm) in changes.vms {
        if only.is_some_and(|only| *only != name) {
            continue;
        }
        match vm {
            Some(vm) => message.vms.push((&*vm).into()),
            None => message.deleted_vms.push(name.resource_name()),
        }
    }
    let told = !message.vms.is_empty() || !message.deleted_vms.is_empty();
    told.then_some(message)
}

/// Returns the message that holds all VMs.
pub(crate) fn all_vms<'v>(
    revision: u64,
    vms: impl Iterator<Item = &'v Arc<Vm>>,
) -> scheduler::v1::WatchVmsResponse {
    scheduler::v1::WatchVmsResponse {
        revision,
        vms: vms.map(|vm| (&**vm).into()).collect(),
        deleted_vms: Vec::new(),
        snapshot: true,
    }
}
