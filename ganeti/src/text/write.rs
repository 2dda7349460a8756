//! Writes a text back: the bytes that were read, but for what was changed.
//!
//! Not a serializer of its own: fields are replaced inside of their lines, so that whatever else
//! stood there stays.

use std::fmt::Write as _;
use std::ops::Range;

use super::{Document, InstanceLine};

/// What becomes of an instance's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceChange {
    /// Which one, as an index into [`Document::instances`].
    pub instance: usize,
    /// The new primary node, as an index into [`Document::nodes`].
    pub primary: usize,
    /// The new secondary node.
    pub secondary: Option<usize>,
}

/// What becomes of a node's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// Which one, as an index into [`Document::nodes`].
    pub node: usize,
    /// The new free memory in MiB.
    pub free_memory: i64,
    /// The new free disk in MiB.
    pub free_disk: i64,
    /// The new free spindles, where it has exclusive storage.
    pub free_spindles: Option<i64>,
}

/// A line that is added to the instance section.
pub type NewInstance = InstanceLine;

impl Document {
    /// Returns the bytes that were read.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the text with the changes; without any, the very bytes that were read.
    #[must_use]
    pub fn render(
        &self,
        nodes: &[NodeChange],
        instances: &[InstanceChange],
        added: &[NewInstance],
    ) -> String {
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        for change in nodes {
            self.node_edits(change, &mut edits);
        }
        for change in instances {
            self.instance_edits(change, &mut edits);
        }
        if !added.is_empty() {
            let mut lines = String::new();
            for instance in added {
                lines.push_str(&self.instance_text(instance));
                lines.push('\n');
            }
            edits.push((self.instances_end..self.instances_end, lines));
        }
        edits.sort_by_key(|(range, _)| range.start);
        let mut text = String::with_capacity(self.source.len());
        let mut copied = 0;
        for (range, replacement) in edits {
            text.push_str(&self.source[copied..range.start]);
            text.push_str(&replacement);
            copied = range.end;
        }
        text.push_str(&self.source[copied..]);
        text
    }

    fn node_edits(&self, change: &NodeChange, edits: &mut Vec<(Range<usize>, String)>) {
        let line = &self.nodes[change.node];
        let span = &self.node_spans[change.node];
        if line.unknown {
            return;
        }
        let mut replace = |field: usize, old: i64, new: i64| {
            if old != new {
                edits.extend(self.field(span, field).map(|at| (at, new.to_string())));
            }
        };
        replace(3, line.free_memory, change.free_memory);
        replace(5, line.free_disk, change.free_disk);
        if let Some(free_spindles) = change.free_spindles {
            replace(12, line.free_spindles, free_spindles);
        }
    }

    fn instance_edits(&self, change: &InstanceChange, edits: &mut Vec<(Range<usize>, String)>) {
        let line = &self.instances[change.instance];
        let span = &self.instance_spans[change.instance];
        if line.primary != change.primary {
            let name = self.nodes[change.primary].name.clone();
            edits.extend(self.field(span, 6).map(|at| (at, name)));
        }
        if line.secondary != change.secondary {
            let name = change.secondary.map(|node| self.nodes[node].name.clone());
            let name = name.unwrap_or_default();
            edits.extend(self.field(span, 7).map(|at| (at, name)));
        }
    }

    /// Returns where a field of a line stands; nothing where the line ends before it.
    fn field(&self, span: &Range<usize>, field: usize) -> Option<Range<usize>> {
        let line = &self.source[span.clone()];
        let mut start = span.start;
        for (index, text) in line.split('|').enumerate() {
            if index == field {
                return Some(start..start + text.len());
            }
            start += text.len() + 1;
        }
        None
    }

    fn instance_text(&self, instance: &InstanceLine) -> String {
        let flag = |value| if value { 'Y' } else { 'N' };
        let secondary = instance.secondary.map(|n| self.nodes[n].name.as_str());
        let mut text = format!(
            "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}",
            instance.name,
            instance.memory,
            instance.disk,
            instance.vcpus,
            instance.status.word(),
            flag(instance.auto_balance),
            self.nodes[instance.primary].name,
            secondary.unwrap_or_default(),
            instance.disk_template.word(),
            instance.tags.join(","),
            instance.spindle_use,
        );
        let spindles = instance.spindles.map(|s| s.to_string());
        let spindles = spindles.unwrap_or_else(|| "-".to_owned());
        if instance.forthcoming || instance.spindles.is_some() {
            let forthcoming = flag(instance.forthcoming);
            write!(text, "|{spindles}|{forthcoming}").expect("a string takes all that is written");
        }
        text
    }
}
