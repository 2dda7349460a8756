//! Reads htools' text format as it arrives, and refuses at the first fault.
//!
//! The caller pushes bytes and does the input; a line is judged as soon as it is complete, so
//! that a gigabyte of something else ends after its first kilobytes. Two limits bound what is
//! kept: of a line and of the whole.

use std::collections::BTreeMap;

use super::error::{Error, Fault};
use super::fields::{Field, Line, shortened};
use super::{Document, GroupLine, InstanceLine, NodeLine, NodeRole, Policy, PolicyOwner};

/// How much is read before a text is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest text in bytes.
    pub text_bytes: usize,
    /// The longest line in bytes.
    pub line_bytes: usize,
}

impl Default for Limits {
    /// A quarter of a gigabyte, about two million instances, and lines of up to a megabyte.
    fn default() -> Self {
        Limits {
            text_bytes: 256 << 20,
            line_bytes: 1 << 20,
        }
    }
}

/// Reads a whole text.
///
/// # Errors
///
/// The first fault, with its line and column.
pub fn parse(text: &str) -> Result<Document, Error> {
    let mut reader = Reader::new(Limits::default());
    reader.push(text.as_bytes())?;
    reader.finish()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Groups,
    Nodes,
    Instances,
    Tags,
    Policies,
    Ignored,
}

impl Section {
    fn next(self) -> Section {
        match self {
            Section::Groups => Section::Nodes,
            Section::Nodes => Section::Instances,
            Section::Instances => Section::Tags,
            Section::Tags => Section::Policies,
            Section::Policies | Section::Ignored => Section::Ignored,
        }
    }

    /// Returns how many sections there are when the text ends in this one.
    fn count(self) -> usize {
        match self {
            Section::Groups => 1,
            Section::Nodes => 2,
            Section::Instances => 3,
            Section::Tags => 4,
            Section::Policies => 5,
            Section::Ignored => 6,
        }
    }
}

/// Takes a text in pieces of any size.
#[derive(Debug)]
pub struct Reader {
    limits: Limits,
    document: Document,
    section: Section,
    /// Bytes of the line that has not ended yet.
    pending: Vec<u8>,
    /// Lines that were judged.
    lines: usize,
    group_by_uuid: BTreeMap<String, (usize, usize)>,
    group_by_name: BTreeMap<String, (usize, usize)>,
    node_by_name: BTreeMap<String, (usize, usize)>,
    policy_line: BTreeMap<String, usize>,
}

