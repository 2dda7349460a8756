//! Three members with something of everything that is read.

use berth_domain::version::ServiceVersion;
use berth_proto::audit::v1::ListAuditEntriesRequest;
use berth_proto::audit::v1::audit_service_client::AuditServiceClient;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    GetClusterStatusRequest, GetClusterStatusResponse, RegisterServiceRequest, Service,
};
use berth_proto::host::v1::{
    GuestMemory, GuestsMemory, MemorySignals, NodeMemory, ReportHostRequest, SwapSpace,
};
use berth_proto::image::v1::CreateImageRequest;
use berth_proto::image::v1::image_service_client::ImageServiceClient;
use berth_proto::operation::v1::{AdvanceRequest, CompleteBoot, Effect, Mark, Step, effect, mark};
use berth_proto::planner::v1::planner_service_client::PlannerServiceClient;
use berth_proto::planner::v1::{GetScoreRequest, GetScoreResponse, VerifyClusterRequest};
use berth_proto::policy::v1::aggregate_service_client::AggregateServiceClient;
use berth_proto::policy::v1::policy_service_client::PolicyServiceClient;
use berth_proto::policy::v1::server_group_service_client::ServerGroupServiceClient;
use berth_proto::policy::v1::{
    Aggregate, CreateAggregateRequest, CreateServerGroupRequest, ServerGroup,
    UpdateSchedulingPolicyRequest, server_group,
};
use berth_proto::scheduler::v1::{
    CreateNetworkRequest, CreatePciAliasRequest, ListVmsRequest, ScheduleMigrationRequest,
};
use berth_proto::types::v1::disk::Format;
use berth_proto::types::v1::{Network, PciAlias, PciMatch};
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{CreateVolumeRequest, DeviceMode, Region};
use serde_json::json;
use tonic::transport::Channel;

use crate::common::trio::Trio;
use crate::common::world::{flavor, register_request, schedule, vm_request};
use crate::common::{connect, eventually, hosts, operations, rest, schedulers};

/// A provider of a REST client, and its consumer.
pub(super) const PROVIDER: &str = "00000000-0000-0000-0000-000000000001";
pub(super) const CONSUMER: &str = "00000000-0000-0000-0001-000000000001";

pub(super) struct World {
    pub(super) trio: Trio,
    pub(super) operation: String,
    pub(super) claim: String,
    pub(super) audit_entry: String,
    /// The revision at which all members had joined.
    pub(super) joined_revision: u64,
    /// The hosts with the incarnations of their agents.
    hosts: Vec<(String, String)>,
}

impl World {
    pub(super) async fn start() -> Self {
        let trio = Trio::start().await;
        let mut world = Self {
            trio,
            operation: String::new(),
            claim: String::new(),
            audit_entry: String::new(),
            joined_revision: 0,
            hosts: Vec::new(),
        };
        let channel = world.leader().await;
        let request = ListVmsRequest::default();
        let vms = schedulers(&channel).list_vms(request).await;
        world.joined_revision = vms.expect("no VM").into_inner().revision;
        world.make_hosts(&channel).await;
        make_policies(&channel).await;
        world.make_vm(&channel).await;
        world.make_provider().await;
        world
    }

    pub(super) async fn leader(&self) -> Channel {
        let leader = self.trio.leader().await;
        connect(&format!("http://{}", self.trio.grpc[leader])).await
    }

    async fn make_hosts(&mut self, channel: &Channel) {
        for name in ["h1", "h2"] {
            let request = register_request(name, 2, 8);
            let incarnation = request
                .report
                .as_ref()
                .expect("a report")
                .incarnation
                .clone();
            let registered = hosts(channel).register_host(request).await;
            registered.expect("the host is registered");
            self.hosts.push((format!("hosts/{name}"), incarnation));
        }
    }

    async fn make_vm(&mut self, channel: &Channel) {
        flavor(channel, "small", 1).await;
        let made = schedule(channel, vm_request("a", "small")).await;
        let made = made.expect("the VM is scheduled");
        self.operation = made.operation.expect("an operation").name;
        self.claim = made.claim.expect("a claim").name;
        let mut audit = AuditServiceClient::new(channel.clone());
        let listed = audit
            .list_audit_entries(ListAuditEntriesRequest::default())
            .await;
        let entries = listed.expect("entries").into_inner().audit_entries;
        self.audit_entry = entries.first().expect("an entry").name.clone();
    }

