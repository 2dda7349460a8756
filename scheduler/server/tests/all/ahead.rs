//! Goal: no number that an agent reports locks honest reports out, of its host or of others. What the
//! scheduler keeps the greatest of, or compares with what it has, would do that if it believed any.
//!
//! Method: the methods that agents may call come from the access table, the numbers of their
//! requests from the descriptors, at any depth. Each number in turn is 2^50 and the greatest that the
//! field can hold. After such a request, refused or not, the honest requests of that host and of another one
//! must have their effect, and the host's record must be what it was.

use std::collections::BTreeSet;

use berth_proto::host::v1::{
    CompareDomainsRequest, DomainComparison, ExpectDomainsRequest, GetHostRequest, Host,
    MemorySignals, RegisterHostRequest, ReportErasuresRequest, ReportGuestsRequest,
    ReportHostRequest, UnknownDomain,
};
use berth_proto::types::v1::{PmemErasureReport, pmem_erasure_report};
use berth_proto::volume::v1::volume_service_client::VolumeServiceClient;
use berth_proto::volume::v1::{ReportVolumesRequest, VolumeReport, volume_report};
use berth_tls::Role;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};
use tonic::transport::Channel;
use uuid::Uuid;

use crate::common::world::register_request;
use crate::common::{Cluster, hosts};
use crate::growth::writes;

/// Beyond every revision, time and amount that there is.
const AHEAD: [u64; 2] = [1 << 50, u64::MAX];

/// A host with what its agent reports.
struct Agent {
    channel: Channel,
    registration: RegisterHostRequest,
}

impl Agent {
    fn new(channel: &Channel, host: &str) -> Self {
        Self {
            channel: channel.clone(),
            registration: register_request(host, 2, 4),
        }
    }

    fn name(&self) -> String {
        self.registration.name.clone()
    }

    fn incarnation(&self) -> String {
        let report = self.registration.report.as_ref();
        report.expect("a report").incarnation.clone()
    }

    fn report(&self) -> ReportHostRequest {
        ReportHostRequest {
            name: self.name(),
            incarnation: self.incarnation(),
            memory_signals: Some(MemorySignals::default()),
        }
    }

    async fn comparison(&self, unknown_domains: Vec<UnknownDomain>) -> CompareDomainsRequest {
        let request = ExpectDomainsRequest { name: self.name() };
        let expected = hosts(&self.channel).expect_domains(request).await;
        CompareDomainsRequest {
            name: self.name(),
            incarnation: self.incarnation(),
            comparison: Some(DomainComparison {
                basis_revision: expected.expect("what is expected").into_inner().revision,
                unknown_domains,
                findings: Vec::new(),
            }),
        }
    }

    fn guests(&self) -> ReportGuestsRequest {
        ReportGuestsRequest {
            name: self.name(),
            incarnation: self.incarnation(),
            basis_revision: 1,
            guests: Vec::new(),
        }
    }

    fn erasures(&self) -> ReportErasuresRequest {
        ReportErasuresRequest {
            name: self.name(),
            incarnation: self.incarnation(),
            reports: vec![PmemErasureReport {
                claim: format!("claims/{}", Uuid::from_u128(1)),
                namespace: "namespace0.0".to_owned(),
                progress: Some(pmem_erasure_report::Progress::ErasedBytes(1)),
            }],
        }
    }

    fn volumes(&self) -> ReportVolumesRequest {
        ReportVolumesRequest {
            host: self.name(),
            incarnation: self.incarnation(),
            reports: vec![VolumeReport {
                volume: "volumes/none".to_owned(),
                outcome: Some(volume_report::Outcome::ErasedBytes(1)),
            }],
        }
    }

