//! What a hint says, done by commands; and operations carried to their ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_decide::{Action, ScheduleMigration};
use berth_domain::aggregate::{Aggregate, AggregateChange, ZONE_KEY};
use berth_domain::claim::{ErasureProgress, ErasureReport};
use berth_domain::hint::{
    Hint, HostShape, OpenStep, PoolChange, RequestChange, VmAction, VmChange,
};
use berth_domain::host::{HostReport, Liveness};
use berth_domain::id::{AggregateId, ClaimId, Generation, MigrationId, OperationId, TimeMs};
use berth_domain::migration::Event;
use berth_domain::name::{AggregateName, FlavorName, HostName, PmemName, VmName};
use berth_domain::network::{BridgeMapping, HostNetwork};
use berth_domain::operation::{GuestPower, Kind, Mark, Operation, Step};
use berth_domain::topology::{HostTopology, PagePool};
use berth_domain::version::ServiceVersion;
use berth_domain::vm;
use berth_state::Reply;
use berth_state::command::{Command, Effect};
use berth_testkit::state::host_network;

use super::cluster::World;
use super::report::INCARNATION;

impl World {
    /// Executes a hint. Returns the request that is to be made then.
    pub(super) fn execute(&mut self, hint: &Hint, request: &Action, place: &str) -> Action {
        match hint {
            Hint::WaitForErasure { host, namespaces } => self.erase(host, namespaces),
            Hint::OpenHost { host, steps } => steps.iter().for_each(|s| self.open(host, *s)),
            Hint::UpgradeAgents { agents, .. } => {
                for host in agents {
                    let mut report = self.report(host);
                    report.service_version = ServiceVersion::CURRENT;
                    self.register(host, report);
                }
            }
            Hint::Vacate {
                host,
                vms,
                erasures,
                ..
            } => {
                vms.iter().for_each(|vm| self.remove(vm, place));
                self.erase(host, erasures);
            }
            Hint::ChangeRequest(change) => return self.changed(change, request),
            Hint::ResizePools { host, pools } => self.resize_pools(host, pools, place),
            Hint::AddTraits { host, traits } => {
                let mut report = self.report(host);
                report.traits.extend(traits.iter().cloned());
                self.register(host, report);
            }
            Hint::AddBridges { host, bridges } => {
                let mut report = self.report(host);
                for needed in bridges {
                    report
                        .networks
                        .retain(|one| one.mapping.physical_network != needed.physical_network);
                    let mapping = BridgeMapping {
                        physical_network: needed.physical_network.clone(),
                        ..host_network().mapping
                    };
                    report.networks.push(HostNetwork {
                        mapping,
                        can_tag: needed.tags,
                        mtu: needed.mtu.unwrap_or(1500),
                    });
                }
                self.register(host, report);
            }
            Hint::AddHost { like } => self.add_host(like),
            Hint::AddShape(shape) => self.add_shape(shape),
            Hint::AnyHostAnd(hint) => {
                let request = self.changed(&RequestChange::AnyHost, request);
                return self.execute(hint, &request, place);
            }
        }
        request.clone()
    }

    fn report(&self, host: &HostName) -> HostReport {
        self.state.host(host).unwrap().host.report.clone()
    }

    fn open(&mut self, host: &HostName, step: OpenStep) {
        match step {
            OpenStep::Uncordon => drop(self.run(Command::SetCordon {
                host: host.clone(),
                cordoned: false,
            })),
            OpenStep::StartAgent => drop(self.run(Command::SetLiveness {
                host: host.clone(),
                liveness: Liveness::Up,
            })),
            OpenStep::RestoreShape | OpenStep::StopUnknownGuests => {
                panic!("no such host is drawn")
            }
        }
    }

    fn erase(&mut self, host: &HostName, namespaces: &[PmemName]) {
        for namespace in namespaces {
            let mut claims = self.state.claims_of_host(host);
            let erasing = claims.find(|claim| claim.erasures.contains_key(namespace));
            let claim = erasing.expect("it is being erased").id;
            drop(claims);
            self.run(Command::NoteErasures {
                host: host.clone(),
                incarnation: INCARNATION,
                reports: vec![ErasureReport {
                    claim,
                    namespace: namespace.clone(),
                    progress: ErasureProgress::Erased,
                }],
            });
        }
    }

    fn remove(&mut self, change: &VmChange, place: &str) {
        let vm = change.vm.clone();
        let action = match &change.action {
            VmAction::LiveMigrate { to } => Action::ScheduleMigration(ScheduleMigration {
                operation: OperationId(self.fresh()),
                migration: MigrationId(self.fresh()),
                claim: ClaimId(self.fresh()),
                vm,
                host: Some(to.clone()),
                lease: Self::lease(),
                transfer: Default::default(),
            }),
            VmAction::ColdMigrate { to } => self.cold_move(vm, None, Some(to.clone())),
            VmAction::ConfirmResize => {
                self.run(Command::ConfirmResize { vm, deleter: None });
                return;
            }
            VmAction::Shelve => return self.shelve(&vm),
            VmAction::Delete => return self.delete(&vm),
        };
        match self.decide(&action) {
            Ok(proposal) => self.carry_out(&proposal),
            Err(refusal) => panic!("{change:?}: {refusal:#?}\n{place}"),
        }
    }

