//! Options of what operators write on VMs: labels, a description, and the protection from deletion.

use berth_domain::vm::{
    LABELS_MAX, LabelSelector, Labels, Metadata, MetadataChange, check_label_key,
};
use clap::Args;

use crate::usage::Usage;

/// What is written on a new VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct NewMetadata {
    /// Label such as team=blue, with a key and a value as in Kubernetes (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Description for people, of up to 1,024 bytes in one line
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub description: String,
    /// Protect the VM: it can neither be deleted nor rebuilt until `berth vm set --unprotect`
    #[arg(long)]
    pub protect: bool,
}

impl NewMetadata {
    /// Returns the metadata of the VM.
    ///
    /// # Errors
    ///
    /// A label is given twice, or what is given is beyond its bounds.
    pub fn to_metadata(&self) -> Result<Metadata, Usage> {
        let metadata = Metadata {
            labels: unique(&self.labels)?,
            description: self.description.clone(),
            protected: self.protect,
        };
        check(metadata.faults().first().map(ToString::to_string))?;
        Ok(metadata)
    }
}

/// What changes of what is written on VMs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct MetadataOptions {
    /// Label to add, or to give another value (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Key of a label to remove (repeatable)
    #[arg(long = "remove-label", value_name = "KEY", value_parser = label_key)]
    pub remove_labels: Vec<String>,
    /// Description for people, of up to 1,024 bytes in one line; "" removes it
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// Protect the VMs: they can neither be deleted nor rebuilt
    #[arg(long, conflicts_with = "unprotect")]
    pub protect: bool,
    /// Lift the protection, so that the VMs can be deleted and rebuilt
    #[arg(long)]
    pub unprotect: bool,
}

impl MetadataOptions {
    /// Returns the change.
    ///
    /// # Errors
    ///
    /// Nothing changes, a label is given twice, or what is given is beyond its bounds.
    pub fn to_change(&self) -> Result<MetadataChange, Usage> {
        let change = MetadataChange {
            set_labels: unique(&self.labels)?,
            remove_labels: self.remove_labels.iter().cloned().collect(),
            description: self.description.clone(),
            protected: (self.protect || self.unprotect).then_some(self.protect),
        };
        if change.is_empty() {
            let message = "there is nothing to set: give --label, --remove-label, --description, --protect or \
                           --unprotect";
            return Err(Usage(message.to_owned()));
        }
        if change.remove_labels.len() > LABELS_MAX {
            let message = format!("at most {LABELS_MAX} labels are removed at a time: give fewer");
            return Err(Usage(message));
        }
        let mut faults = change.faults();
        faults.extend(Metadata::default().changed(&change).faults());
        check(faults.first().map(ToString::to_string))?;
        Ok(change)
    }
}

fn check(fault: Option<String>) -> Result<(), Usage> {
    fault.map_or(Ok(()), |fault| Err(Usage(fault)))
}

/// Returns labels by their keys.
fn unique(pairs: &[(String, String)]) -> Result<Labels, Usage> {
    let mut labels = Labels::new();
    for (key, value) in pairs {
        let before = labels.insert(key.clone(), value.clone());
        if before.is_some_and(|before| before != *value) {
            let message = format!("label {key} is given with two values: give one");
            return Err(Usage(message));
        }
    }
    Ok(labels)
}

/// Reads a label that is set.
fn label(text: &str) -> Result<(String, String), String> {
    let selector: LabelSelector = text.parse().map_err(|error| format!("{error}"))?;
    let value = selector
        .value
        .ok_or("expected KEY=VALUE; a value may be empty, as team=")?;
    Ok((selector.key, value))
}

fn label_key(text: &str) -> Result<String, String> {
    check_label_key(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(labels: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        labels.iter().map(owned).collect()
    }

    #[test]
    fn labels_are_keys_with_values() {
        assert_eq!(label("team=blue"), Ok(("team".into(), "blue".into())));
        assert_eq!(label("a.b/c="), Ok(("a.b/c".into(), String::new())));
        assert!(label("team").unwrap_err().contains("KEY=VALUE"));
        assert!(label("=v").unwrap_err().contains("1 to 63"));
        assert!(label("a=b c").unwrap_err().contains("at most 63"));
        assert!(label_key("A/b").unwrap_err().contains("DNS"));
    }

    #[test]
    fn a_change_is_what_is_given() {
        let nothing = MetadataOptions::default().to_change().unwrap_err();
        assert!(nothing.0.contains("nothing to set"), "{}", nothing.0);
        let options = MetadataOptions {
            labels: pairs(&[("a", "1"), ("a", "1")]),
            remove_labels: vec!["b".to_owned()],
            description: Some(String::new()),
            unprotect: true,
            ..MetadataOptions::default()
        };
        let change = options.to_change().unwrap();
        assert_eq!(change.set_labels.len(), 1);
        assert_eq!(change.description.as_deref(), Some(""));
        assert_eq!(change.protected, Some(false));
        for (options, expected) in [
            (
                MetadataOptions {
                    labels: pairs(&[("a", "1"), ("a", "2")]),
                    ..MetadataOptions::default()
                },
                "two values",
            ),
            (
                MetadataOptions {
                    labels: pairs(&[("a", "1")]),
                    remove_labels: vec!["a".to_owned()],
                    ..MetadataOptions::default()
                },
                "both set and removed",
            ),
            (
                MetadataOptions {
                    description: Some("x".repeat(1025)),
                    ..MetadataOptions::default()
                },
                "at most 1024 bytes",
            ),
        ] {
            let refused = options.to_change().unwrap_err();
            assert!(refused.0.contains(expected), "{}", refused.0);
        }
    }

    #[test]
    fn a_new_vm_has_what_is_given() {
        let given = NewMetadata {
            labels: pairs(&[("team", "blue")]),
            description: "the database".to_owned(),
            protect: true,
        };
        let metadata = given.to_metadata().unwrap();
        assert_eq!(metadata.labels["team"], "blue");
        assert_eq!(
            (&*metadata.description, metadata.protected),
            ("the database", true)
        );
        assert!(NewMetadata::default().to_metadata().unwrap().is_default());
        let many = NewMetadata {
            labels: (0..65).map(|n| (format!("k{n}"), String::new())).collect(),
            ..NewMetadata::default()
        };
        assert!(many.to_metadata().unwrap_err().0.contains("at most 64"));
    }
}
