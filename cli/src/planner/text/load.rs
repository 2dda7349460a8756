//! Reads a file of htools' piece by piece: an error names its line and column and is reported
//! as soon as it is read.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use berth_ganeti::model::{Cluster, GroupIndex, MemoryRule, Options, RatioSource, Rules};
use berth_ganeti::text::{Document, Limits, Reader};

use crate::arguments::Text;

/// The size of one read.
const PIECE: usize = 1 << 16;

/// A cluster, and the text that it is from.
pub(super) struct Loaded {
    pub(super) document: Document,
    pub(super) cluster: Cluster,
    /// The only group that is evaluated.
    pub(super) group: Option<GroupIndex>,
}

/// Reads a text.
///
/// # Errors
///
/// The file cannot be read, or is wrong at a line and column.
pub(super) fn document(path: &Path) -> anyhow::Result<Document> {
    let mut file =
        File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
    let mut reader = Reader::new(Limits::default());
    let mut piece = vec![0; PIECE];
    let at_position = |error: berth_ganeti::text::Error| {
        let (line, column) = (error.line, error.column);
        anyhow!("{}:{line}:{column}: {}", path.display(), error.fault)
    };
    loop {
        let count = file
            .read(&mut piece)
            .with_context(|| format!("failed to read {}", path.display()))?;
        if count == 0 {
            break;
        }
        reader.push(&piece[..count]).map_err(at_position)?;
    }
    reader.finish().map_err(at_position)
}

/// Returns what was typed about a text, with the memory ratio to take.
pub(super) fn options(args: &Text, ratio: RatioSource) -> Options {
    Options {
        rules: Rules {
            memory: rule(args.strict),
            ratio,
        },
        ignore_load: args.ignore_dynu,
        exclusion_tags: args.exclusion_tags.clone(),
        offline: args.offline.clone(),
        disk_reserve: 0.0,
    }
}

/// Returns how free memory is compared.
pub(super) fn rule(strict: bool) -> MemoryRule {
    if strict {
        MemoryRule::Strict
    } else {
        MemoryRule::AtMost
    }
}

/// Reads the text that was typed.
///
/// # Errors
///
/// The file is wrong, or a name that was typed is not in it.
pub(super) fn load(args: &Text, ratio: RatioSource) -> anyhow::Result<Loaded> {
    let path = args.text.as_deref().context("--text is missing")?;
    let document = document(path)?;
    for name in &args.offline {
        if !document.nodes.iter().any(|node| node.name == *name) {
            bail!("{} has no node {name}, of --offline", path.display());
        }
    }
    let group = match &args.group {
        None => None,
        Some(name) => {
            let mut groups = document.groups.iter();
            let index = groups.position(|group| group.name == *name || group.uuid == *name);
            let index = index.ok_or_else(|| {
                let names = document.groups.iter().map(|group| group.name.as_str());
                let names: Vec<&str> = names.take(10).collect();
                let path = path.display();
                anyhow!("{path} has no group {name}; it has {}", names.join(", "))
            })?;
            Some(GroupIndex(u32::try_from(index).context("too many groups")?))
        }
    };
    let cluster = Cluster::new(&document, &options(args, ratio));
    Ok(Loaded {
        document,
        cluster,
        group,
    })
}
