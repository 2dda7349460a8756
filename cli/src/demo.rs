//! `berth demo`: boots and live-migrates guests step by step, and checks every step.
//!
//! Invariant: the exit status is 0 only if every check held; what is printed was observed
//! through the API, nothing is assumed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_domain::claim::{self, Claim};
use berth_domain::host::Host;
use berth_domain::operation::{Operation, Step};
use berth_domain::refusal::Refusal;
use berth_domain::vm::{State, Vm};
use berth_proto::cluster::v1::GetClusterStatusRequest;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::conductor::v1::{CreateVmRequest, MigrateVmRequest};
use berth_proto::host::v1::GetHostRequest;
use berth_proto::host::v1::host_service_client::HostServiceClient;
use berth_proto::operation::v1::GetOperationRequest;
use berth_proto::operation::v1::operation_service_client::OperationServiceClient;
use berth_proto::scheduler::v1::scheduler_service_client::SchedulerServiceClient;
use berth_proto::scheduler::v1::{CreateFlavorRequest, GetVmRequest};
use berth_proto::types::v1 as wire;
use serde::Serialize;

use crate::arguments::Demo as Options;
use crate::dev::{Cluster, Plan};
use crate::output::{self, Format, Lines};
use crate::session::{Session, not_begun, request_id, resource};
use crate::sides::Sides;
use crate::{call, draw, progress, read};

/// vCPU -> host CPU.
type Pins = BTreeMap<u32, u32>;

/// A guest that was booted.
#[derive(Debug, Serialize)]
struct Booted {
    vm: String,
    host: String,
    pins: Pins,
}

/// A guest that was moved.
#[derive(Debug, Serialize)]
struct Migrated {
    vm: String,
    source: String,
    destination: String,
    pins_before: Pins,
    pins_after: Pins,
}

/// Something that was refused.
#[derive(Debug, Serialize)]
struct Refused {
    vm: String,
    operation: &'static str,
    reason: String,
}

/// The outcome, for `--output json`.
#[derive(Debug, Default, Serialize)]
struct Summary {
    booted: Vec<Booted>,
    migrated: Vec<Migrated>,
    refused: Vec<Refused>,
}

/// The demonstration and the session that it runs on.
struct Demo {
    session: Session,
    json: bool,
    summary: Summary,
    section: u32,
}

/// Runs the demonstration.
///
/// # Errors
///
/// The first check that did not hold.
pub async fn run(options: Options, output: Format) -> anyhow::Result<()> {
    let started = Instant::now();
    let plan = Plan {
        schedulers: 3,
        hosts: 2,
        port: 0,
        data_dir: None,
        transfer_ms: 1_500,
        ephemeral: false,
        placement: None,
        page: None,
    };
    let mut demo = Demo::new(output);
    demo.section("Three schedulers agree by Raft, a conductor and two hosts join them.");
    let mut cluster = Cluster::start(&plan).await?;
    demo.session = cluster.session(output)?;
    let result = run_sections(&mut demo, &mut cluster).await;
    if options.keep && result.is_ok() {
        let schedulers = cluster.schedulers().join(",");
        output::message(format!(
            "the cluster goes on at BERTH_SCHEDULER={schedulers}; Ctrl-C ends it"
        ));
        tokio::signal::ctrl_c().await?;
    }
    cluster.stop().await;
    result?;
    if demo.json {
        return output::value(&demo.summary);
    }
    demo.print("");
    demo.print(format!(
        "Every check held. It took {}.",
        output::seconds(started.elapsed())
    ));
    Ok(())
}

