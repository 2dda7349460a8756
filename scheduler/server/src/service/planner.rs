//! `berth.planner.v1.PlannerService`: failover verification, balancing, remaining capacity.
//!
//! Plans are made on a frozen state, away from the replica's task, and few at the same time: each
//! may take a processor for seconds.
//!
//! Invariant: what depends on memory signals is computed by the leader alone, as only the leader has
//! them. A host whose agent has not reported is stated as unknown, and not counted with 0.

use std::collections::BTreeSet;

use berth_decide::balance::{self, BalanceParams, HeadroomPlan, Live};
use berth_decide::capacity::{self, AtRatio, CapacityParams};
use berth_decide::verify::{self, DomainVerdict, Failing};
use berth_domain::host;
use berth_domain::host_view::HostView;
use berth_domain::migration;
use berth_domain::name::HostName;
use berth_domain::overcommit::AllocationRatio;
use berth_domain::policy::{RATIO_MILLI_MAX, RATIO_MILLI_MIN};
use berth_domain::refusal::Refusal;
use berth_domain::resource::ResourceClass;
use berth_domain::signals::swap_warnings;
use berth_process::bounds::Held;
use berth_proto::convert::{Invalid, ResourceName as _, field};
use berth_proto::planner::v1;
use berth_proto::planner::v1::planner_service_server::PlannerService;
use berth_proto::scheduler::v1::PlannedMove;
use berth_proto::scheduler::v1::migration::Kind;
use berth_proto::status::to_status;
use berth_selection::balance::{End, Move, Plan, Score};
use berth_selection::failover::{self, Budget, Verdict};
use berth_state::State;
use tonic::{Request, Response, Status};

use super::context::Context;
use super::policy;

/// Maximum number of placements for one verdict.
const BUDGET_MAX: u64 = 100_000_000;

/// Serves `PlannerService`.
pub(crate) struct PlannerApi(pub(crate) Context);

impl PlannerApi {
    /// Computes a plan on a frozen state, as soon as a processor is there for it. What its request
    /// holds is held until then though its client is gone: else each would start many.
    async fn plan<T: Send + 'static>(
        &self,
        held: Option<Held>,
        state: State,
        work: impl FnOnce(&State) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Status> {
        let turn = self.0.planner_turn().await;
        let planned = tokio::task::spawn_blocking(move || {
            let _held = (turn, held);
            work(&state)
        });
        let planned = planned
            .await
            .map_err(|error| Status::internal(format!("the plan failed: {error}")))?;
        planned.map_err(|refusal| to_status(&refusal))
    }
}

impl PlannerApi {
    /// Returns the memory that guests really occupy on each host, as far as agents have reported
    /// it, and the names of the hosts that are up and of which it is unknown.
    fn live(&self, state: &State) -> Result<(Live, Vec<String>), Status> {
        let now_ms = self.0.monotonic_ms();
        let held_mib = |host: &HostName| {
            let measured = self.0.liveness().signals(host, now_ms)?;
            Some(measured.signals.non_discardable_kib()? / 1024)
        };
        let mut live = Live::new();
        let mut unreported = Vec::new();
        for (name, view) in state.hosts() {
            match held_mib(name) {
                Some(mib) => drop(live.insert(name.clone(), mib)),
                None if view.host.liveness == host::Liveness::Up => {
                    unreported.push(name.resource_name());
                }
                None => {}
            }
        }
        // After the signals were read: they are discarded with leadership, and what is missing for
        // that reason is no statement about a host.
        self.0.must_lead_unless_stale()?;
        Ok((live, unreported))
    }

    /// Returns the memory status of each host.
    fn hosts(&self, state: &State, failing: Failing, names: &[String]) -> Vec<v1::VerifiedHost> {
        let is_selected = |name: String| match failing {
            Failing::Host => names.is_empty() || names.contains(&name),
            Failing::Zone | Failing::Aggregate => true,
        };
        let views = state.hosts().values();
        let selected = views.filter(|view| is_selected(view.host.name.resource_name()));
        let hosts = selected.map(|view| v1::VerifiedHost {
            host: view.host.name.resource_name(),
            memory: Some(policy::memory_of(state, view)),
            warnings: self.warnings(view),
        });
        hosts.collect()
    }