    /// Makes three more of everything that is listed.
    pub(super) async fn make_more(&self) {
        let channel = self.leader().await;
        for number in 0..3 {
            make_policy(&channel, number).await;
            make_service(&channel, number).await;
            make_volume(&channel, number).await;
            flavor(&channel, &format!("f{number}"), 1).await;
            make_migration(&channel, number).await;
            let refused = schedule(&channel, vm_request(&format!("x{number}"), "unknown")).await;
            refused.expect_err("there is no such flavor");
            self.make_consumer(number).await;
        }
    }

    async fn make_consumer(&self, number: u32) {
        let server = self.trio.rest[self.trio.leader().await];
        let body = json!({
            "allocations": {PROVIDER: {"resources": {"VCPU": 1}}},
            "project_id": "p", "user_id": "u", "consumer_generation": null,
            "consumer_type": "INSTANCE",
        });
        let path = format!("/allocations/00000000-0000-0000-0002-00000000000{number}");
        let answer = rest::ask(server, "PUT", &path, Some(body)).await;
        assert!(answer.is_some_and(|answer| answer.status < 300));
    }

    async fn make_provider(&self) {
        let leader = self.trio.leader().await;
        let server = self.trio.rest[leader];
        let pool = json!({"uuid": PROVIDER, "name": "pool"});
        let inventories = json!({
            "resource_provider_generation": 0,
            "inventories": {"VCPU": {"total": 8}},
        });
        let allocations = json!({
            "allocations": {PROVIDER: {"resources": {"VCPU": 2}}},
            "project_id": "p", "user_id": "u", "consumer_generation": null,
            "consumer_type": "INSTANCE",
        });
        let below = format!("/resource_providers/{PROVIDER}/inventories");
        let consumer = format!("/allocations/{CONSUMER}");
        for (method, path, body) in [
            ("POST", "/resource_providers", pool),
            ("PUT", &below, inventories),
            ("PUT", &consumer, allocations),
        ] {
            let answer = rest::ask(server, method, path, Some(body)).await;
            let answer = answer.expect("an answer");
            assert!(answer.status < 300, "{path}: {answer:?}");
        }
    }

    /// Has the agents of all hosts report their memory to the leader.
    pub(super) async fn report(&self) {
        for (number, (name, incarnation)) in (1..).zip(&self.hosts) {
            let report = ReportHostRequest {
                name: name.clone(),
                incarnation: incarnation.clone(),
                memory_signals: Some(signals(number)),
            };
            eventually("a report to the leader", || async {
                let channel = self.leader().await;
                let reported = hosts(&channel).report_host(report.clone()).await;
                reported.ok()?.into_inner().known.then_some(())
            })
            .await;
        }
    }

    pub(super) async fn score(&self) -> GetScoreResponse {
        eventually("a score", || async {
            let mut planner = PlannerServiceClient::new(self.leader().await);
            let score = planner.get_score(GetScoreRequest::default()).await;
            score.ok().map(tonic::Response::into_inner)
        })
        .await
    }

    /// Returns the warnings of each host.
    pub(super) async fn warnings(&self) -> Vec<String> {
        let verified = eventually("a verification", || async {
            let mut planner = PlannerServiceClient::new(self.leader().await);
            let verified = planner
                .verify_cluster(VerifyClusterRequest::default())
                .await;
            verified.ok().map(tonic::Response::into_inner)
        })
        .await;
        verified
            .hosts
            .iter()
            .map(|host| host.warnings.join("; "))
            .collect()
    }

    async fn statuses(&self) -> Vec<GetClusterStatusResponse> {
        let mut statuses = Vec::new();
        for address in &self.trio.grpc {
            let channel = connect(&format!("http://{address}")).await;
            let mut client = ClusterServiceClient::new(channel);
            let status = client.get_cluster_status(GetClusterStatusRequest {}).await;
            statuses.push(status.expect("a status").into_inner());
        }
        statuses
    }