async fn run_sections(demo: &mut Demo, cluster: &mut Cluster) -> anyhow::Result<()> {
    demo.flavor("pinned", 2).await?;
    demo.flavor("big", 3).await?;

    demo.section("A guest with two CPUs of its own boots on each host.");
    let a = demo.boot("a", "pinned", "host-a").await?;
    let b = demo.boot("b", "pinned", "host-b").await?;
    check(a == b, || {
        format!("both hosts are empty and alike, yet a got {a:?} and b got {b:?}")
    })?;
    demo.print(
        "  The same CPU numbers on both hosts: a naive migration would put two guests on one CPU.",
    );
    demo.picture("host-b").await?;

    demo.section(
        "a moves to host-b while it runs; its CPUs are re-fitted and claimed there first.",
    );
    let moved = demo.migrate("a", "host-b", None).await?;
    let taken: BTreeSet<u32> = b.values().copied().collect();
    check(moved.values().all(|cpu| !taken.contains(cpu)), || {
        format!("a arrived on {moved:?}, which overlaps with b on {b:?}")
    })?;
    check(moved != a, || {
        "a kept its CPU numbers, which b has".to_owned()
    })?;
    demo.nothing_left("host-a").await?;
    demo.counts_agree("host-b", 4).await?;
    demo.picture("host-b").await?;

    demo.section("A guest that does not fit on host-b is refused before anything moves.");
    let big = demo.boot("c", "big", "host-a").await?;
    demo.refused_migration("c", "host-b").await?;
    let vm = demo.vm("c").await?;
    check(vm.0.state == State::Active && pins(&vm.1) == big, || {
        format!("c should run on host-a as before: {:?}", vm.0)
    })?;
    demo.counts_agree("host-b", 4).await?;

    demo.section(
        "The leading scheduler is killed in the middle of a migration; it settles all the same.",
    );
    demo.migrate("a", "host-a", Some(cluster)).await?;
    demo.counts_agree("host-a", 5).await?;
    demo.counts_agree("host-b", 2).await?;
    demo.picture("host-a").await
}

impl Demo {
    fn new(output: Format) -> Self {
        let nowhere = ["127.0.0.1:1".to_owned()];
        let session = Session::new(&nowhere, output).expect("an address");
        Self {
            session,
            json: output.is_of_value(),
            summary: Summary::default(),
            section: 0,
        }
    }

    /// Prints a line, on standard error where standard output carries JSON.
    fn print(&self, lines: impl Into<Lines>) {
        if self.json {
            output::message(lines);
        } else {
            output::print(lines);
        }
    }

    fn section(&mut self, title: &str) {
        self.section += 1;
        self.print("");
        self.print(format!("{}. {title}", self.section));
    }

    async fn flavor(&self, name: &str, vcpus: u32) -> anyhow::Result<()> {
        let flavor = wire::Flavor {
            name: resource("flavors", name),
            vcpus,
            memory_mib: 512,
            disk_gib: 0,
            extra_specs: [("hw:cpu_policy".to_owned(), "dedicated".to_owned())].into(),
            ..wire::Flavor::default()
        };
        let request = CreateFlavorRequest {
            flavor: Some(flavor),
            request_id: request_id(None),
        };
        call!(self.session, SchedulerServiceClient, create_flavor, request)?;
        Ok(())
    }

    /// Boots a guest on a host and returns its pins.
    async fn boot(&mut self, vm: &str, flavor: &str, host: &str) -> anyhow::Result<Pins> {
        let kernel = wire::KernelBoot {
            kernel: "vmlinuz".to_owned(),
            initrd: "initrd.gz".to_owned(),
            cmdline: "console=ttyS0".to_owned(),
        };
        let request = CreateVmRequest {
            vm: resource("vms", vm),
            template: Some(wire::VmTemplate {
                flavor: resource("flavors", flavor),
                boot: Some(wire::BootSource {
                    source: Some(wire::boot_source::Source::Kernel(kernel)),
                }),
                ..Default::default()
            }),
            requested_host: resource("hosts", host),
            request_id: request_id(None),
        };
        let response = self.session.conductor().await?.create_vm(request).await;
        let operation = response
            .map_err(|s| not_begun(&s, None))?
            .into_inner()
            .operation;
        progress::follow(&self.session, &operation.unwrap_or_default().name).await?;
        let (record, claim) = self.vm(vm).await?;
        check(
            record.state == State::Active && claim.host.as_str() == host,
            || format!("{vm} should be ACTIVE on {host}: {record:?}"),
        )?;
        let pins = pins(&claim);
        self.print(format!("  {vm} runs on {host}: {}", sentence(&pins)));
        self.summary.booted.push(Booted {
            vm: vm.to_owned(),
            host: host.to_owned(),
            pins: pins.clone(),
        });
        Ok(pins)
    }

