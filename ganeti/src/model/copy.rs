//! Further copies of an instance, placed nowhere: what recreating it elsewhere would need.

use super::{Cluster, DiskTemplate, InstanceIndex, Placement};

impl Cluster {
    /// Adds an instance that is like another one, and is placed nowhere yet.
    pub fn copy_instance(&mut self, instance: InstanceIndex) -> InstanceIndex {
        let copy = self.instances[instance.at()].clone();
        let index = InstanceIndex(self.instances.len() as u32);
        self.instances.push(copy);
        self.placements.push(Placement::default());
        index
    }

    /// Changes how the disks of an instance are kept.
    ///
    /// # Panics
    ///
    /// If it is placed: its nodes have counted its disks already.
    pub fn set_disk_template(&mut self, instance: InstanceIndex, template: DiskTemplate) {
        assert!(
            self.placement(instance) == Placement::default(),
            "an instance is unplaced before its disks change"
        );
        self.instances[instance.at()].disk_template = template;
    }
}
