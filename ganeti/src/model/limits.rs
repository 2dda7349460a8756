//! What a node's state must keep to: hard limits, soft ones, and those with what is promised.
//!
//! Each looks at a state as it would be, and changes nothing.

use super::{Cluster, Node, NodeState, Refusal};

/// What holds even where soft checks are skipped.
pub(super) fn hard_limits(
    cluster: &Cluster,
    node: &Node,
    state: &NodeState,
    disk: bool,
    memory: bool,
) -> Result<(), Refusal> {
    let rules = cluster.rules();
    if memory && rules.is_short(state.unallocated_memory, node.memory_floor) {
        return Err(Refusal::Memory);
    }
    if disk && state.free_disk <= 0 {
        return Err(Refusal::Disk);
    }
    if disk && node.exclusive_storage && state.free_spindles < 0 {
        return Err(Refusal::Spindles);
    }
    Ok(())
}

pub(super) fn soft_disk_limits(node: &Node, state: &NodeState) -> Result<(), Refusal> {
    let spindles = state.used_spindles as f64;
    if state.free_disk < node.disk_floor || spindles > node.spindle_limit {
        return Err(Refusal::Disk);
    }
    Ok(())
}

/// What holds for a primary where soft checks count.
pub(super) fn soft_limits(
    node: &Node,
    state: &NodeState,
    local: bool,
    was_failing: bool,
) -> Result<(), Refusal> {
    if local {
        soft_disk_limits(node, state)?;
    }
    if state.fails_n1 && !was_failing {
        return Err(Refusal::Memory);
    }
    if node.vcpu_ratio < state.used_cpus as f64 / node.total_cpus {
        return Err(Refusal::Cpu);
    }
    Ok(())
}

pub(super) fn promised_disk_limits(node: &Node, state: &NodeState) -> Result<(), Refusal> {
    if state.forthcoming_disk <= 0 || state.forthcoming_disk < node.disk_floor {
        return Err(Refusal::Disk);
    }
    if node.exclusive_storage && state.forthcoming_free_spindles < 0 {
        return Err(Refusal::Spindles);
    }
    if state.forthcoming_spindles as f64 > node.spindle_limit {
        return Err(Refusal::Disk);
    }
    Ok(())
}

/// What holds for a primary with everything that is promised.
pub(super) fn promised_limits(
    cluster: &Cluster,
    node: &Node,
    state: &NodeState,
    local: bool,
) -> Result<(), Refusal> {
    let rules = cluster.rules();
    if rules.is_short(state.forthcoming_memory, node.memory_floor) {
        return Err(Refusal::Memory);
    }
    if local {
        promised_disk_limits(node, state)?;
    }
    if node.vcpu_ratio < state.forthcoming_cpus as f64 / node.total_cpus {
        return Err(Refusal::Cpu);
    }
    Ok(())
}
