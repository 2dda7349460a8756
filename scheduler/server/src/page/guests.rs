//! What only the agents of guests know: how far a transfer is, and what a console shows. Conductors pass it on.
//!
//! Invariant: it is waited for a limited time, and before a view has its turn, so that it takes none from others.

use std::sync::Arc;
use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use berth_page::console::Console;
use berth_page::{Measured, Route};
use berth_process::bounds::{Bounds, Caller as Bound, Key, Permit, Resource, Scope};
use berth_proto::conductor::v1 as wire;
use berth_proto::scheduler::v1 as scheduler;
use berth_proto::scheduler::v1::scheduler_service_server::SchedulerService as _;
use berth_proto::status::to_status;
use berth_tls::Peer;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Request, Status};

use super::conductors::Conductors;
use crate::service::{Context, SchedulerApi, of_own_state};

/// How long a view of a VM waits for the progress of a transfer.
const MEASURED_MAX: Duration = Duration::from_secs(3);
/// How long a view waits for a console, and the most bytes that it reads and shows of it.
const CONSOLE_TIME_MAX: Duration = Duration::from_secs(5);
const CONSOLE_READ_MAX: u64 = 8 << 20;
const CONSOLE_SHOWN_MAX: usize = 64 << 10;

/// What agents know of the VM of a view.
#[derive(Default)]
pub(super) struct Known {
    /// How far the transfer of its migration is, if one has not ended.
    pub(super) measured: Option<Measured>,
    /// What its guest wrote, or why that is not known, for the view of it.
    pub(super) console: Option<Result<Console, Status>>,
}

/// Calls conductors, which call agents, for a caller.
pub(super) struct Guests<'a> {
    context: &'a Context,
    conductors: Conductors<'a>,
    /// Permits for calls, of which no caller has all.
    calls: Bound,
}

impl<'a> Guests<'a> {
    /// Returns them for a caller.
    pub(super) fn for_caller(
        context: &'a Context,
        calls: &Arc<Bounds>,
        peer: Option<&Peer>,
    ) -> Self {
        let conductors = Conductors::for_caller(context, peer);
        let calls = calls.caller(peer.map_or(Key::Local, Key::of));
        Self {
            context,
            conductors,
            calls,
        }
    }

    /// Returns what is known for the view of a route.
    pub(super) async fn known(&self, route: &Route) -> Known {
        match route {
            Route::Vm(name) => Known {
                measured: self.measured(name).await,
                console: None,
            },
            Route::Console(name) => Known {
                measured: None,
                console: Some(self.console(format!("vms/{name}")).await),
            },
            Route::Asset(_)
            | Route::Cluster
            | Route::Failover
            | Route::Hosts(_)
            | Route::Host(_)
            | Route::Vms(_)
            | Route::VmHistory(_)
            | Route::WhyNot(_)
            | Route::Balance
            | Route::Audit(_)
            | Route::Action(_)
            | Route::Login(_)
            | Route::Logout
            | Route::Events(_) => Known::default(),
        }
    }

    async fn measured(&self, vm: &str) -> Option<Measured> {
        let request = Request::new(scheduler::ListMigrationsRequest {
            vm: format!("vms/{vm}"),
            page_size: i32::MAX,
            ..Default::default()
        });
        let api = SchedulerApi(self.context.clone());
        // It is only to know whether there is anything to measure.
        let (listed, _) = of_own_state(self.context, api.list_migrations(request)).await;
        let listed = listed.ok()?.into_inner().migrations;
        let moving = listed.into_iter().find(berth_page::vm::is_open)?;
        Some(
            match timeout(MEASURED_MAX, self.measure(moving.name)).await {
                Ok(Ok(answer)) => Ok(Box::new(answer)),
                Ok(Err(status)) => Err(status.message().to_owned()),
                Err(_) => Err("no conductor and agent answered within 3 s".to_owned()),
            },
        )
    }

    fn permit(&self) -> Result<Permit, Status> {
        let permit = self.calls.acquire(Resource::Watches, 1);
        permit.map_err(|refused| {
            let owner = match refused.scope {
                Scope::Caller => refused.caller.as_str(),
                Scope::Tier(tier) => tier.as_str(),
            };
            let bound = refused.bound;
            let message = format!("too many views wait for agents: {bound} of {owner} at most");
            let refusal = Refusal::new(Code::ResourceExhausted, "TOO_MANY_CALLS", message);
            let status = to_status(&refusal.with_hint("load the page again in a few seconds"));
            self.calls.log(&status);
            status
        })
    }

    async fn measure(&self, name: String) -> Result<wire::WatchMigrationResponse, Status> {
        let _call = self.permit()?;
        let mut conductor = self.conductors.connect().await?;
        let request = self
            .conductors
            .request(wire::WatchMigrationRequest { name });
        let mut watch = conductor.watch_migration(request).await?.into_inner();
        let first = watch.message().await?;
        first.ok_or_else(|| Status::unavailable("the conductor ended before it answered"))
    }

    async fn console(&self, vm: String) -> Result<Console, Status> {
        let deadline = Instant::now() + CONSOLE_TIME_MAX;
        let read = timeout_at(deadline, self.read_console(vm)).await;
        read.unwrap_or_else(|_| {
            let late = "the console was not read within 5 s";
            Err(Status::deadline_exceeded(late))
        })
    }

    async fn read_console(&self, vm: String) -> Result<Console, Status> {
        let _call = self.permit()?;
        let mut conductor = self.conductors.connect().await?;
        let request = self.conductors.request(wire::ReadConsoleRequest {
            vm,
            offset: 0,
            follow: false,
        });
        let mut stream = conductor.read_console(request).await?.into_inner();
        let mut console = Console::default();
        while let Some(part) = stream.message().await? {
            if console.read >= CONSOLE_READ_MAX {
                console.has_more = true;
                break;
            }
            console.read += part.data.len() as u64;
            console.tail.extend(part.data);
            let surplus = console.tail.len().saturating_sub(CONSOLE_SHOWN_MAX);
            console.tail.drain(..surplus);
        }
        Ok(console)
    }
}
