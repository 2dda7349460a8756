//! Which physical networks the host reaches, looked at while the agent runs: bridges are made, changed and
//! removed by others.

use std::sync::Arc;
use std::time::Duration;

use berth_domain::network::{BridgeMapping, HostNetwork};
use berth_driver::Driver;
use berth_process::error_chain;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often the bridges are looked at.
const INTERVAL: Duration = Duration::from_secs(10);

/// The bridges that are configured, and what they reach.
pub(crate) struct Networks {
    driver: Arc<dyn Driver>,
    mappings: Vec<BridgeMapping>,
    reached: watch::Sender<Vec<HostNetwork>>,
    /// Why the latest look failed, if it did: logged once.
    failed: Option<String>,
}

impl Networks {
    /// Returns what looks at these bridges, and what they reach, beginning with `reached`.
    pub(crate) fn new(
        driver: Arc<dyn Driver>,
        mappings: Vec<BridgeMapping>,
        reached: Vec<HostNetwork>,
    ) -> (Self, watch::Receiver<Vec<HostNetwork>>) {
        let (reached, receiver) = watch::channel(reached);
        let networks = Self {
            driver,
            mappings,
            reached,
            failed: None,
        };
        (networks, receiver)
    }

    /// Looks until `stopping`; not at all where no bridge is configured.
    pub(crate) async fn watch(mut self, stopping: CancellationToken) {
        if self.mappings.is_empty() {
            return;
        }
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stopping.cancelled() => return,
                () = async {
                    ticks.tick().await;
                    self.look().await;
                } => {}
            }
        }
    }

    /// A hypervisor that cannot be reached leaves what is known as it is.
    async fn look(&mut self) {
        let (driver, mappings) = (self.driver.clone(), self.mappings.clone());
        let Ok(looked) = spawn_blocking(move || look(&*driver, &mappings)).await else {
            return;
        };
        let reached = match looked {
            Ok(reached) => reached,
            Err(error) => {
                if self.failed.as_ref() != Some(&error) {
                    log_failure(&error);
                    self.failed = Some(error);
                }
                return;
            }
        };
        self.failed = None;
        self.reached.send_if_modified(|known| {
            let differs = *known != reached;
            if differs {
                log_missing(&self.mappings, &reached);
                *known = reached;
            }
            differs
        });
    }
}

/// Returns what these bridges reach at the start.
pub(crate) fn at_start(driver: &dyn Driver, mappings: &[BridgeMapping]) -> Vec<HostNetwork> {
    if mappings.is_empty() {
        return Vec::new();
    }
    let reached = look(driver, mappings).unwrap_or_else(|error| {
        log_failure(&error);
        Vec::new()
    });
    log_missing(mappings, &reached);
    reached
}

fn look(driver: &dyn Driver, mappings: &[BridgeMapping]) -> Result<Vec<HostNetwork>, String> {
    driver
        .networks(mappings)
        .map_err(|error| error_chain(&error))
}

fn log_failure(error: &str) {
    tracing::warn!(error, "bridges cannot be looked at");
}

fn log_missing(mappings: &[BridgeMapping], reached: &[HostNetwork]) {
    let is_missing = |mapping: &&BridgeMapping| reached.iter().all(|one| one.mapping != **mapping);
    for mapping in mappings.iter().filter(is_missing) {
        let BridgeMapping {
            physical_network,
            bridge,
            bridge_type,
        } = mapping;
        tracing::warn!(%physical_network, bridge, %bridge_type, "bridge is not there");
    }
}
