//! Arbitrary migrations and operations.

use super::*;

pub(crate) fn migration() -> impl Strategy<Value = Migration> {
    (
        (id::<MigrationId>(), vm_name(), id::<OperationId>()),
        (host_name(), id::<ClaimId>(), option::of(host_name())),
        (option::of(host_name()), option::of(id::<ClaimId>())),
        (
            select(migration::State::ALL.to_vec()),
            option::of(refusal()),
        ),
        (assignment(), option::of(assignment())),
        (generation(), time(), option::of(time())),
        (
            select(vec![
                migration::Kind::Live,
                migration::Kind::Cold,
                migration::Kind::Evacuation,
            ]),
            any::<[bool; 3]>(),
            option::of((spec(), spec())),
        ),
        (transfer::policy(), 1..=16_u32, vec(transfer::tried(), 0..3)),
    )
        .prop_map(
            |(who, from, to, how, assignments, rest, cold, sent)| Migration {
                id: who.0,
                vm: who.1,
                source: from.0,
                source_claim: from.1,
                requested: from.2,
                destination: to.0,
                destination_claim: to.1,
                state: how.0,
                error: how.1,
                assignment_before: assignments.0,
                assignment_after: assignments.1,
                operation: who.2,
                generation: rest.0,
                created_at: rest.1,
                ended_at: rest.2,
                kind: cold.0,
                was_stopped: cold.1[0],
                verify: cold.1[1],
                resize: cold
                    .2
                    .map(|(before, after)| Box::new(migration::Resize { before, after })),
                transfer: sent.0,
                hosts_tried_max: sent.1,
                tried: sent.2,
                fetches_disks: cold.1[2],
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    select(Step::ALL.to_vec())
}

fn mark() -> impl Strategy<Value = Mark> {
    prop_oneof![
        select(vec![
            Mark::Started,
            Mark::Succeeded,
            Mark::UndoStarted,
            Mark::Undone,
        ]),
        refusal().prop_map(Mark::Failed),
    ]
}

fn effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        select(vec![
            Effect::None,
            Effect::CompleteBoot,
            Effect::BeginTransfer,
            Effect::CompleteDelete,
            Effect::CompleteMove,
            Effect::CompleteRevert,
            Effect::CompleteShelve,
            Effect::CompleteUnshelve,
            Effect::BeginRebuild,
            Effect::CompleteConfirm,
        ]),
        refusal().prop_map(Effect::FailUnshelve),
        claim().prop_map(Effect::HoldClaim),
        id().prop_map(|claim| Effect::ConfirmClaim { claim }),
        (id(), assignment())
            .prop_map(|(claim, assignment)| Effect::SwapClaim { claim, assignment }),
        (id(), any::<bool>()).prop_map(|(claim, exclude)| Effect::ReleaseClaim { claim, exclude }),
        refusal().prop_map(Effect::FailBoot),
        refusal().prop_map(Effect::RefuseMigration),
        (
            select(vec![
                GuestPower::Unchanged,
                GuestPower::On,
                GuestPower::Off,
                GuestPower::Broken,
            ]),
            option::of(refusal())
        )
            .prop_map(|(power, refusal)| Effect::EndPower { power, refusal }),
        (
            select(migration::Event::ALL.to_vec()),
            option::of(refusal())
        )
            .prop_map(|(event, refusal)| Effect::Settle { event, refusal }),
    ]
}

pub(crate) fn advance() -> impl Strategy<Value = Advance> {
    (id(), epoch(), step(), mark(), effect()).prop_map(|(operation, epoch, step, mark, effect)| {
        Advance {
            operation,
            epoch,
            step,
            mark,
            effect,
        }
    })
}

