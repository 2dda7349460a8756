//! What operators write on VMs, drawn.

use berth_domain::vm::{Metadata, MetadataChange};
use berth_state::command::Command;

use super::super::vm_name;
use super::{VMS, of};

const KEYS: [&str; 4] = ["team", "tier", "example.com/owner", "not a key"];

/// Returns the metadata of a new VM: mostly none. One in 16 is protected, one in 64 cannot be.
pub(super) fn metadata(pick: [u8; 4]) -> Metadata {
    if !pick[2].is_multiple_of(4) {
        return Metadata::default();
    }
    let key = KEYS[usize::from(pick[3] % 3)];
    Metadata {
        labels: [(key.to_owned(), format!("v{}", pick[1] % 3))].into(),
        description: match pick[1].is_multiple_of(16) {
            true => "two\nlines".to_owned(),
            false => format!("number {}", pick[0]),
        },
        protected: pick[0].is_multiple_of(4),
    }
}

/// Changes what is written on a VM.
pub(super) fn update(pick: [u8; 4]) -> Command {
    let mut change = MetadataChange::default();
    let key = of(&KEYS, pick[1]).to_owned();
    if pick[2].is_multiple_of(3) {
        change.remove_labels.insert(key);
    } else {
        change.set_labels.insert(key, format!("v{}", pick[2] % 3));
    }
    change.description = pick[2].is_multiple_of(4).then(|| "changed".to_owned());
    change.protected = pick[3].is_multiple_of(2).then(|| pick[3].is_multiple_of(4));
    Command::UpdateVm {
        vm: vm_name(of(&VMS, pick[0])),
        change,
    }
}
