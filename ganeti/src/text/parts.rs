//! A document that was not read from a text: what another format said, in the same form.

use super::{Document, GroupLine, InstanceLine, NodeLine, Policy, PolicyOwner};

impl Document {
    /// Returns a document of these parts; there are no bytes to write back.
    #[must_use]
    pub fn from_parts(
        groups: Vec<GroupLine>,
        nodes: Vec<NodeLine>,
        instances: Vec<InstanceLine>,
        tags: Vec<String>,
        policies: Vec<(PolicyOwner, Policy)>,
    ) -> Document {
        Document {
            groups,
            nodes,
            instances,
            tags,
            policies,
            source: String::new(),
            node_spans: Vec::new(),
            instance_spans: Vec::new(),
            instances_end: 0,
        }
    }
}