    /// Returns the index that all members have applied, if it is one.
    pub(super) async fn revision(&self) -> Option<u64> {
        let statuses = self.statuses().await;
        let first = statuses[0].applied_index;
        let is_one = statuses
            .iter()
            .all(|s| s.applied_index == first && s.leader_id != 0);
        is_one.then_some(first)
    }

    /// Compares what the members' statuses have in common.
    pub(super) async fn compare_status(&self) {
        let common = eventually("one revision of all members", || async {
            let before = self.revision().await?;
            let statuses = self.statuses().await;
            (self.revision().await? == before).then_some(statuses)
        })
        .await;
        let common: Vec<_> = common.into_iter().map(common_part).collect();
        assert!(common.iter().all(|one| *one == common[0]), "{common:#?}");
    }
}

/// What is retained in the replicated state, and so by all members alike.
const REPLICATED: [&str; 4] = [
    "audit_entries",
    "remembered_requests",
    "done_operations",
    "ended_migrations",
];

/// Returns a status without what is about the member that sent it, and what the leader alone knows.
fn common_part(mut status: GetClusterStatusResponse) -> GetClusterStatusResponse {
    status.member_id = 0;
    status.first_index = 0;
    status.failures_tolerated = None;
    status
        .retained
        .retain(|retained| REPLICATED.contains(&&*retained.name));
    for member in &mut status.members {
        member.matched_index = 0;
        member.recently_active = false;
        member.silent_time = None;
        member.service_version = 0;
    }
    status
}

/// Returns the component of the score that depends on memory signals.
pub(super) fn load(response: &GetScoreResponse) -> Option<f64> {
    let components = &response.score.as_ref()?.components;
    let load = components.iter().find(|one| one.name == "mem_load_cv")?;
    Some(load.value * load.weight)
}