pub(crate) fn power_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (0..=3_600_000_u64).prop_map(|timeout_ms| Kind::Stop { timeout_ms }),
        Just(Kind::Start),
        (0..=3_600_000_u64).prop_map(|timeout_ms| Kind::Reboot { timeout_ms }),
        vec(TEXT, 0..4).prop_map(|images| Kind::Rebuild { images }),
        (0..26_u32, TEXT).prop_map(|(disk, image)| Kind::Snapshot { disk, image }),
    ]
}

fn drain_spec() -> impl Strategy<Value = DrainSpec> {
    (
        select(vec![(false, false), (false, true), (true, false)]),
        1..=64_u32,
        any::<bool>(),
    )
        .prop_map(|((evacuate, cold), parallel, by_policy)| DrainSpec {
            evacuate,
            cold,
            parallel,
            by_policy,
        })
}

fn drain() -> impl Strategy<Value = Drain> {
    let place = (host_name(), assignment())
        .prop_map(|(host, assignment)| PlannedPlace { host, assignment });
    let progress = prop_oneof![
        Just(Progress::Waiting),
        Just(Progress::Gone),
        id().prop_map(|operation| Progress::Moving { operation }),
        host_name().prop_map(|host| Progress::Moved { host }),
        refusal().prop_map(|refusal| Progress::Stays { refusal }),
    ];
    let drained = (vm_name(), id(), option::of(place), any::<u32>(), progress).prop_map(
        |(vm, uid, planned, attempts, progress)| DrainedVm {
            vm,
            uid,
            planned,
            attempts,
            progress,
        },
    );
    (host_name(), ".{0,20}", any::<bool>(), vec(drained, 0..4)).prop_map(
        |(host, by, was_cordoned, vms)| Drain {
            host,
            by,
            was_cordoned,
            vms,
        },
    )
}

/// What an operation is about, and what it works on.
fn about() -> impl Strategy<Value = (Kind, Subject)> {
    prop_oneof![
        4 => (vm_kind(), vm_name()).prop_map(|(kind, vm)| (kind, Subject::Vm(vm))),
        1 => (drain_spec(), drain())
            .prop_map(|(spec, drain)| (Kind::DrainHost(spec), Subject::Drain(Box::new(drain)))),
    ]
}

fn vm_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Boot),
        Just(Kind::Delete),
        id().prop_map(|migration| Kind::LiveMigrate { migration }),
        id().prop_map(|migration| Kind::ColdMigrate { migration }),
        id().prop_map(|migration| Kind::RevertResize { migration }),
        id().prop_map(|migration| Kind::Evacuate { migration }),
        id().prop_map(|migration| Kind::ConfirmResize { migration }),
        Just(Kind::Shelve),
        Just(Kind::Unshelve),
        power_kind(),
    ]
}

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let lease =
        (service_name(), epoch(), time()).prop_map(|(conductor, epoch, expires_at)| Lease {
            conductor,
            epoch,
            expires_at,
        });
    let entry =
        (step(), mark(), option::of(host_name()), time()).prop_map(|(step, mark, host, at)| {
            Entry {
                step,
                mark,
                host,
                at,
            }
        });
    let outcome = prop_oneof![
        Just(Outcome::Succeeded),
        refusal().prop_map(Outcome::Failed),
    ];
    (
        (id::<OperationId>(), about()),
        (option::of(host_name()), vec(host_name(), 0..3)),
        (
            option::of(id::<ClaimId>()),
            option::of(lease),
            any::<(bool, bool)>(),
        ),
        (vec(entry, 0..4), option::of(outcome)),
        (time(), option::of(time()), ownership()),
    )
        .prop_map(|(who, hosts, holds, log, times)| Operation {
            id: who.0,
            kind: who.1.0,
            subject: who.1.1,
            requested_host: hosts.0,
            excluded: hosts.1,
            claim: holds.0,
            lease: holds.1,
            cancelled: holds.2.0,
            log: log.0,
            outcome: log.1,
            created_at: times.0,
            ended_at: times.1,
            force_complete: holds.2.1,
            ownership: times.2,
        })
}
