//! The host's persistent memory: discovered when the agent starts, rediscovered periodically, erased
//! when the driver is called to.
//!
//! A configured namespace that is missing stops the start: the configuration is wrong. One that
//! disappears later is reported to the scheduler with the reason; guests keep what they have, and no
//! guest is assigned it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use berth_agent_core::Event;
use berth_domain::name::PmemName;
use berth_domain::pmem::{
    Label, PATH_LENGTH_MAX, PmemDevice, PmemNamespace, REGION_LENGTH_MAX, TROUBLE_LENGTH_MAX,
};
use berth_domain::topology::{CellId, HostTopology};
use berth_driver::{Eraser, Error as DriverError};
use berth_host::description::Description;
use berth_pmem::ndctl::Mode;
use berth_pmem::real::{Real, Settings};
use berth_pmem::simulated::{self, Memory, Simulated, World};
use berth_pmem::versions::Part;
use berth_pmem::{Configured, Discovery, EraseId, Order, Pmem, State};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::{Config, DriverKind};
use crate::error::Error;

/// How often it is looked which namespaces there are.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How often it is looked how far an erase is.
const ERASE_LOOK_EVERY: Duration = Duration::from_millis(100);

/// The persistent memory of a host.
#[derive(Clone)]
pub(crate) struct Memories {
    pmem: Arc<dyn Pmem>,
    configured: Configured,
    /// Why no guest can be assigned any: a program that is too old.
    withheld: Option<String>,
}

impl Memories {
    /// Returns the host's, if it is to have any.
    pub(crate) fn of(
        config: &Config,
        configured: &Configured,
        machine: Option<&Description>,
    ) -> Option<Self> {
        if configured.is_empty() {
            return None;
        }
        let is_described = machine.is_some() || config.driver == DriverKind::Sim;
        let pmem: Arc<dyn Pmem> = if is_described {
            let world = described(machine);
            let clock = simulated::wall_clock();
            Arc::new(Simulated::new(&world, configured.clone(), clock))
        } else {
            let settings = Settings {
                ndctl: config.pmem.ndctl.clone(),
                daxio: config.pmem.daxio.clone(),
                ..Settings::default()
            };
            Arc::new(Real::new(configured.clone(), settings))
        };
        let parts = [Part::Linux, Part::Ndctl, Part::Daxio];
        let withheld = pmem.versions().check_parts(&parts).err();
        Some(Self {
            pmem,
            configured: configured.clone(),
            withheld: withheld.map(|withheld| withheld.to_string()),
        })
    }

    /// Takes into account the version that the hypervisor reports.
    pub(crate) fn with_hypervisor(&mut self, version: &str) {
        let Some((qemu, libvirt)) = version.split_once(" through ") else {
            // A simulated one does what this program does.
            return;
        };
        let versions = self.pmem.versions().with_hypervisor(qemu, libvirt);
        let checked = versions.check();
        self.withheld = checked.err().map(|withheld| withheld.to_string());
    }

    /// Returns the namespaces as the agent starts with them.
    ///
    /// # Errors
    ///
    /// What is configured and is not on the host like that.
    pub(crate) fn at_start(&self) -> Result<Vec<PmemNamespace>, Error> {
        if let Some(withheld) = &self.withheld {
            tracing::warn!("persistent memory is not available to guests: {withheld}");
            return Ok(self.without(withheld));
        }
        match self.pmem.discover() {
            Ok(discovery) => {
                let may_start = discovery.check_start();
                may_start.map_err(|fault| Error::Pmem(fault.to_string()))?;
                Ok(self.checked(&discovery))
            }
            Err(error) => {
                tracing::warn!("persistent memory is not available to guests: {error}");
                Ok(self.without(&error.to_string()))
            }
        }
    }

    /// Returns the namespaces as they are now.
    pub(crate) fn now(&self) -> Vec<PmemNamespace> {
        match (&self.withheld, self.pmem.discover()) {
            (Some(withheld), _) => self.without(withheld),
            (None, Ok(discovery)) => self.checked(&discovery),
            (None, Err(error)) => self.without(&error.to_string()),
        }
    }