/// What the agent of a host reports: the more, the higher its number.
fn signals(number: u64) -> MemorySignals {
    MemorySignals {
        age: Some(prost_types::Duration::default()),
        memory: Some(NodeMemory {
            total_kib: 128 << 20,
            free_kib: 64 << 20,
            ..Default::default()
        }),
        swap: Some(SwapSpace {
            total_kib: 1 << 20,
            free_kib: 1 << 20,
        }),
        pressure: None,
        guests: Some(GuestsMemory {
            sum: Some(GuestMemory {
                resident_kib: number << 24,
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}

/// Makes an aggregate, a server group, a PCI alias, and a ratio at which swap space matters.
async fn make_policies(channel: &Channel) {
    let aggregate = CreateAggregateRequest {
        aggregate: Some(Aggregate {
            name: "aggregates/a".to_owned(),
            hosts: vec!["hosts/h1".to_owned()],
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut client = AggregateServiceClient::new(channel.clone());
    client
        .create_aggregate(aggregate)
        .await
        .expect("an aggregate");
    let group = CreateServerGroupRequest {
        server_group: Some(ServerGroup {
            name: "serverGroups/g".to_owned(),
            policy: server_group::Policy::AntiAffinity.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut client = ServerGroupServiceClient::new(channel.clone());
    client
        .create_server_group(group)
        .await
        .expect("a server group");
    let mut client = ImageServiceClient::new(channel.clone());
    for name in ["images/i", "images/j", "images/k"] {
        let image = CreateImageRequest {
            name: name.to_owned(),
            format: Format::Qcow2.into(),
            ..Default::default()
        };
        client.create_image(image).await.expect("an image");
    }
    for name in ["networks/bulk", "networks/far", "networks/web"] {
        let network = CreateNetworkRequest {
            network: Some(Network {
                name: name.to_owned(),
                physical_network: "physnet1".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let created = schedulers(channel).create_network(network).await;
        created.expect("a network");
    }
    let alias = CreatePciAliasRequest {
        pci_alias: Some(PciAlias {
            name: "pciAliases/nic".to_owned(),
            any_of: vec![PciMatch {
                vendor_id: "8086".to_owned(),
                product_id: "154c".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    schedulers(channel)
        .create_pci_alias(alias)
        .await
        .expect("an alias");
    let ratio = UpdateSchedulingPolicyRequest {
        settings: [("memory.ratio".to_owned(), "1.5".to_owned())].into(),
        ..Default::default()
    };
    let mut client = PolicyServiceClient::new(channel.clone());
    client
        .update_scheduling_policy(ratio)
        .await
        .expect("a ratio");
}

async fn make_policy(channel: &Channel, number: u32) {
    let zone = ("availability_zone".to_owned(), format!("zone-{number}"));
    let aggregate = CreateAggregateRequest {
        aggregate: Some(Aggregate {
            name: format!("aggregates/z{number}"),
            metadata: [zone].into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut client = AggregateServiceClient::new(channel.clone());
    let created = client.create_aggregate(aggregate).await;
    created.expect("an aggregate");
    let group = CreateServerGroupRequest {
        server_group: Some(ServerGroup {
            name: format!("serverGroups/g{number}"),
            policy: server_group::Policy::Affinity.into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut client = ServerGroupServiceClient::new(channel.clone());
    let created = client.create_server_group(group).await;
    created.expect("a server group");
    let alias = CreatePciAliasRequest {
        pci_alias: Some(PciAlias {
            name: format!("pciAliases/nic{number}"),
            any_of: vec![PciMatch {
                vendor_id: "8086".to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    };
    let created = schedulers(channel).create_pci_alias(alias).await;
    created.expect("an alias");
}

async fn make_service(channel: &Channel, number: u32) {
    let request = RegisterServiceRequest {
        service: Some(Service {
            name: format!("services/c{number}"),
            address: format!("http://127.0.0.1:{}", number + 1),
            service_version: ServiceVersion::CURRENT.0,
            register_time: None,
        }),
        request_id: String::new(),
    };
    let mut client = ClusterServiceClient::new(channel.clone());
    let registered = client.register_service(request).await;
    registered.expect("a conductor");
}

/// Makes a host with a region, and a volume there.
async fn make_volume(channel: &Channel, number: u32) {
    const STEP: u64 = 16 << 20;
    let mut request = register_request(&format!("r{number}"), 1, 2);
    let report = request.report.as_mut().expect("a report");
    report.service_version = ServiceVersion::CURRENT.0;
    report.regions.push(Region {
        name: "region0".to_owned(),
        cell: Some(0),
        mode: DeviceMode::Lvm.into(),
        capacity_bytes: 8 * STEP,
        align_bytes: STEP,
        ..Default::default()
    });
    let registered = hosts(channel).register_host(request).await;
    registered.expect("the host is registered");
    let request = CreateVolumeRequest {
        display_name: format!("v{number}"),
        required_bytes: STEP,
        ..Default::default()
    };
    let mut client = VolumeServiceClient::new(channel.clone());
    let created = client.create_volume(request).await;
    created.expect("a volume");
}

/// Makes a VM that is being migrated.
async fn make_migration(channel: &Channel, number: u32) {
    let request = vm_request(&format!("m{number}"), "small");
    let lease_ttl = request.lease_ttl;
    let booting = schedule(channel, request).await.expect("a boot");
    let operation = booting.operation.expect("an operation");
    let lease = operation.lease.as_ref().expect("a lease");
    let done = Effect {
        effect: Some(effect::Effect::CompleteBoot(CompleteBoot {})),
    };
    let marks = [
        (mark::Kind::Started, None),
        (mark::Kind::Succeeded, Some(done)),
    ];
    for (kind, effect) in marks {
        let request = AdvanceRequest {
            operation: operation.name.clone(),
            epoch: lease.epoch,
            step: Step::Spawn.into(),
            mark: Some(Mark {
                kind: kind.into(),
                refusal: None,
            }),
            effect,
            request_id: String::new(),
        };
        let advanced = operations(channel).advance(request).await;
        advanced.expect("the step is logged");
    }
    let request = ScheduleMigrationRequest {
        vm: format!("vms/m{number}"),
        conductor: "services/c1".to_owned(),
        lease_ttl,
        ..Default::default()
    };
    let begun = schedulers(channel).schedule_migration(request).await;
    begun.expect("a migration");
}
