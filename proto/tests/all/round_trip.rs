//! Goal: what is written is read as the same value, and nothing that comes in makes the reader
//! panic. Method: arbitrary domain values through encoded bytes and back; then the same bytes
//! damaged, which must read as an error or as a value that survives the way itself.

mod values;

use std::fmt::Debug;

use berth_domain::agent::Reply;
use berth_proto::convert::Invalid;
use berth_proto::convert::agent::{FencedCall, Request};
use berth_proto::convert::operation::{
    Advance, read_effect, read_power, write_effect, write_power,
};
use berth_proto::operation::v1::SignedGrant;
use berth_proto::{
    agent, cluster, host, image, operation, placement, policy, scheduler, types, volume,
};
use proptest::prelude::*;
use prost::Message;

/// Flips some bytes of a message.
fn damage(mut bytes: Vec<u8>, flips: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    for (index, value) in flips {
        if !bytes.is_empty() {
            let at = index.index(bytes.len());
            bytes[at] ^= value;
        }
    }
    bytes
}

fn flips() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..4)
}

/// Checks the way there and back, and that of the damaged message.
fn check<D, W>(
    value: &D,
    flips: &[(prop::sample::Index, u8)],
    write: impl Fn(&D) -> W,
    read: impl Fn(W) -> Result<D, Invalid>,
) -> Result<(), TestCaseError>
where
    D: PartialEq + Debug,
    W: Message + Default,
{
    let bytes = write(value).encode_to_vec();
    let back = read(W::decode(&*bytes).unwrap());
    prop_assert_eq!(back.as_ref(), Ok(value));

    let Ok(damaged) = W::decode(&*damage(bytes, flips)) else {
        return Ok(());
    };
    if let Ok(other) = read(damaged) {
        let again = read(W::decode(&*write(&other).encode_to_vec()).unwrap());
        prop_assert_eq!(again, Ok(other));
    }
    Ok(())
}

macro_rules! round_trips {
    ($($test:ident: $value:expr => $wire:ty;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(256))]
            $(
                #[test]
                fn $test(value in $value, flips in flips()) {
                    check(&value, &flips, |v| <$wire>::from(v), TryFrom::try_from)?;
                }
            )*
        }
    };
}

round_trips! {
    topologies: values::topology() => types::v1::HostTopology;
    wishes: values::wish() => types::v1::InstanceTopology;
    numa_topologies: values::numa_topology() => types::v1::InstanceNumaTopology;
    assignments: values::assignment() => types::v1::Assignment;
    claims: values::claim() => types::v1::Claim;
    flavors: values::flavor() => types::v1::Flavor;
    volumes: values::volume::volume() => volume::v1::Volume;
    volume_reports: values::volume::report() => volume::v1::VolumeReport;
    erasure_reports: values::pmem::report() => types::v1::PmemErasureReport;
    pci_requests: values::pci_request() => types::v1::PciRequest;
    pci_aliases: values::pci_alias() => types::v1::PciAlias;
    images: values::image::image() => image::v1::Image;
    networks: values::network::network() => types::v1::Network;
    specs: values::spec() => types::v1::VmSpec;
    refusals: values::refusal() => types::v1::Refusal;
    hosts: values::host() => host::v1::Host;
    providers: values::provider() => placement::v1::ResourceProvider;
    consumers: values::consumer() => placement::v1::Consumer;
    provider_imports: values::provider_import() => placement::v1::ProviderImport;
    consumer_imports: values::consumer_import() => placement::v1::ConsumerImport;
    consumer_updates: values::consumer_update() => placement::v1::ConsumerUpdate;
    policies: values::policy() => policy::v1::SchedulingPolicy;
    server_groups: values::server_group() => policy::v1::ServerGroup;
    aggregates: values::aggregate() => policy::v1::Aggregate;
    services: values::service() => cluster::v1::Service;
    revoked_certificates: values::revoked_certificate() => cluster::v1::RevokedCertificate;
    vms: values::vm() => scheduler::v1::Vm;
    migrations: values::migration() => scheduler::v1::Migration;
    operations: values::operation() => operation::v1::Operation;
    advances: values::advance() => operation::v1::AdvanceRequest;
    fences: values::agent::fence() => agent::v1::Fence;
    migrate_data: values::agent::migrate_data() => agent::v1::MigrateData;
    destination_checks: values::agent::destination_check() => agent::v1::DestinationCheck;
    host_checks: values::agent::host_check() => agent::v1::CheckHostResponse;
    expectations: values::expected() => host::v1::ExpectedDomain;
    comparisons: values::comparison() => host::v1::DomainComparison;
    domain_statuses: values::agent::domain_status() => agent::v1::DomainStatus;
    transfer_overrides: values::transfer::overrides() => types::v1::TransferOverrides;
    transfer_progress: values::transfer::progress() => types::v1::TransferProgress;
    memory_signals: values::signals::measured() => host::v1::MemorySignals;
}