    /// Rediscovers periodically until `stopping`, and sends changes to the core and to the
    /// registration of the host.
    pub(crate) async fn watch(
        self,
        mut before: Vec<PmemNamespace>,
        news: mpsc::Sender<Event>,
        registration: watch::Sender<Vec<PmemNamespace>>,
        stopping: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let memories = self.clone();
            let looked = tokio::task::spawn_blocking(move || memories.now());
            let Ok(now) = looked.await else { return };
            if now == before {
                continue;
            }
            for namespace in now.iter().filter(|n| !n.trouble.is_empty()) {
                tracing::warn!(name = %namespace.name, "pmem namespace: {}", namespace.trouble);
            }
            before.clone_from(&now);
            // The shell and the registration end when this does.
            let _ = news.send(Event::Namespaces(now.clone())).await;
            registration.send_replace(now);
        }
    }

    fn checked(&self, discovery: &Discovery) -> Vec<PmemNamespace> {
        let each = self.configured.iter().map(|(name, label)| {
            let Some(record) = discovery.record(name) else {
                let refused = discovery.refusal(name);
                let why = refused.map(|refused| refused.reason.to_string());
                return troubled(
                    name,
                    label,
                    &why.unwrap_or_else(|| "it is unknown".to_owned()),
                );
            };
            let path = record.path.display().to_string();
            if path.len() > PATH_LENGTH_MAX {
                return troubled(name, label, "the path of its device is too long");
            }
            Some(PmemNamespace {
                name: PmemName::new(name).ok()?,
                class: label.class(),
                size_bytes: record.size_bytes,
                align_bytes: record.align_bytes,
                path,
                cell: record.numa_node.map(CellId),
                region: cut(
                    record.region.as_deref().unwrap_or_default(),
                    REGION_LENGTH_MAX,
                ),
                trouble: String::new(),
            })
        });
        each.flatten().collect()
    }

    fn without(&self, why: &str) -> Vec<PmemNamespace> {
        let each = self.configured.iter();
        each.filter_map(|(name, label)| troubled(name, label, why))
            .collect()
    }
}

impl Eraser for Memories {
    fn erase(&self, device: &PmemDevice) -> Result<(), DriverError> {
        let namespace = device.name.as_str();
        let order = Order {
            id: EraseId(Uuid::new_v4().as_u128()),
            namespace: namespace.to_owned(),
            resume: None,
        };
        let refused = |why: String| DriverError::Refused { message: why };
        let begun = self.pmem.start_erase(&order);
        begun.map_err(|error| refused(error.to_string()))?;
        loop {
            let progress = self.pmem.erase(namespace);
            let progress = progress.filter(|progress| progress.id == order.id);
            let state = progress.map(|progress| progress.state);
            match state {
                Some(State::Queued | State::Erasing) => thread::sleep(ERASE_LOOK_EVERY),
                Some(State::Done) => return Ok(()),
                Some(State::Failed(failure)) => return Err(refused(failure.to_string())),
                Some(State::Aborted) | None => return Err(refused("it was stopped".to_owned())),
            }
        }
    }

    fn erased_bytes(&self) -> BTreeMap<PmemName, u64> {
        let erases = self.pmem.erases().into_iter();
        let active = erases.filter(|erase| erase.state.is_active());
        active
            .filter_map(|e| Some((PmemName::new(&e.namespace).ok()?, e.done_bytes)))
            .collect()
    }
}

/// Returns the topology with these namespaces.
pub(crate) fn with(
    topology: &HostTopology,
    namespaces: Vec<PmemNamespace>,
) -> Result<HostTopology, Error> {
    let with = topology.clone().with_pmem(namespaces);
    with.map_err(|error| Error::Pmem(error.to_string()))
}

/// Returns the memory of a machine that is described.
fn described(machine: Option<&Description>) -> World {
    let world = World::default();
    for namespace in machine.iter().flat_map(|machine| &machine.pmem) {
        world.make(&Memory {
            name: namespace.name.clone(),
            mode: Mode::new(&namespace.mode),
            size_bytes: namespace.size_mib << 20,
            align_bytes: namespace.align_kib << 10,
            numa_node: namespace.numa_node,
        });
    }
    world
}

/// Returns a namespace that cannot be assigned; nothing for a name that was refused when the
/// configuration was read.
fn troubled(name: &str, label: &Label, why: &str) -> Option<PmemNamespace> {
    Some(PmemNamespace {
        name: PmemName::new(name).ok()?,
        class: label.class(),
        size_bytes: 0,
        align_bytes: 0,
        path: String::new(),
        cell: None,
        region: String::new(),
        trouble: cut(why, TROUBLE_LENGTH_MAX),
    })
}

fn cut(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len())).rfind(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].to_owned()
}