    /// Returns warnings about the vCPUs of a host, and about its swap space.
    fn warnings(&self, view: &HostView) -> Vec<String> {
        let mut warnings = Vec::from_iter(cpu_warning(view));
        warnings.extend(self.swap_warnings(view));
        warnings
    }

    /// Returns warnings about the swap space of a host, as far as its agent reports it.
    fn swap_warnings(&self, view: &HostView) -> Vec<String> {
        let now_ms = self.0.monotonic_ms();
        let books = view.books();
        let Some(measured) = self.0.liveness().signals(&view.host.name, now_ms) else {
            let matters = books.ratio > AllocationRatio::ONE;
            let unknown =
                "its swap space is unknown: its agent has not reported it to the leader yet";
            return Vec::from_iter(matters.then(|| unknown.to_owned()));
        };
        let (node_mib, used_mib) = (books.mem_node_mib, books.taken.total_mib());
        let warnings = swap_warnings(&measured.signals, books.ratio, node_mib, used_mib);
        let warnings = warnings.iter();
        warnings
            .map(|warning| format!("{warning}; {}", warning.hint()))
            .collect()
    }
}

/// Returns a warning where claims have more shared vCPUs than may be given away.
fn cpu_warning(view: &HostView) -> Option<String> {
    let class = ResourceClass::vcpu();
    let inventory = view.inventories.get(&class)?;
    let used = view.used_of(&class);
    (!inventory.holds(used)).then(|| {
        format!(
            "guests have {used} shared vCPUs, and {} may be given away ({} shared CPUs, {} of them \
             reserved, ratio {}); no more fit",
            inventory.capacity(),
            inventory.total,
            inventory.reserved,
            inventory.allocation_ratio
        )
    })
}

#[tonic::async_trait]
impl PlannerService for PlannerApi {
    async fn verify_cluster(
        &self,
        request: Request<v1::VerifyClusterRequest>,
    ) -> Result<Response<v1::VerifyClusterResponse>, Status> {
        let held = Held::of(&request);
        let wire = request.into_inner();
        let (failing, names) = read_domains(&wire)?;
        let budget = budget(wire.budget)?;
        let state = self.0.state(wire.consistency).await?;
        let revision = state.revision();
        let work = move |state: &State| verify::verify(state, failing, &names, budget);
        let hosts = self.hosts(&state, failing, &wire.names);
        self.0.must_lead_unless_stale()?;
        let verdicts = self.plan(held, state, work).await?;
        Ok(Response::new(v1::VerifyClusterResponse {
            domains: verdicts.iter().map(write_verdict).collect(),
            hosts,
            revision,
        }))
    }

    async fn get_score(
        &self,
        request: Request<v1::GetScoreRequest>,
    ) -> Result<Response<v1::GetScoreResponse>, Status> {
        let held = Held::of(&request);
        let wire = request.into_inner();
        let state = self.0.state(wire.consistency).await?;
        let revision = state.revision();
        let (live, unreported_hosts) = self.live(&state)?;
        let work = move |state: &State| balance::score(state, &live);
        let score = self.plan(held, state, work).await?;
        Ok(Response::new(v1::GetScoreResponse {
            score: Some(write_score(&score)),
            revision,
            unreported_hosts,
        }))
    }

    async fn plan_balance(
        &self,
        request: Request<v1::PlanBalanceRequest>,
    ) -> Result<Response<v1::PlanBalanceResponse>, Status> {
        let held = Held::of(&request);
        let wire = request.into_inner();
        let params = read_balance(&wire);
        let state = self.0.state(wire.consistency).await?;
        let revision = state.revision();
        let (live, unreported) = self.live(&state)?;
        if let Some(flavor) = field::optional_name(&wire.fit_flavor, "fit_flavor")? {
            let count = vm_count(wire.fit_count)?;
            let work = move |state: &State| balance::plan_headroom(state, &flavor, count);
            let plan = self.plan(held, state, work).await?;
            let response = write_headroom(&plan, revision, unreported);
            return Ok(Response::new(response));
        }
        let work = move |state: &State| balance::plan_balance(state, live, &params);
        let plan = self.plan(held, state, work).await?;
        Ok(Response::new(write_plan(&plan, revision, unreported)))
    }