/// Reads a request as the server of its RPC does.
fn read_request(request: Request) -> Result<FencedCall, Invalid> {
    match request {
        Request::SpawnVm(wire) => (*wire).try_into(),
        Request::DestroyVm(wire) => wire.try_into(),
        Request::GetDomain(wire) => wire.try_into(),
        Request::CheckCanLiveMigrateDestination(wire) => (*wire).try_into(),
        Request::CheckCanLiveMigrateSource(wire) => wire.try_into(),
        Request::FitLiveMigration(wire) => (*wire).try_into(),
        Request::PreLiveMigration(wire) => (*wire).try_into(),
        Request::LiveMigration(wire) => (*wire).try_into(),
        Request::RollbackLiveMigrationAtDestination(wire) => wire.try_into(),
        Request::PostLiveMigrationAtSource(wire) => wire.try_into(),
        Request::StopVm(wire) => wire.try_into(),
        Request::StartVm(wire) => (*wire).try_into(),
        Request::SettleVm(wire) => wire.try_into(),
        Request::AbortLiveMigration(wire) => wire.try_into(),
        Request::ForceCompleteLiveMigration(wire) => wire.try_into(),
        Request::MakeDisks(wire) => (*wire).try_into(),
        Request::CopyDisk(wire) => (*wire).try_into(),
        Request::PublishImage(wire) => wire.try_into(),
        Request::DropImage(wire) => wire.try_into(),
        Request::FetchDisks(wire) => (*wire).try_into(),
        Request::DropDisks(wire) => wire.try_into(),
    }
}

/// Writes a reply as the server of its RPC does, and reads it as the client.
fn pass_on(reply: &Reply) -> Result<Reply, Invalid> {
    macro_rules! through {
        ($response:ty) => {
            <$response>::try_from(reply.clone()).unwrap().try_into()
        };
    }
    match reply {
        Reply::Done => through!(agent::v1::SpawnVmResponse),
        Reply::Domain(_) => through!(agent::v1::GetDomainResponse),
        Reply::Destination(_) => through!(agent::v1::CheckCanLiveMigrateDestinationResponse),
        Reply::MigrateData(_) => through!(agent::v1::CheckCanLiveMigrateSourceResponse),
        Reply::Fit { .. } => through!(agent::v1::FitLiveMigrationResponse),
        Reply::Image { .. } => through!(agent::v1::DropImageResponse),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn effects(advance in values::advance()) {
        prop_assert_eq!(read_effect(write_effect(&advance.effect)), Ok(advance.effect));
    }

    #[test]
    fn agent_calls(fence in values::agent::fence(), call in values::agent::call()) {
        let grant = Some(SignedGrant {
            grant: vec![1, 2].into(),
            key: 3,
            signature: vec![4].into(),
        });
        let call = FencedCall { fence, call, grant };
        prop_assert_eq!(read_request(Request::from(&call)), Ok(call));
    }

    #[test]
    fn power_operations(kind in values::power_kind()) {
        prop_assert_eq!(read_power(write_power(&kind)), Ok(kind));
    }

    #[test]
    fn agent_replies(reply in values::agent::reply()) {
        prop_assert_eq!(pass_on(&reply), Ok(reply));
    }
}

/// Goal: an error inside a long request leads to the field. Method: one wrong field deep inside.
#[test]
fn errors_lead_to_the_field() {
    let wire = operation::v1::AdvanceRequest {
        operation: "operations/01234567-89ab-cdef-0123-456789abcdef".to_owned(),
        epoch: 1,
        step: operation::v1::Step::Claim.into(),
        mark: Some(operation::v1::Mark {
            kind: operation::v1::mark::Kind::Succeeded.into(),
            refusal: None,
        }),
        effect: Some(operation::v1::Effect {
            effect: Some(operation::v1::effect::Effect::HoldClaim(types::v1::Claim {
                name: "claims/01234567-89ab-cdef-0123-456789abcdef".to_owned(),
                vm: "vms/a".to_owned(),
                host: "hosts/h1".to_owned(),
                state: types::v1::claim::State::Held.into(),
                assignment: Some(types::v1::Assignment {
                    cells: vec![types::v1::CellAssignment {
                        floating_cpus: "0-x".to_owned(),
                        ..Default::default()
                    }],
                    ..Default::default()
                }),
                ..Default::default()
            })),
        }),
        request_id: String::new(),
    };
    let error = Advance::try_from(wire).unwrap_err();
    assert_eq!(
        error.path,
        "effect.hold_claim.assignment.cells[0].floating_cpus"
    );
}

/// Goal: every choice that is not told is refused with what is allowed.
#[test]
fn choices_are_never_guessed() {
    for state in [0, 99] {
        let wire = types::v1::Claim {
            name: "claims/01234567-89ab-cdef-0123-456789abcdef".to_owned(),
            vm: "vms/a".to_owned(),
            host: "hosts/h1".to_owned(),
            state,
            ..Default::default()
        };
        let error = berth_domain::claim::Claim::try_from(wire).unwrap_err();
        assert_eq!(
            error.to_string(),
            "state: must be one of STATE_HELD, STATE_ACTIVE, STATE_RELEASING"
        );
    }
}