    /// Makes an honest request with one number of it changed; returns whether it was accepted.
    async fn lie(&self, method: &str, number: &Number, value: u64) -> bool {
        let mut client = hosts(&self.channel);
        let (_, short) = method.rsplit_once('/').expect("a service and a method");
        match short {
            "RegisterHost" => {
                let request = number.set(&self.registration, value);
                client.register_host(request).await.is_ok()
            }
            "ReportHost" => {
                let request = number.set(&self.report(), value);
                client.report_host(request).await.is_ok()
            }
            "CompareDomains" => {
                let honest = self.comparison(vec![domain()]).await;
                let request = number.set(&honest, value);
                client.compare_domains(request).await.is_ok()
            }
            // Refused, whatever it holds: the cluster does not recover.
            "ReportGuests" => {
                let request = number.set(&self.guests(), value);
                client.report_guests(request).await.is_ok()
            }
            "ReportErasures" => {
                let request = number.set(&self.erasures(), value);
                client.report_erasures(request).await.is_ok()
            }
            "ReportVolumes" => {
                let request = number.set(&self.volumes(), value);
                let mut client = VolumeServiceClient::new(self.channel.clone());
                client.report_volumes(request).await.is_ok()
            }
            _ => panic!("{method} is new: make an honest request of it here"),
        }
    }

    /// Makes all honest requests; returns the host's record after them.
    async fn tell_the_truth(&self, why: &str) -> Host {
        let mut client = hosts(&self.channel);
        let registered = client.register_host(self.registration.clone()).await;
        registered.unwrap_or_else(|status| panic!("{why}: {status}"));
        let reported = client.report_host(self.report()).await;
        let reported = reported.unwrap_or_else(|status| panic!("{why}: {status}"));
        assert!(reported.into_inner().known, "{why}");
        for unknown in [vec![domain()], Vec::new()] {
            let count = unknown.len();
            let comparison = self.comparison(unknown).await;
            let compared = client.compare_domains(comparison).await;
            let compared = compared.unwrap_or_else(|status| panic!("{why}: {status}"));
            let host = compared.into_inner().host.expect("the host");
            assert_eq!(host.unknown_domains.len(), count, "{why}");
        }
        let erased = client.report_erasures(self.erasures()).await;
        erased.unwrap_or_else(|status| panic!("{why}: {status}"));
        let mut volumes = VolumeServiceClient::new(self.channel.clone());
        let reported = volumes.report_volumes(self.volumes()).await;
        reported.unwrap_or_else(|status| panic!("{why}: {status}"));
        let request = GetHostRequest {
            name: self.name(),
            ..GetHostRequest::default()
        };
        let host = client.get_host(request).await.expect("the host");
        Host {
            // These count what happened.
            generation: 0,
            compared_revision: 0,
            ..host.into_inner().host.expect("the host")
        }
    }
}

/// A domain that Berth did not make.
fn domain() -> UnknownDomain {
    UnknownDomain {
        uuid: Uuid::from_u128(7).to_string(),
        display_name: "guest".to_owned(),
        made_by_berth: false,
        claim: String::new(),
        held: None,
    }
}

/// A number of a request, by the fields that lead to it.
struct Number(Vec<FieldDescriptor>);

impl Number {
    /// Returns all numbers of a message.
    fn all(of: &MessageDescriptor) -> Vec<Self> {
        let mut all = Vec::new();
        collect(of, &mut Vec::new(), &mut all);
        all
    }

    fn path(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(FieldDescriptor::name).collect();
        names.join(".")
    }

    /// Returns the request with this number, the nearest that the field can hold.
    fn set<M: Message + Default>(&self, honest: &M, value: u64) -> M {
        let of = self.0[0].parent_message().clone();
        let bytes = honest.encode_to_vec();
        let mut message = DynamicMessage::decode(of, &*bytes).expect("a request");
        set(&mut message, &self.0, value);
        M::decode(&*message.encode_to_vec()).expect("a request")
    }
}

fn collect(of: &MessageDescriptor, path: &mut Vec<FieldDescriptor>, all: &mut Vec<Number>) {
    for field in of.fields() {
        let is_recursive = path.contains(&field);
        path.push(field.clone());
        let kind = value_kind(&field);
        if let Some(message) = kind.as_message().filter(|_| !is_recursive) {
            collect(message, path, all);
        } else if number(&kind, 0).is_some() {
            all.push(Number(path.clone()));
        }
        path.pop();
    }
}

