//! The cables of a lab: one switch, and a link from it to each machine.
//!
//! Every interface is made inside the namespaces; the test's own never sees one. So no
//! name can clash, neither with the machine's interfaces nor with another lab's.

use anyhow::{Context as _, Result};

use super::machine::Machine;

/// The length of the network's prefix. All guests are on the same network: the address
/// of one follows from its MAC address (see the guest's init).
const PREFIX_LENGTH: u8 = 8;

/// Makes the bridge that all links end at.
pub(super) fn make_switch(switch: &Machine) -> Result<()> {
    switch.run(&[
        "ip",
        "link",
        "add",
        "br0",
        "type",
        "bridge",
        "forward_delay",
        "0",
    ])?;
    switch.run(&["ip", "link", "set", "br0", "up"])?;
    Ok(())
}

/// Links a machine to the switch and gives it its address. A hypervisor gets it on a
/// bridge `br0`, to which its guests' interfaces can be added.
pub(super) fn plug_in(switch: &Machine, machine: &Machine, port: usize) -> Result<()> {
    let port = format!("port{port}");
    let init = machine.init_pid().to_string();
    // Only the network namespace of the switch: the pid must be looked up outside.
    let output = std::process::Command::new("nsenter")
        .arg(format!("--target={}", switch.init_pid()))
        .args(["--net", "--", "ip", "link", "add", &port, "type", "veth"])
        .args(["peer", "name", "eth0", "netns", &init])
        .output()?;
    anyhow::ensure!(
        output.status.success(),
        "cannot link {}: {}",
        machine.name(),
        String::from_utf8_lossy(&output.stderr),
    );
    switch.run(&["ip", "link", "set", &port, "master", "br0", "up"])?;
    machine.plug_in()?;
    let address = format!("{}/{PREFIX_LENGTH}", machine.address());
    let interface = if machine.is_hypervisor() {
        "br0"
    } else {
        "eth0"
    };
    if machine.is_hypervisor() {
        machine.run(&[
            "ip",
            "link",
            "add",
            "br0",
            "type",
            "bridge",
            "forward_delay",
            "0",
        ])?;
        machine.run(&["ip", "link", "set", "eth0", "master", "br0"])?;
        machine.run(&["ip", "link", "set", "br0", "up"])?;
    }
    machine
        .run(&["ip", "address", "add", &address, "dev", interface])
        .with_context(|| format!("cannot give {} its address", machine.name()))?;
    Ok(())
}
