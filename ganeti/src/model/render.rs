//! Writes a cluster back into the text that it came from.
//!
//! Only what planning changes is written: where instances are, and how much of their nodes is
//! free. The reported free memory changes by what came and went, so that what was missing from
//! the report stays missing, and reading the text again gives the same cluster.

use super::{Cluster, InstanceIndex, NodeIndex, Placement};
use crate::text::{Document, InstanceChange, InstanceLine, NodeChange};

impl Cluster {
    /// Returns the text of a cluster that was built from this document: byte for byte the same
    /// where nothing was changed, with a line at the end of its section for each placed instance
    /// that was added.
    #[must_use]
    pub fn render(&self, document: &Document) -> String {
        let mut nodes = Vec::new();
        for (at, line) in document.nodes.iter().enumerate() {
            let index = NodeIndex(at as u32);
            let (node, state) = (self.node(index), self.state(index));
            let recorded = node.available_memory() - state.instance_memory;
            nodes.push(NodeChange {
                node: at,
                free_memory: recorded - node.missing_memory,
                free_disk: state.free_disk,
                free_spindles: line.exclusive_storage.then_some(state.free_spindles),
            });
        }
        let mut instances = Vec::new();
        for at in 0..document.instances.len() {
            let Placement { primary, secondary } = self.placement(InstanceIndex(at as u32));
            if let Some(primary) = primary {
                instances.push(InstanceChange {
                    instance: at,
                    primary: primary.at(),
                    secondary: secondary.map(NodeIndex::at),
                });
            }
        }
        let added = self.instance_indexes().skip(document.instances.len());
        let added: Vec<InstanceLine> = added.filter_map(|index| self.line(index)).collect();
        document.render(&nodes, &instances, &added)
    }

    /// Returns the line of a placed instance.
    fn line(&self, index: InstanceIndex) -> Option<InstanceLine> {
        let Placement { primary, secondary } = self.placement(index);
        let instance = self.instance(index);
        Some(InstanceLine {
            name: instance.name.clone(),
            memory: instance.memory,
            disk: instance.disk,
            vcpus: instance.vcpus,
            status: instance.status,
            auto_balance: instance.auto_balance,
            primary: primary?.at(),
            secondary: secondary.map(NodeIndex::at),
            disk_template: instance.disk_template,
            tags: instance.tags.clone(),
            spindle_use: instance.spindle_use,
            spindles: instance.spindles,
            forthcoming: instance.forthcoming,
        })
    }
}