    async fn get_capacity(
        &self,
        request: Request<v1::GetCapacityRequest>,
    ) -> Result<Response<v1::GetCapacityResponse>, Status> {
        let held = Held::of(&request);
        let wire = request.into_inner();
        let params = read_capacity(&wire)?;
        let state = self.0.state(wire.consistency).await?;
        let revision = state.revision();
        let work = move |state: &State| capacity::capacity(state, &params);
        let ratios = self.plan(held, state, work).await?;
        Ok(Response::new(v1::GetCapacityResponse {
            ratios: ratios.iter().map(write_capacity).collect(),
            revision,
        }))
    }
}

fn write_score(score: &Score) -> v1::Score {
    let components = score.components.iter();
    v1::Score {
        total: score.total,
        components: components
            .map(|component| v1::ScoreComponent {
                name: component.name.to_owned(),
                value: component.value,
                weight: component.weight,
            })
            .collect(),
    }
}

fn write_planned(planned: &Move) -> v1::BalanceMove {
    v1::BalanceMove {
        vm: planned.vm.resource_name(),
        source: planned.from.resource_name(),
        destination: planned.to.resource_name(),
        score_after: planned.score_after,
        reason: planned.why.clone(),
        set: u32::try_from(planned.set).unwrap_or(u32::MAX),
        memory_mib: planned.sent_mib,
    }
}

fn write_plan(plan: &Plan, revision: u64, unreported: Vec<String>) -> v1::PlanBalanceResponse {
    let mut ended = match plan.end {
        End::BelowThreshold => "nothing is above the thresholds".to_owned(),
        End::Balanced => "no single move gains more than the minimum".to_owned(),
        End::MovesMax => "the requested maximum number of moves is reached".to_owned(),
    };
    for (why, moves) in &plan.refused {
        ended.push_str(&format!("; {moves} x not made since {why}"));
    }
    v1::PlanBalanceResponse {
        before: Some(write_score(&plan.before)),
        after: Some(write_score(&plan.after)),
        moves: plan.moves.iter().map(write_planned).collect(),
        ended,
        revision,
        unreported_hosts: unreported,
    }
}

/// Maximum number of VMs to free capacity for.
const VM_COUNT_MAX: u32 = 1000;

fn vm_count(count: u32) -> Result<usize, Invalid> {
    let count = count.max(1);
    match count <= VM_COUNT_MAX {
        true => Ok(count as usize),
        false => Err(Invalid::new(
            "fit_count",
            format!("must be at most {VM_COUNT_MAX}"),
        )),
    }
}

fn write_headroom(
    plan: &HeadroomPlan,
    revision: u64,
    unreported: Vec<String>,
) -> v1::PlanBalanceResponse {
    let moves = plan.way.moves.iter().zip(&plan.scores);
    let last = plan.scores.last().unwrap_or(&plan.before);
    v1::PlanBalanceResponse {
        before: Some(write_score(&plan.before)),
        after: Some(write_score(last)),
        moves: moves
            .map(|(step, score)| v1::BalanceMove {
                vm: step.vm.resource_name(),
                source: step.from.resource_name(),
                destination: step.to.resource_name(),
                score_after: score.total,
                reason: "to free capacity".to_owned(),
                set: u32::try_from(step.set).unwrap_or(u32::MAX),
                memory_mib: step.sent_mib,
            })
            .collect(),
        ended: plan.summary.clone(),
        revision,
        unreported_hosts: unreported,
    }
}

/// Maximum number of ratios in a request.
const RATIOS_MAX: usize = 16;

fn read_capacity(wire: &v1::GetCapacityRequest) -> Result<CapacityParams, Invalid> {
    if wire.ratios_milli.len() > RATIOS_MAX {
        let rule = format!("at most {RATIOS_MAX} at once");
        return Err(Invalid::new("ratios_milli", rule));
    }
    let (least, most) = (u64::from(RATIO_MILLI_MIN), u64::from(RATIO_MILLI_MAX));
    if !wire.ratios_milli.iter().all(|r| (least..=most).contains(r)) {
        let rule = format!("must be from {least} to {most}");
        return Err(Invalid::new("ratios_milli", rule));
    }
    Ok(CapacityParams {
        flavor: field::name(&wire.flavor, "flavor")?,
        ratios_milli: wire.ratios_milli.clone(),
        with_failure: !wire.without_failure,
        with_tiers: wire.tiered,
    })
}