    /// Moves a guest and returns its new pins. With a cluster, the leader is killed on the way.
    async fn migrate(
        &mut self,
        vm: &str,
        destination: &str,
        kill: Option<&mut Cluster>,
    ) -> anyhow::Result<Pins> {
        let (before, source_claim) = self.vm(vm).await?;
        let source = before
            .host
            .context("a running guest has a host")?
            .to_string();
        let operation = self.begin_migration(vm, destination).await?;
        if let Some(cluster) = kill {
            self.wait_for(&operation, Step::LiveMigration).await?;
            let leader = self.leader().await?;
            cluster.kill_scheduler(&leader)?;
            self.print(format!(
                "  killed the leader at {leader} while the guest was moving"
            ));
            self.session = cluster.session(self.session.output)?;
        }
        let operation = progress::follow(&self.session, &operation).await?;
        let (after, claim) = self.vm(vm).await?;
        check(
            after.state == State::Active && claim.host.as_str() == destination,
            || format!("{vm} should be ACTIVE on {destination}: {after:?}"),
        )?;
        check(claim.state == claim::State::Active, || {
            format!("its claim is not ACTIVE: {claim:?}")
        })?;
        let steps = operation.log.len();
        let (pins_before, pins_after) = (pins(&source_claim), pins(&claim));
        let mut lines = Lines::new();
        writeln!(
            lines,
            "  {vm} moved from {source} to {destination} in {steps} recorded steps:"
        );
        writeln!(lines, "    before: {}", sentence(&pins_before));
        writeln!(lines, "    after:  {}", sentence(&pins_after));
        self.print(lines);
        self.summary.migrated.push(Migrated {
            vm: vm.to_owned(),
            source,
            destination: destination.to_owned(),
            pins_before,
            pins_after: pins_after.clone(),
        });
        Ok(pins_after)
    }

    async fn begin_migration(&self, vm: &str, destination: &str) -> Result<String, Refusal> {
        let request = MigrateVmRequest {
            transfer: None,
            vm: resource("vms", vm),
            requested_host: resource("hosts", destination),
            request_id: request_id(None),
        };
        let response = self.session.conductor().await?.migrate_vm(request).await;
        let response = response.map_err(|s| not_begun(&s, None))?.into_inner();
        Ok(response.operation.unwrap_or_default().name)
    }

    async fn refused_migration(&mut self, vm: &str, destination: &str) -> anyhow::Result<()> {
        let refusal = match self.begin_migration(vm, destination).await {
            Err(refusal) => refusal,
            Ok(operation) => bail!("{vm} should not fit on {destination}, yet {operation} began"),
        };
        check(refusal.message.contains("NUMA node"), || {
            format!("the refusal should name the NUMA node and the shortfall: {refusal}")
        })?;
        self.print(format!("  refused: {}", progress::sentence(&refusal)));
        self.summary.refused.push(Refused {
            vm: vm.to_owned(),
            operation: "migrate",
            reason: progress::sentence(&refusal),
        });
        Ok(())
    }