/// Returns what a field holds; of a map, its values.
fn value_kind(field: &FieldDescriptor) -> Kind {
    let kind = field.kind();
    if field.is_map()
        && let Some(entry) = kind.as_message()
    {
        return entry.map_entry_value_field().kind();
    }
    kind
}

fn number(kind: &Kind, value: u64) -> Option<Value> {
    let signed = i64::try_from(value).unwrap_or(i64::MAX);
    Some(match kind {
        Kind::Uint64 | Kind::Fixed64 => Value::U64(value),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(signed),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(u32::try_from(value).unwrap_or(u32::MAX)),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
            Value::I32(i32::try_from(value).unwrap_or(i32::MAX))
        }
        Kind::Double
        | Kind::Float
        | Kind::Bool
        | Kind::String
        | Kind::Bytes
        | Kind::Message(_)
        | Kind::Enum(_) => return None,
    })
}

fn set(message: &mut DynamicMessage, path: &[FieldDescriptor], value: u64) {
    let (field, rest) = path.split_first().expect("a path");
    let kind = value_kind(field);
    let new = || match kind.as_message() {
        Some(of) => Value::Message(DynamicMessage::new(of.clone())),
        None => number(&kind, value).expect("a number"),
    };
    let held = message.get_field_mut(field);
    let slot = if field.is_map() {
        let map = held.as_map_mut().expect("a map");
        map.entry(map_key(field)).or_insert_with(new)
    } else if field.is_list() {
        let list = held.as_list_mut().expect("a list");
        if list.is_empty() {
            list.push(new());
        }
        &mut list[0]
    } else {
        held
    };
    match slot.as_message_mut() {
        Some(inner) => set(inner, rest, value),
        None => *slot = new(),
    }
}

/// Returns a key that no entry has yet.
fn map_key(field: &FieldDescriptor) -> MapKey {
    let kind = field.kind();
    let entry = kind.as_message().expect("a map has entries");
    let key = number(&entry.map_entry_key_field().kind(), 4);
    let key = key.as_ref();
    match (key.and_then(Value::as_u64), key.and_then(Value::as_u32)) {
        (Some(key), _) => MapKey::U64(key),
        (None, Some(key)) => MapKey::U32(key),
        (None, None) => MapKey::String("vms/x".to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_number_of_an_agent_locks_honest_reports_out() {
    let cluster = Cluster::start(1).await;
    let channel = cluster.channel().await;
    let pool = DescriptorPool::decode(berth_proto::DESCRIPTOR_SET).expect("descriptors");
    let other = Agent::new(&channel, "other");
    let others = other.tell_the_truth("before").await;
    let (mut cases, mut accepted) = (0, BTreeSet::new());
    // Also agents create and delete volumes, as the node of a CSI driver: what a volume needs is no
    // report.
    let reports = writes(Role::Agent)
        .into_iter()
        .filter(|method| !method.ends_with("/CreateVolume") && !method.ends_with("/DeleteVolume"));
    for method in reports {
        let (service, short) = method.split_once('/').expect("a service and a method");
        let service = pool.get_service_by_name(service).expect("the service");
        let described = service.methods().find(|known| known.name() == short);
        for number in Number::all(&described.expect("the method").input()) {
            for value in AHEAD {
                let agent = Agent::new(&channel, &format!("h{cases}"));
                let why = format!("{method}, {} = {value}", number.path());
                let before = agent.tell_the_truth(&why).await;
                if agent.lie(&method, &number, value).await {
                    accepted.insert(why.clone());
                }
                assert_eq!(agent.tell_the_truth(&why).await, before, "{why}");
                cases += 1;
            }
            let path = number.path();
            assert_eq!(
                other.tell_the_truth(&path).await,
                others,
                "{method}, {path}"
            );
        }
    }
    println!(
        "{cases} numbers, {} accepted: {accepted:#?}",
        accepted.len()
    );
    assert!(cases > 60 && accepted.len() > 10, "the requests were made");
}