    fn resize_pools(&mut self, host: &HostName, pools: &[PoolChange], place: &str) {
        let mut report = self.report(host);
        let old = Arc::clone(&report.topology);
        let mut cells = old.cells().to_vec();
        for change in pools {
            let cell = cells
                .iter_mut()
                .find(|cell| cell.id == change.node)
                .unwrap();
            let large = cell
                .pages
                .iter()
                .find(|pool| pool.size_kib == change.size_kib);
            assert_eq!(large.map_or(0, |pool| pool.total), change.pages, "{place}");
            cell.pages.retain(|pool| pool.size_kib != change.size_kib);
            let more_kib = (change.needed - change.pages) * change.size_kib;
            cell.pages[0].total -= more_kib / cell.pages[0].size_kib;
            cell.pages.push(PagePool {
                size_kib: change.size_kib,
                total: change.needed,
                reserved: 0,
            });
        }
        let new = HostTopology::new(cells, old.distances().to_vec()).unwrap();
        let new = new.with_pci(old.pci().to_vec()).unwrap();
        report.topology = Arc::new(new.with_pmem(old.pmem().to_vec()).unwrap());
        let was_hit = self.state.host(host).unwrap().host.hit.clone();
        self.register(host, report);
        let host = &self.state.host(host).unwrap().host;
        assert_eq!(
            (&host.shape_refused, &host.hit),
            (&None, &was_hit),
            "{place}"
        );
    }

    fn add_host(&mut self, like: &HostName) {
        let new = HostName::new("new").unwrap();
        self.register(&new, self.report(like));
        let aggregates = self.state.aggregates().values();
        let of_like = aggregates.filter(|aggregate| aggregate.hosts.contains(like));
        let names: Vec<_> = of_like.map(|aggregate| aggregate.name.clone()).collect();
        for aggregate in names {
            self.run(Command::UpdateAggregate {
                aggregate,
                change: AggregateChange {
                    add_hosts: BTreeSet::from([new.clone()]),
                    ..AggregateChange::default()
                },
            });
        }
    }

    fn add_shape(&mut self, shape: &HostShape) {
        let new = HostName::new("new").unwrap();
        let any = self.hosts()[0].clone();
        let mut report = self.report(&any);
        report.topology = Arc::new(shape.topology().unwrap());
        report.traits = shape.traits.iter().cloned().collect();
        report.service_version = ServiceVersion::CURRENT;
        self.register(&new, report);
        let zone = shape.zone.iter().map(|zone| (ZONE_KEY, zone.as_str()));
        let others = shape.metadata.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        for (key, value) in zone.chain(others) {
            let id = AggregateId(self.fresh());
            self.run(Command::CreateAggregate(Aggregate {
                name: AggregateName::new(&format!("new-{value}")).unwrap(),
                id,
                hosts: BTreeSet::from([new.clone()]),
                metadata: [(key.to_owned(), value.to_owned())].into(),
                generation: Generation(1),
                created_at: TimeMs(0),
            }));
        }
    }

    /// Returns the request with a change, for which a flavor is made if it needs another one.
    fn changed(&mut self, change: &RequestChange, request: &Action) -> Action {
        let mut request = request.clone();
        let (flavor, host, hints) = match &mut request {
            Action::ScheduleVm(params) => (
                Some(&mut params.flavor),
                &mut params.host,
                Some(&mut params.hints),
            ),
            Action::ScheduleMigration(params) => (None, &mut params.host, None),
            Action::ScheduleMove(params) => (params.flavor.as_mut(), &mut params.host, None),
            Action::ScheduleUnshelve(_)
            | Action::MoveDrained(_)
            | Action::ScheduleNext { .. }
            | Action::SetPolicy { .. }
            | Action::CreateVolume(_)
            | Action::Plain(_) => panic!("no such request is drawn"),
        };
        match change {
            RequestChange::AnyHost => *host = None,
            RequestChange::Zone(zone) => {
                hints.unwrap().availability_zone.clone_from(zone);
            }
            RequestChange::LeaveGroup(_) => hints.unwrap().server_group = None,
            RequestChange::ExtraSpec { key, value } => {
                let key = key.clone();
                let value = value.clone();
                self.other_flavor(flavor.unwrap(), |flavor| match value {
                    Some(value) => drop(flavor.extra_specs.insert(key, value)),
                    None => drop(flavor.extra_specs.remove(&key)),
                });
            }
            RequestChange::Vcpus(vcpus) => {
                self.other_flavor(flavor.unwrap(), |flavor| flavor.vcpus = *vcpus);
            }
            RequestChange::MemoryMib(mib) => {
                self.other_flavor(flavor.unwrap(), |flavor| flavor.memory_mib = *mib);
            }
        }
        request
    }

