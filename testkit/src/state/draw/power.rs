//! Operations on a VM's own host, drawn: begun, and what their saga would log next.

use berth_domain::operation::{GuestPower, Kind, Mark, Operation, Step};
use berth_state::command::{Command, Effect};

use super::super::{World, operation_id, refusal, vm_name};
use super::of;

const POWERS: [GuestPower; 4] = [
    GuestPower::Unchanged,
    GuestPower::On,
    GuestPower::Off,
    GuestPower::Broken,
];

/// Begins one, of any kind.
pub(super) fn begin(world: &mut World, vm: &str, pick: [u8; 4]) -> Command {
    let kinds = [
        Kind::Stop { timeout_ms: 1_000 },
        Kind::Start,
        Kind::Reboot { timeout_ms: 0 },
        Kind::Rebuild { images: Vec::new() },
        Kind::Snapshot {
            disk: u32::from(pick[3] / 200),
            image: format!("new{}", pick[3] % 2),
        },
        Kind::Boot,
    ];
    let by_policy = pick[3].is_multiple_of(3);
    Command::BeginPower {
        operation: operation_id(world.fresh()),
        vm: vm_name(vm),
        kind: match by_policy && pick[1] < 224 {
            true => Kind::Start,
            false => of(&kinds, pick[2]),
        },
        lease: world.lease(),
        by_policy,
    }
}

/// Returns what the saga of this operation would do next.
pub(super) fn next(world: &mut World, operation: &Operation, fail: bool) -> (Step, Mark, Effect) {
    let steps: Vec<Step> = operation.kind.plan().steps.iter().map(|p| p.step).collect();
    let found = of(&POWERS, u8::try_from(world.fresh() % 7).unwrap());
    let end = |why: Option<&str>| Effect::EndPower {
        power: found,
        refusal: why.map(refusal),
    };
    let begin = |step: Step| {
        let effect = if step == Step::MakeDisks {
            Effect::BeginRebuild
        } else {
            Effect::None
        };
        (step, Mark::Started, effect)
    };
    match operation.log.last().map(|e| (e.step, e.mark.clone())) {
        None if fail => (steps[0], Mark::Failed(refusal("DRAWN")), end(Some("DRAWN"))),
        None => begin(steps[0]),
        Some((step, Mark::Started)) if fail => (step, Mark::Failed(refusal("DRAWN")), Effect::None),
        Some((step, Mark::Started)) if steps.last() == Some(&step) => {
            (step, Mark::Succeeded, end(None))
        }
        Some((step, Mark::Started)) => (step, Mark::Succeeded, Effect::None),
        Some((step, Mark::Succeeded)) => {
            let place = steps.iter().position(|s| *s == step).unwrap();
            begin(steps[(place + 1).min(steps.len() - 1)])
        }
        Some((step, Mark::Failed(_))) => (step, Mark::UndoStarted, Effect::None),
        Some((step, Mark::UndoStarted | Mark::Undone)) => (step, Mark::Undone, end(Some("DRAWN"))),
    }
}