fn write_capacity(at: &AtRatio) -> v1::CapacityAtRatio {
    let after = at.after.as_ref().map(|worst| &worst.worst);
    let tiers = at.tiers.iter().flat_map(|tiered| &tiered.tiers);
    let or_none = |text: Option<&String>| text.cloned().unwrap_or_default();
    v1::CapacityAtRatio {
        ratio_milli: at.ratio_milli.unwrap_or(0),
        vms: at.now.count,
        limiting: or_none(at.now.binding.as_ref()),
        vms_after_failure: after.map(|after| after.count),
        worst_host: after.map_or(String::new(), |after| format!("hosts/{}", after.domain)),
        limiting_after_failure: match after {
            Some(after) if !after.is_survived => "NOT_SURVIVED".to_owned(),
            Some(_) | None => or_none(after.and_then(|after| after.binding.as_ref())),
        },
        tiers: tiers
            .map(|tier| v1::CapacityTier {
                memory_mib: tier.shape.memory_mib,
                vcpus: tier.shape.vcpus,
                disk_gib: tier.shape.disk_gib,
                vms: tier.count,
            })
            .collect(),
    }
}

fn read_balance(wire: &v1::PlanBalanceRequest) -> BalanceParams {
    BalanceParams {
        gain_min: wire.gain_min,
        threshold: wire.threshold,
        usage: wire.usage_threshold,
        moves_max: wire.moves_max,
    }
}

fn read_domains(wire: &v1::VerifyClusterRequest) -> Result<(Failing, BTreeSet<String>), Invalid> {
    let failing = match v1::FailureDomain::try_from(wire.domain) {
        Ok(v1::FailureDomain::Unspecified | v1::FailureDomain::Host) => Failing::Host,
        Ok(v1::FailureDomain::Zone) => Failing::Zone,
        Ok(v1::FailureDomain::Aggregate) => Failing::Aggregate,
        Err(_) => return Err(Invalid::new("domain", "must be one of the named values")),
    };
    let read = |name: &String| match failing {
        Failing::Host => {
            let host: HostName = field::name(name, "names")?;
            Ok(host.to_string())
        }
        Failing::Zone | Failing::Aggregate => Ok(name.clone()),
    };
    let names: Result<_, Invalid> = wire.names.iter().map(read).collect();
    Ok((failing, names?))
}

fn budget(placements: u64) -> Result<Budget, Invalid> {
    match placements {
        0 => Ok(Budget::default()),
        1..=BUDGET_MAX => Ok(Budget {
            placements,
            ..Budget::default()
        }),
        _ => Err(Invalid::new(
            "budget",
            format!("must be at most {BUDGET_MAX}"),
        )),
    }
}

fn write_verdict(domain: &DomainVerdict) -> v1::DomainVerdict {
    let (verdict, tried) = match &domain.verdict {
        Verdict::Proven(_) => (v1::Verdict::Proven, 0),
        Verdict::Refuted(_) => (v1::Verdict::Refuted, 0),
        Verdict::Unknown { tried, .. } => (v1::Verdict::Unknown, *tried),
    };
    let plan = domain.verdict.plan();
    let plan = plan.map_or(Vec::new(), |plan| {
        plan.moves.iter().map(write_move).collect()
    });
    let hosts = domain.domain.hosts.iter();
    v1::DomainVerdict {
        name: domain.domain.name.clone(),
        hosts: hosts.map(|host| host.resource_name()).collect(),
        verdict: verdict.into(),
        plan,
        reason: verify::reason(domain).as_ref().map(Into::into),
        tried,
    }
}

fn write_move(planned: &failover::Move) -> PlannedMove {
    PlannedMove {
        vm: planned.vm.resource_name(),
        kind: Kind::from(migration::Kind::Evacuation).into(),
        destination: planned.to.resource_name(),
        assignment: Some((&planned.assignment).into()),
    }
}
