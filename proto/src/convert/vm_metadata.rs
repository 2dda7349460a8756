//! What operators write on VMs, changes of it, and labels that select VMs.
//!
//! Here texts are bounded, so that what is hostile costs nothing. What labels and descriptions look like
//! is checked by [`Metadata::faults`], all faults at once.

use std::collections::BTreeMap;

use berth_domain::vm::{LABELS_MAX, LabelSelector, Metadata, MetadataChange};

use super::field::{self, ADDRESS_MAX, Invalid, MESSAGE_MAX};
use crate::scheduler::v1;

/// Reads the metadata of a VM.
///
/// # Errors
///
/// When there are too many labels, or a text is too long.
pub fn read(
    labels: BTreeMap<String, String>,
    description: String,
    protected: bool,
) -> Result<Metadata, Invalid> {
    Ok(Metadata {
        labels: field::text_map(labels, "labels", LABELS_MAX, ADDRESS_MAX)?,
        description: field::text(description, "description", MESSAGE_MAX)?,
        protected,
    })
}

/// Reads a change of the metadata of a VM.
///
/// # Errors
///
/// When there are too many labels, or a text is too long.
pub fn read_change(
    set_labels: BTreeMap<String, String>,
    remove_labels: Vec<String>,
    description: Option<String>,
    protected: Option<bool>,
) -> Result<MetadataChange, Invalid> {
    let key = |key: String| match key.len() <= ADDRESS_MAX {
        true => Ok(key),
        false => Err(Invalid::here(format!(
            "must be at most {ADDRESS_MAX} bytes"
        ))),
    };
    let removed = field::each_by(remove_labels, "remove_labels", LABELS_MAX, key)?;
    let description = description.map(|text| field::text(text, "description", MESSAGE_MAX));
    Ok(MetadataChange {
        set_labels: field::text_map(set_labels, "set_labels", LABELS_MAX, ADDRESS_MAX)?,
        remove_labels: removed.into_iter().collect(),
        description: description.transpose()?,
        protected,
    })
}

/// Writes a change as a request, without its VM.
#[must_use]
pub fn write_change(change: &MetadataChange) -> v1::UpdateVmRequest {
    v1::UpdateVmRequest {
        set_labels: change.set_labels.clone(),
        remove_labels: change.remove_labels.iter().cloned().collect(),
        description: change.description.clone(),
        protected: change.protected,
        ..Default::default()
    }
}

/// Reads labels that select VMs, each as `key` or `key=value`.
///
/// # Errors
///
/// When there are too many, or one cannot be a label.
pub fn read_selectors(wire: Vec<String>, field: &str) -> Result<Vec<LabelSelector>, Invalid> {
    field::each_by(wire, field, LABELS_MAX, |text| {
        text.parse().map_err(Invalid::here)
    })
}