impl Reader {
    /// Returns a reader that has read nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Reader {
            limits,
            document: Document {
                groups: Vec::new(),
                nodes: Vec::new(),
                instances: Vec::new(),
                tags: Vec::new(),
                policies: Vec::new(),
                source: String::new(),
                node_spans: Vec::new(),
                instance_spans: Vec::new(),
                instances_end: 0,
            },
            section: Section::Groups,
            pending: Vec::new(),
            lines: 0,
            group_by_uuid: BTreeMap::new(),
            group_by_name: BTreeMap::new(),
            node_by_name: BTreeMap::new(),
            policy_line: BTreeMap::new(),
        }
    }

    /// Takes the next bytes of the text.
    ///
    /// # Errors
    ///
    /// The first fault, with its line and column; the reader is of no use after it.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            self.pending.extend_from_slice(piece);
            let ended = piece.ends_with(b"\n");
            if self.pending.len() > self.limits.line_bytes {
                let limit = self.limits.line_bytes;
                return Err(self.here(1, Fault::LineTooLong { limit }));
            }
            if self.document.source.len() + self.pending.len() > self.limits.text_bytes {
                let limit = self.limits.text_bytes;
                return Err(self.here(1, Fault::TooLong { limit }));
            }
            if ended {
                self.end_of_line()?;
            }
        }
        Ok(())
    }

    /// Ends the text.
    ///
    /// # Errors
    ///
    /// A fault of the last line, or that sections are missing.
    pub fn finish(mut self) -> Result<Document, Error> {
        if !self.pending.is_empty() {
            self.end_of_line()?;
        }
        let found = self.section.count();
        if found < 4 {
            return Err(self.here(1, Fault::MissingSections { actual: found }));
        }
        Ok(self.document)
    }

    fn here(&self, column: usize, fault: Fault) -> Error {
        Error {
            line: self.lines + 1,
            column,
            fault,
        }
    }

    fn end_of_line(&mut self) -> Result<(), Error> {
        let bytes = std::mem::take(&mut self.pending);
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            Err(fault) => {
                let good = String::from_utf8_lossy(&bytes[..fault.valid_up_to()]);
                return Err(self.here(good.chars().count() + 1, Fault::NotText));
            }
        };
        let line = text.strip_suffix('\n').unwrap_or(text);
        let control = line.chars().enumerate().find(|(_, c)| c.is_control());
        if let Some((column, character)) = control {
            let code = u32::from(character);
            return Err(self.here(column + 1, Fault::ControlCharacter { code }));
        }
        let start = self.document.source.len();
        let number = self.lines + 1;
        if line.is_empty() {
            if self.section == Section::Instances {
                self.document.instances_end = start;
            }
            self.section = self.section.next();
        } else {
            self.record(Line { number, text: line })?;
            let span = start..start + line.len();
            if self.section == Section::Nodes {
                self.document.node_spans.push(span);
            } else if self.section == Section::Instances {
                self.document.instance_spans.push(span);
            }
        }
        self.lines = number;
        self.document.source.push_str(text);
        Ok(())
    }

    fn record(&mut self, line: Line<'_>) -> Result<(), Error> {
        match self.section {
            Section::Groups => self.group(line),
            Section::Nodes => self.node(line),
            Section::Instances => self.instance(line),
            Section::Tags => {
                self.document.tags.push(line.text.to_owned());
                Ok(())
            }
            Section::Policies => self.policy(line),
            Section::Ignored => Ok(()),
        }
    }

    fn group(&mut self, line: Line<'_>) -> Result<(), Error> {
        let fields = enough(line, "group", 4)?;
        let group = GroupLine {
            name: fields[0].name("name of the group")?,
            uuid: fields[1].name("UUID of the group")?,
            allocation_policy: fields[2].allocation_policy()?,
            tags: fields[3].list(),
            networks: fields.get(4).map(Field::list).unwrap_or_default(),
        };
        let index = self.document.groups.len();
        only_once(&mut self.group_by_name, &fields[0], "group", index)?;
        only_once(&mut self.group_by_uuid, &fields[1], "group's UUID", index)?;
        self.document.groups.push(group);
        Ok(())
    }

    fn node(&mut self, line: Line<'_>) -> Result<(), Error> {
        let fields = enough(line, "node", 9)?;
        let group = reference(&self.group_by_uuid, &fields[8], "group with UUID")?;
        let node = node_line(&fields, group)?;
        let index = self.document.nodes.len();
        only_once(&mut self.node_by_name, &fields[0], "node", index)?;
        self.document.nodes.push(node);
        Ok(())
    }

    fn instance(&mut self, line: Line<'_>) -> Result<(), Error> {
        let fields = enough(line, "instance", 10)?;
        let primary = reference(&self.node_by_name, &fields[6], "node")?;
        let secondary = if fields[7].text.is_empty() {
            None
        } else {
            Some(reference(&self.node_by_name, &fields[7], "node")?)
        };
        if secondary == Some(primary) {
            let name = shortened(fields[0].text);
            return Err(fields[7].error(Fault::SameNode { name }));
        }
        let spindles = match fields.get(11) {
            None => None,
            Some(field) if field.text == "-" => None,
            Some(field) => Some(field.integer("spindles", 0)?),
        };
        self.document.instances.push(InstanceLine {
            name: fields[0].name("name of the instance")?,
            memory: fields[1].integer("memory of the instance", 0)?,
            disk: fields[2].integer("disk of the instance", 0)?,
            vcpus: fields[3].integer("number of virtual CPUs", 0)?,
            status: fields[4].status()?,
            auto_balance: fields[5].yes("auto-balance flag")?,
            primary,
            secondary,
            disk_template: fields[8].disk_template()?,
            tags: fields[9].list(),
            spindle_use: optional_integer(&fields, 10, "spindle use", 1)?,
            spindles,
            forthcoming: optional_yes(&fields, 12, "forthcoming flag")?,
        });
        Ok(())
    }

    fn policy(&mut self, line: Line<'_>) -> Result<(), Error> {
        let fields = enough(line, "policy", 6)?;
        let owner = if fields[0].text.is_empty() {
            PolicyOwner::Cluster
        } else {
            PolicyOwner::Group(reference(&self.group_by_name, &fields[0], "group")?)
        };
        let name = fields[0].text.to_owned();
        if let Some(first) = self.policy_line.insert(name, line.number) {
            return Err(fields[0].error(Fault::Duplicate {
                what: "policy of",
                name: shortened(fields[0].text),
                first,
            }));
        }
        let specs = fields[2].split(';');
        if !specs.len().is_multiple_of(2) {
            let found = specs.len();
            return Err(fields[2].error(Fault::OddRanges { actual: found }));
        }
        let mut ranges = Vec::new();
        for pair in specs.chunks_exact(2) {
            ranges.push((pair[0].spec()?, pair[1].spec()?));
        }
        let mut disk_templates = Vec::new();
        for word in fields[3].split(',').iter().filter(|f| !f.text.is_empty()) {
            disk_templates.push(word.disk_template()?);
        }
        let memory_ratio = match fields.get(6) {
            Some(field) if !field.text.is_empty() => field.real("memory ratio")?,
            Some(_) | None => 1.0,
        };
        let policy = Policy {
            standard: fields[1].spec()?,
            ranges,
            disk_templates,
            vcpu_ratio: fields[4].real("ratio of virtual CPUs")?,
            spindle_ratio: fields[5].real("spindle ratio")?,
            memory_ratio,
        };
        self.document.policies.push((owner, policy));
        Ok(())
    }
}

