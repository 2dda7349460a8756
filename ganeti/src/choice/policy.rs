//! Whether the policy of a node's group allows an instance of this size there.

use super::{Disk, Reason};
use crate::model::{Cluster, DiskTemplate, Instance, InstanceIndex, NodeIndex, Spec};

/// Says whether the policy of a node's group allows an instance.
///
/// # Errors
///
/// What of it is too small or too great, as far as the last range of the policy goes.
pub fn matches(
    cluster: &Cluster,
    instance: InstanceIndex,
    disks: &[Disk],
    node: NodeIndex,
) -> Result<(), Reason> {
    let what = cluster.instance(instance);
    let node = cluster.node(node);
    let policy = &cluster.groups()[node.group.at()].policy;
    let mut allowed = Ok(());
    // The first range has the last word, as in htools.
    for (least, most) in policy.ranges.iter().rev() {
        allowed = compare(
            what,
            disks,
            least,
            node.exclusive_storage,
            |value, least| value >= least,
        )
        .and_then(|()| {
            compare(what, disks, most, node.exclusive_storage, |value, most| {
                value <= most
            })
        });
        if allowed.is_ok() {
            break;
        }
    }
    allowed?;
    if policy.disk_templates.contains(&what.disk_template) {
        Ok(())
    } else {
        Err(Reason::Disk)
    }
}

fn compare(
    instance: &Instance,
    disks: &[Disk],
    spec: &Spec,
    exclusive_storage: bool,
    is_allowed: fn(i64, i64) -> bool,
) -> Result<(), Reason> {
    if !is_allowed(instance.memory, spec.memory) {
        return Err(Reason::Memory);
    }
    if disks
        .iter()
        .any(|disk| !is_allowed(disk.size, spec.disk_size))
    {
        return Err(Reason::Disk);
    }
    if !is_allowed(instance.vcpus, spec.cpus) {
        return Err(Reason::Cpu);
    }
    let spindles = if exclusive_storage {
        let spindles = disks.iter().map(|disk| disk.spindles);
        spindles.sum::<Option<i64>>()
    } else {
        Some(instance.spindle_use)
    };
    if !spindles.is_some_and(|spindles| is_allowed(spindles, spec.spindle_use)) {
        return Err(Reason::Spindles);
    }
    let counted = instance.disk_template != DiskTemplate::Diskless;
    if counted && !is_allowed(disks.len() as i64, spec.disk_count) {
        return Err(Reason::DiskCount);
    }
    Ok(())
}