    /// Waits until a step of an operation has begun.
    async fn wait_for(&self, operation: &str, step: Step) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            let request = GetOperationRequest {
                name: operation.to_owned(),
                ..Default::default()
            };
            let response = read!(self.session, OperationServiceClient, get_operation, request)?;
            let operation: Operation = response.operation.unwrap_or_default().try_into()?;
            if operation.log.iter().any(|entry| entry.step == step) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!(
            "{operation} did not come to its step {} within 30 s",
            step.title()
        )
    }

    async fn leader(&self) -> anyhow::Result<String> {
        let request = GetClusterStatusRequest {};
        Ok(read!(
            self.session,
            ClusterServiceClient,
            get_cluster_status,
            request
        )?
        .leader_address)
    }

    /// Returns a VM with its only claim.
    async fn vm(&self, vm: &str) -> anyhow::Result<(Vm, Claim)> {
        let request = GetVmRequest {
            name: resource("vms", vm),
            ..Default::default()
        };
        let response = read!(self.session, SchedulerServiceClient, get_vm, request)?;
        let record: Vm = response.vm.unwrap_or_default().try_into()?;
        let claims = response.claims.into_iter().map(TryInto::try_into);
        let mut claims = claims.collect::<Result<Vec<Claim>, _>>()?;
        check(claims.len() == 1, || {
            format!("{vm} should have one claim: {claims:?}")
        })?;
        Ok((record, claims.remove(0)))
    }

    async fn host(&self, host: &str) -> anyhow::Result<(Host, Vec<Claim>, u64)> {
        let request = GetHostRequest {
            name: resource("hosts", host),
            ..Default::default()
        };
        let response = read!(self.session, HostServiceClient, get_host, request)?;
        let record: Host = response.host.unwrap_or_default().try_into()?;
        let claims = response.claims.into_iter().map(TryInto::try_into);
        let used = response
            .usage
            .unwrap_or_default()
            .resources
            .get("PCPU")
            .copied()
            .unwrap_or(0);
        Ok((record, claims.collect::<Result<_, _>>()?, used))
    }

    async fn nothing_left(&self, host: &str) -> anyhow::Result<()> {
        let (_, claims, used) = self.host(host).await?;
        check(claims.is_empty() && used == 0, || {
            format!("{host} should hold nothing: {claims:?}, {used} PCPU")
        })?;
        self.print(format!("  {host} holds no claim any more"));
        Ok(())
    }

    /// Checks that counted allocations agree with the exact ones.
    async fn counts_agree(&self, host: &str, expected: u64) -> anyhow::Result<()> {
        let (_, claims, counted) = self.host(host).await?;
        let exact: usize = claims.iter().map(|c| c.assignment.dedicated().len()).sum();
        let distinct: BTreeSet<_> = claims
            .iter()
            .flat_map(|c| c.assignment.dedicated().iter().collect::<Vec<_>>())
            .collect();
        check(
            counted == expected && exact as u64 == expected && distinct.len() == exact,
            || {
                format!(
                    "{host}: {counted} CPUs counted, {exact} pinned, {} distinct, {expected} expected",
                    distinct.len()
                )
            },
        )?;
        self.print(format!(
            "  {host}: {counted} dedicated CPUs counted, the same {exact} pinned, none twice"
        ));
        Ok(())
    }

    async fn picture(&self, host: &str) -> anyhow::Result<()> {
        let (record, claims, _) = self.host(host).await?;
        let sides = Sides::of(&self.session, &claims).await?;
        let drawn = draw::host(&record.name, &record.report, &claims, &sides);
        let mut lines = Lines::new();
        lines.extend_indented(drawn, 4);
        self.print(lines);
        Ok(())
    }
}

fn check(holds: bool, what: impl FnOnce() -> String) -> anyhow::Result<()> {
    if holds {
        Ok(())
    } else {
        bail!("a check failed: {}", what())
    }
}

fn pins(claim: &Claim) -> Pins {
    claim
        .assignment
        .pins()
        .iter()
        .map(|(vcpu, cpu)| (vcpu.0, cpu.0))
        .collect()
}

fn sentence(pins: &Pins) -> String {
    let pins: Vec<String> = pins
        .iter()
        .map(|(vcpu, cpu)| format!("vCPU {vcpu} on CPU {cpu}"))
        .collect();
    pins.join(", ")
}
