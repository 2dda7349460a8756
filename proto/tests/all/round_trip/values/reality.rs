//! Fences, and what agents find.

use super::*;
use berth_domain::fence::{Fenced, Method};
use berth_domain::reality::{Absence, Comparison, Expected, Finding, Trouble, Unknown};
use berth_domain::volume::Failed;

type Reality = (Vec<Unknown>, u64, BTreeSet<ClaimId>, Vec<Failed>);

pub(super) fn reality() -> impl Strategy<Value = Reality> {
    let domain = (
        id::<VmUid>(),
        "[a-z0-9-]{0,12}",
        option::of(id::<ClaimId>()),
        assignment(),
    );
    let domain = domain.prop_map(|(uid, name, claim, held)| Unknown {
        uuid: uid.0,
        name,
        is_ours: claim.is_some(),
        claim,
        held,
    });
    (
        vec(domain, 0..3),
        any::<u64>(),
        btree_set(id::<ClaimId>(), 0..3),
        vec(volume::failed(), 0..3),
    )
}

pub(super) fn trouble() -> impl Strategy<Value = Trouble> {
    (select(Absence::ALL.to_vec()), id::<ClaimId>(), time()).prop_map(|(absence, claim, since)| {
        Trouble {
            absence,
            claim,
            since,
        }
    })
}

pub(super) fn fenced() -> impl Strategy<Value = Fenced> {
    (
        select(Method::ALL.to_vec()),
        "[a-z:0-9.]{0,20}",
        time(),
        id::<Incarnation>(),
        ("[a-z \n]{0,40}", any::<bool>()),
    )
        .prop_map(
            |(method, by, at, incarnation, (output, reported_since))| Fenced {
                method,
                by,
                at,
                incarnation,
                output,
                reported_since,
            },
        )
}

pub(crate) fn comparison() -> impl Strategy<Value = Comparison> {
    let finding = (
        vm_name(),
        id::<ClaimId>(),
        generation(),
        option::of(select(Absence::ALL.to_vec())),
    );
    let finding = finding.prop_map(|(vm, claim, generation, absence)| Finding {
        vm,
        claim,
        generation,
        absence,
    });
    (reality(), vec(finding, 0..3)).prop_map(|((unknown, basis, ..), findings)| Comparison {
        basis,
        unknown,
        findings,
    })
}

pub(crate) fn expected() -> impl Strategy<Value = Expected> {
    (
        vm_name(),
        id::<VmUid>(),
        id::<ClaimId>(),
        generation(),
        any::<bool>(),
        option::of(select(Absence::ALL.to_vec())),
    )
        .prop_map(
            |(vm, uid, claim, generation, is_settled, recorded)| Expected {
                vm,
                uid,
                claim,
                generation,
                is_settled,
                recorded,
            },
        )
}
