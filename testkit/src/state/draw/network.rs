//! Networks, drawn: created and deleted, with VMs that are on them.

use berth_domain::network::Network;
use berth_domain::vm::Nic;
use berth_state::command::Command;

use super::super::network;
use super::of;

const NAMES: [&str; 3] = ["web", "storage", "far"];

/// Returns one of a few networks, in one of two forms.
pub(super) fn some_network(pick: [u8; 2]) -> Network {
    let mut network = network(of(&NAMES, pick[0]));
    network.link.vlan = (pick[1] > 200).then_some(7);
    network
}

/// Draws a command about networks.
pub(super) fn command(pick: [u8; 4]) -> Command {
    let network = some_network([pick[0], pick[1]]);
    match pick[3] % 4 {
        0..=2 => Command::CreateNetwork(network),
        _ => Command::DeleteNetwork {
            network: network.name,
        },
    }
}

/// Draws the interfaces of a new VM, which no other VM has.
pub(super) fn nics(pick: [u8; 4], number: u64) -> Vec<Nic> {
    if !pick[2].is_multiple_of(3) {
        return Vec::new();
    }
    let attachment = some_network([pick[0], 0]).attachment();
    let [.., a, b, c] = number.to_be_bytes();
    vec![Nic {
        bridge: String::new(),
        network: Some(attachment),
        mac: format!("52:54:00:{a:02x}:{b:02x}:{c:02x}"),
    }]
}