    fn other_flavor(
        &mut self,
        name: &mut FlavorName,
        change: impl FnOnce(&mut berth_domain::flavor::Flavor),
    ) {
        let mut flavor = (**self.state.flavor(name).unwrap()).clone();
        flavor.name = FlavorName::new("other").unwrap();
        change(&mut flavor);
        *name = flavor.name.clone();
        self.run(Command::CreateFlavor(flavor));
    }

    pub(super) fn stop(&mut self, vm: &VmName) {
        let operation = OperationId(self.fresh());
        let reply = self.run(Command::BeginPower {
            operation,
            vm: vm.clone(),
            kind: Kind::Stop { timeout_ms: 1_000 },
            lease: Self::lease(),
            by_policy: false,
        });
        self.end(reply);
    }

    pub(super) fn shelve(&mut self, vm: &VmName) {
        let operation = OperationId(self.fresh());
        let reply = self.run(Command::BeginShelve {
            operation,
            vm: vm.clone(),
            lease: Self::lease(),
        });
        self.end(reply);
    }

    pub(super) fn delete(&mut self, vm: &VmName) {
        let operation = OperationId(self.fresh());
        let reply = self.run(Command::BeginDelete {
            operation,
            vm: vm.clone(),
            lease: Self::lease(),
        });
        self.end(reply);
    }

    fn end(&mut self, reply: Reply) {
        let Reply::Operation(operation) = reply else {
            panic!("{reply:?}");
        };
        self.complete(&operation);
    }

    pub(super) fn log(&mut self, operation: &Operation, step: Step, mark: Mark, effect: Effect) {
        self.run(Command::Advance {
            operation: operation.id,
            epoch: operation.lease.as_ref().unwrap().epoch,
            step,
            mark,
            effect,
        });
    }

    /// Logs every step of an operation, and its end.
    pub(super) fn complete(&mut self, operation: &Operation) {
        use {Mark::Started, Mark::Succeeded};
        let none = || Effect::None;
        let steps: Vec<(Step, Mark, Effect)> = match &operation.kind {
            Kind::Boot => vec![
                (Step::Spawn, Started, none()),
                (Step::Spawn, Succeeded, Effect::CompleteBoot),
            ],
            Kind::Delete => vec![
                (Step::Destroy, Started, none()),
                (Step::Destroy, Succeeded, Effect::CompleteDelete),
            ],
            Kind::Shelve => vec![
                (Step::StopSource, Started, none()),
                (Step::StopSource, Succeeded, Effect::CompleteShelve),
            ],
            Kind::ColdMigrate { .. } => vec![
                (Step::StopSource, Started, none()),
                (Step::StopSource, Succeeded, none()),
                (Step::StartDestination, Started, none()),
                (Step::StartDestination, Succeeded, Effect::CompleteMove),
            ],
            Kind::LiveMigrate { .. } => vec![
                (Step::CheckDestination, Succeeded, none()),
                (Step::CheckSource, Succeeded, none()),
                (
                    Step::FitDestination,
                    Succeeded,
                    Effect::ConfirmClaim {
                        claim: operation.claim.unwrap(),
                    },
                ),
                (Step::PreLiveMigration, Started, none()),
                (Step::PreLiveMigration, Succeeded, none()),
                (Step::LiveMigration, Started, Effect::BeginTransfer),
                (Step::LiveMigration, Succeeded, none()),
                (
                    Step::Settle,
                    Succeeded,
                    Effect::Settle {
                        event: Event::Arrived,
                        refusal: None,
                    },
                ),
            ],
            Kind::DrainHost(_) => panic!("no hint drains a host"),
            Kind::Stop { .. }
            | Kind::Start
            | Kind::Reboot { .. }
            | Kind::Rebuild { .. }
            | Kind::Snapshot { .. }
            | Kind::RevertResize { .. }
            | Kind::ConfirmResize { .. }
            | Kind::Evacuate { .. }
            | Kind::Unshelve => {
                let steps: Vec<Step> = operation
                    .kind
                    .plan()
                    .steps
                    .iter()
                    .map(|plan| plan.step)
                    .collect();
                let mut all = Vec::new();
                for (at, step) in steps.iter().enumerate() {
                    all.push((*step, Started, none()));
                    let effect = match at + 1 == steps.len() {
                        true => Effect::EndPower {
                            power: GuestPower::Off,
                            refusal: None,
                        },
                        false => none(),
                    };
                    all.push((*step, Succeeded, effect));
                }
                all
            }
        };
        for (step, mark, effect) in steps {
            self.log(operation, step, mark, effect);
        }
        let vm = operation.vm().and_then(|name| self.state.vm(name));
        assert!(vm.is_none_or(|vm| vm.operation.is_none() && vm.state != vm::State::Building));
    }
}