fn enough<'a>(
    line: Line<'a>,
    section: &'static str,
    least: usize,
) -> Result<Vec<Field<'a>>, Error> {
    let fields = line.fields();
    let found = fields.len();
    if found < least {
        let last = fields[found - 1];
        return Err(last.error(Fault::FieldCount {
            section,
            least,
            actual: found,
        }));
    }
    Ok(fields)
}

fn node_line(fields: &[Field<'_>], group: usize) -> Result<NodeLine, Error> {
    let unknown = fields[1..7].iter().any(|field| field.text == "?");
    let real = |at: usize, what| {
        if unknown {
            return Ok(0.0);
        }
        fields[at].real(what)
    };
    let integer = |at: usize, what, least| {
        if unknown {
            return Ok(0);
        }
        fields[at].integer(what, least)
    };
    let optional = |at, what, default| {
        if unknown {
            return Ok(0);
        }
        optional_integer(fields, at, what, default)
    };
    Ok(NodeLine {
        name: fields[0].name("name of the node")?,
        total_memory: real(1, "total memory of the node")?,
        node_memory: integer(2, "memory of the node itself", 0)?,
        free_memory: integer(3, "free memory of the node", i64::MIN)?,
        total_disk: real(4, "total disk of the node")?,
        free_disk: integer(5, "free disk of the node", i64::MIN)?,
        total_cpus: real(6, "number of CPUs")?,
        role: match fields[7].text {
            "Y" => NodeRole::Offline,
            "M" => NodeRole::Master,
            _ => NodeRole::Regular,
        },
        unknown,
        group,
        spindles: optional(9, "spindles of the node", 1)?,
        tags: fields.get(10).map(Field::list).unwrap_or_default(),
        exclusive_storage: !unknown && optional_yes(fields, 11, "exclusive-storage flag")?,
        free_spindles: optional(12, "free spindles of the node", 0)?,
        node_cpus: optional(13, "CPUs of the node itself", 1)?,
        cpu_speed: match fields.get(14) {
            Some(field) if !unknown => field.real("speed of the CPUs")?,
            Some(_) | None => 1.0,
        },
    })
}

fn optional_integer(
    fields: &[Field<'_>],
    at: usize,
    what: &'static str,
    default: i64,
) -> Result<i64, Error> {
    fields
        .get(at)
        .map_or(Ok(default), |field| field.integer(what, 0))
}

fn optional_yes(fields: &[Field<'_>], at: usize, what: &'static str) -> Result<bool, Error> {
    fields.get(at).map_or(Ok(false), |field| field.yes(what))
}

fn only_once(
    known: &mut BTreeMap<String, (usize, usize)>,
    field: &Field<'_>,
    what: &'static str,
    index: usize,
) -> Result<(), Error> {
    let earlier = known.insert(field.text.to_owned(), (index, field.line));
    match earlier {
        None => Ok(()),
        Some((_, first)) => Err(field.error(Fault::Duplicate {
            what,
            name: shortened(field.text),
            first,
        })),
    }
}

fn reference(
    known: &BTreeMap<String, (usize, usize)>,
    field: &Field<'_>,
    what: &'static str,
) -> Result<usize, Error> {
    match known.get(field.text) {
        Some((index, _)) => Ok(*index),
        None => Err(field.error(Fault::UnknownReference {
            what,
            name: shortened(field.text),
        })),
    }
}
