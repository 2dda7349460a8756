//! What an operator writes on a VM: labels, a description, and whether it is protected from deletion.
//!
//! Nothing here has a part in placement. Labels have the form of those of Kubernetes, so that what
//! selects objects there selects VMs here.
//!
//! Invariant: the state holds no metadata that has [faults](Metadata::faults), so a VM's record grows by
//! a bounded length.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::field_fault::Fault;

/// The most labels of a VM.
pub const LABELS_MAX: usize = 64;
/// The longest name of a label's key, in characters.
pub const LABEL_NAME_LENGTH_MAX: usize = 63;
/// The longest prefix of a label's key, in characters.
pub const LABEL_PREFIX_LENGTH_MAX: usize = 253;
/// The longest value of a label, in characters.
pub const LABEL_VALUE_LENGTH_MAX: usize = 63;
/// The longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;

/// The most faults that are reported at once. Refusals are stored with the ids of their requests.
pub const METADATA_FAULTS_MAX: usize = 8;

/// How much of a key is repeated in the name of a faulty field: the longest key that can be one.
const FIELD_LENGTH_MAX: usize = LABEL_PREFIX_LENGTH_MAX + 1 + LABEL_NAME_LENGTH_MAX;
/// How much of a value is repeated.
const SHOWN_LENGTH_MAX: usize = 80;

/// The labels of a VM, by their keys.
pub type Labels = BTreeMap<String, String>;

/// What an operator writes on a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Metadata {
    /// Its labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// A text for people; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether it can neither be deleted nor rebuilt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub protected: bool,
}

/// What is changed of the metadata of a VM. Labels are changed by their keys, so that two changes of
/// different keys do not undo each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataChange {
    /// Labels that are added, or get another value.
    pub set_labels: Labels,
    /// Keys of labels that are removed. One that the VM does not have is no fault.
    pub remove_labels: BTreeSet<String>,
    /// The description; empty: it has none any more; absent: as it is.
    pub description: Option<String>,
    /// Whether it is protected; absent: as it is.
    pub protected: Option<bool>,
}

impl Metadata {
    /// Returns whether nothing is written.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what is wrong with it, at most [`METADATA_FAULTS_MAX`] faults.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let count = self.labels.len();
        if count > LABELS_MAX {
            let rule = format!("a VM may have at most {LABELS_MAX} labels: remove others first");
            faults.push(Fault::new("labels", count, rule));
        }
        for (key, value) in &self.labels {
            let faulty_key = key_fault(key);
            let faulty_value = || value_fault(key, value);
            faults.extend(faulty_key.or_else(faulty_value));
        }
        let bytes = self.description.len();
        if bytes > DESCRIPTION_BYTES_MAX {
            let rule = format!("must have at most {DESCRIPTION_BYTES_MAX} bytes: shorten it");
            faults.push(Fault::new("description", format!("{bytes} bytes"), rule));
        } else if self.description.chars().any(char::is_control) {
            let rule =
                "must have no control characters, such as line breaks: replace them by spaces";
            let shown = printable(&self.description, SHOWN_LENGTH_MAX);
            faults.push(Fault::new("description", shown, rule));
        }
        faults.truncate(METADATA_FAULTS_MAX);
        faults
    }

    /// Returns the metadata after a change, not validated yet.
    #[must_use]
    pub fn changed(&self, change: &MetadataChange) -> Self {
        let mut labels = self.labels.clone();
        labels.retain(|key, _| !change.remove_labels.contains(key));
        let set = change.set_labels.iter();
        labels.extend(set.map(|(key, value)| (key.clone(), value.clone())));
        let description = change.description.as_ref();
        Self {
            labels,
            description: description.unwrap_or(&self.description).clone(),
            protected: change.protected.unwrap_or(self.protected),
        }
    }
}

impl MetadataChange {
    /// Returns whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what is wrong with the change itself, at most [`METADATA_FAULTS_MAX`] faults. Whether its
    /// result is good, [`Metadata::faults`] states.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self
            .remove_labels
            .iter()
            .filter_map(|key| key_fault(key))
            .collect();
        let both = self.remove_labels.iter();
        let both = both.filter(|key| self.set_labels.contains_key(*key));
        faults.extend(both.map(|key| {
            let rule = "is both set and removed: name it once";
            let value = printable(&self.set_labels[key], SHOWN_LENGTH_MAX);
            Fault::new(field(key), value, rule)
        }));
        faults.truncate(METADATA_FAULTS_MAX);
        faults
    }

    /// Returns a short description: which keys, and nothing of what is written.
    #[must_use]
    pub fn describe(&self) -> String {
        let keys = |word: &str, keys: Vec<&str>| {
            (!keys.is_empty()).then(|| format!("{word}={}", keys.join(",")))
        };
        let set = self.set_labels.keys().map(String::as_str).collect();
        let removed = self.remove_labels.iter().map(String::as_str).collect();
        let description = self.description.as_ref();
        let words = [
            self.protected.map(|is_so| format!("protected={is_so}")),
            description.map(|text| format!("description={} bytes", text.len())),
            keys("set_labels", set),
            keys("remove_labels", removed),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        words.join(" ")
    }
}

/// Which VMs are listed: those with a label, of any value or of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector {
    /// The key.
    pub key: String,
    /// The value; absent: any.
    pub value: Option<String>,
}

impl LabelSelector {
    /// Returns whether these labels are selected.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        let present = labels.get(&self.key);
        match &self.value {
            None => present.is_some(),
            Some(value) => present == Some(value),
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            None => f.write_str(&self.key),
            Some(value) => write!(f, "{}={value}", self.key),
        }
    }
}

/// A text is no label, or selects none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.0.rule)]
pub struct InvalidLabel(pub Fault);

impl FromStr for LabelSelector {
    type Err = InvalidLabel;

    /// Reads `key`, or `key=value`.
    fn from_str(text: &str) -> Result<Self, InvalidLabel> {
        let (key, value) = match text.split_once('=') {
            None => (text, None),
            Some((key, value)) => (key, Some(value)),
        };
        let fault = key_fault(key).or_else(|| value_fault(key, value.unwrap_or_default()));
        match fault {
            Some(fault) => Err(InvalidLabel(fault)),
            None => Ok(Self {
                key: key.to_owned(),
                value: value.map(str::to_owned),
            }),
        }
    }
}

/// Checks the key of a label.
///
/// # Errors
///
/// What is wrong with it.
pub fn check_label_key(key: &str) -> Result<(), InvalidLabel> {
    key_fault(key).map_or(Ok(()), |fault| Err(InvalidLabel(fault)))
}

fn field(key: &str) -> String {
    format!("labels.{}", printable(key, FIELD_LENGTH_MAX))
}

/// Returns the beginning of a text in printable ASCII, of at most `length_max` bytes; every other
/// character is written as its code point, as `<U+00E4>`, and so is `<`.
///
/// Every member makes the refusals that it stores, and what `{:?}` escapes depends on the Unicode tables
/// of the standard library that a member was built with.
fn printable(text: &str, length_max: usize) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        let is_plain = matches!(character, ' '..='~') && character != '<';
        let part = match is_plain {
            true => character.to_string(),
            false => format!("<U+{:04X}>", u32::from(character)),
        };
        if shown.len() + part.len() > length_max {
            break;
        }
        shown.push_str(&part);
    }
    shown
}

fn key_fault(key: &str) -> Option<Fault> {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((prefix, name)) => (Some(prefix), name),
    };
    let rule = if !prefix.is_none_or(is_dns_name) {
        format!(
            "what stands before the '/' of a key must be a DNS name of 1 to {LABEL_PREFIX_LENGTH_MAX} \
             characters in lower case, as example.com/team"
        )
    } else if name.is_empty() || !is_word(name, LABEL_NAME_LENGTH_MAX) {
        format!(
            "the name of a key must have 1 to {LABEL_NAME_LENGTH_MAX} characters out of a-z, A-Z, 0-9, \
             '-', '_' and '.', beginning and ending with a letter or a digit, as team or \
             example.com/team"
        )
    } else {
        return None;
    };
    Some(Fault::new(
        field(key),
        printable(key, SHOWN_LENGTH_MAX),
        rule,
    ))
}

fn value_fault(key: &str, value: &str) -> Option<Fault> {
    if is_word(value, LABEL_VALUE_LENGTH_MAX) {
        return None;
    }
    let rule = format!(
        "a value must be empty or have at most {LABEL_VALUE_LENGTH_MAX} characters out of a-z, A-Z, \
         0-9, '-', '_' and '.', beginning and ending with a letter or a digit; longer texts go into the \
         description"
    );
    Some(Fault::new(
        field(key),
        printable(value, SHOWN_LENGTH_MAX),
        rule,
    ))
}

/// Returns whether a text is empty, or a word of a label.
fn is_word(text: &str, length_max: usize) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_outer = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= length_max
        && bytes.iter().copied().all(is_inner)
        && is_outer(bytes.first())
        && is_outer(bytes.last())
}

/// Returns whether a text is a DNS name in lower case.
fn is_dns_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(is_inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= LABEL_PREFIX_LENGTH_MAX && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
        pairs.iter().map(owned).collect()
    }

    fn fields(metadata: &Metadata) -> Vec<String> {
        let faults = metadata.faults().into_iter();
        faults.map(|fault| fault.field).collect()
    }

    fn with_label(key: &str, value: &str) -> Metadata {
        Metadata {
            labels: labels(&[(key, value)]),
            ..Metadata::default()
        }
    }

    /// Goal: keys are those that Kubernetes takes. Method: each rule, at its bound and beyond.
    #[test]
    fn keys_are_those_of_kubernetes() {
        let name = "n".repeat(63);
        let prefix = format!("{}.{}", "p".repeat(126), "q".repeat(126));
        assert_eq!(prefix.len(), 253);
        for good in [
            "a",
            "0",
            "Team",
            "a_b.c-d",
            "example.com/team",
            "x/y",
            &name,
            &format!("{prefix}/{name}"),
        ] {
            assert_eq!(
                fields(&with_label(good, "v")),
                Vec::<String>::new(),
                "{good}"
            );
            assert_eq!(check_label_key(good), Ok(()));
        }
        for bad in [
            "",
            "-a",
            "a-",
            ".a",
            "a_",
            "a b",
            "ä",
            "a\n",
            "a=b",
            "/a",
            "a/",
            "a/b/c",
            "Example.com/a",
            "a..b/c",
            "-a.b/c",
            "a_b/c",
            &format!("{name}n"),
            &format!("{prefix}p/a"),
        ] {
            assert_eq!(fields(&with_label(bad, "v")).len(), 1, "{bad}");
            assert!(check_label_key(bad).is_err());
        }
    }

    #[test]
    fn values_are_those_of_kubernetes() {
        let longest = "v".repeat(63);
        for good in ["", "a", "A.b_c-9", &longest] {
            assert_eq!(
                fields(&with_label("k", good)),
                Vec::<String>::new(),
                "{good}"
            );
        }
        for bad in [
            "-",
            "a-",
            "a b",
            "ä",
            "a/b",
            "a\u{7}",
            &format!("{longest}v"),
        ] {
            assert_eq!(fields(&with_label("k", bad)), ["labels.k"], "{bad}");
        }
    }

    /// Goal: the bounds are exact, and each fault says what to do.
    #[test]
    fn bounds_are_exact() {
        let many = |count: usize| Metadata {
            labels: (0..count)
                .map(|n| (format!("k{n}"), String::new()))
                .collect(),
            ..Metadata::default()
        };
        assert_eq!(fields(&many(LABELS_MAX)), Vec::<String>::new());
        assert_eq!(fields(&many(LABELS_MAX + 1)), ["labels"]);
        let described = |description: String| Metadata {
            description,
            ..Metadata::default()
        };
        assert_eq!(fields(&described("ä€".repeat(204))), Vec::<String>::new());
        assert_eq!(fields(&described("x".repeat(1024))), Vec::<String>::new());
        assert_eq!(fields(&described("ä".repeat(513))), ["description"]);
        for control in ["a\nb", "\u{1b}[2J", "a\u{85}"] {
            assert_eq!(fields(&described(control.to_owned())), ["description"]);
        }
        let faults = many(LABELS_MAX + 1).faults();
        assert!(
            faults[0].to_string().contains("at most 64 labels"),
            "{faults:?}"
        );
        let long = with_label(&"x".repeat(1000), &"y".repeat(1000)).faults();
        assert!(long[0].to_string().len() < 600, "{long:?}");
    }

    /// Goal: whatever is written, few faults are reported, each in printable ASCII of a bounded length, and
    /// two keys that differ have fields that differ.
    #[test]
    fn faults_are_few_and_bounded() {
        let key = |number: usize| format!("{number:02}{}", "\u{10ffff}".repeat(255));
        let keys: Vec<String> = (0..LABELS_MAX).map(key).collect();
        let metadata = Metadata {
            labels: keys.iter().map(|k| (k.clone(), k.clone())).collect(),
            description: "\u{1b}".repeat(DESCRIPTION_BYTES_MAX),
            protected: false,
        };
        let change = MetadataChange {
            set_labels: metadata.labels.clone(),
            remove_labels: keys.into_iter().collect(),
            ..MetadataChange::default()
        };
        for faults in [metadata.faults(), change.faults()] {
            assert_eq!(faults.len(), METADATA_FAULTS_MAX);
            for fault in faults {
                let text = fault.to_string();
                assert!(text.len() < 1_000, "{text}");
                assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            }
        }
        let prefix = "p".repeat(LABEL_PREFIX_LENGTH_MAX);
        let long = |last| format!("{prefix}/{}{last}", "n".repeat(LABEL_NAME_LENGTH_MAX - 1));
        let metadata = Metadata {
            labels: labels(&[
                (&long("a"), "-"),
                (&long("b"), "-"),
                ("a\u{7}", ""),
                ("a<U+0007>", ""),
            ]),
            ..Metadata::default()
        };
        let fields = fields(&metadata);
        assert_eq!(fields[..2], ["labels.a<U+0007>", "labels.a<U+003C>U+0007>"]);
        assert_ne!(fields[2], fields[3]);
    }

    /// Goal: a change touches the keys that it names and nothing else.
    #[test]
    fn changes_are_by_key() {
        let before = Metadata {
            labels: labels(&[("a", "1"), ("b", "2")]),
            description: "text".to_owned(),
            protected: true,
        };
        let none = MetadataChange::default();
        assert!(none.is_empty());
        assert_eq!(before.changed(&none), before);
        let change = MetadataChange {
            set_labels: labels(&[("b", "3"), ("c", "")]),
            remove_labels: ["a".to_owned(), "absent".to_owned()].into(),
            ..MetadataChange::default()
        };
        assert_eq!(change.faults(), []);
        let after = before.changed(&change);
        assert_eq!(after.labels, labels(&[("b", "3"), ("c", "")]));
        assert_eq!((&*after.description, after.protected), ("text", true));
        let change = MetadataChange {
            description: Some(String::new()),
            protected: Some(false),
            ..MetadataChange::default()
        };
        let after = before.changed(&change);
        assert_eq!(after.labels, before.labels);
        assert_eq!((&*after.description, after.protected), ("", false));
        let both = MetadataChange {
            set_labels: labels(&[("a", "1")]),
            remove_labels: ["a".to_owned(), "b c".to_owned()].into(),
            ..MetadataChange::default()
        };
        let fields: Vec<_> = both.faults().into_iter().map(|f| f.field).collect();
        assert_eq!(fields, ["labels.b c", "labels.a"]);
    }

    /// Goal: what is written stays out of a description of a change.
    #[test]
    fn a_change_is_described_by_its_keys() {
        let change = MetadataChange {
            set_labels: labels(&[("team", "blue"), ("tier", "1")]),
            remove_labels: ["old".to_owned()].into(),
            description: Some("private".to_owned()),
            protected: Some(true),
        };
        assert_eq!(
            change.describe(),
            "protected=true description=7 bytes set_labels=team,tier remove_labels=old"
        );
        assert_eq!(MetadataChange::default().describe(), "");
    }

    #[test]
    fn selectors_match_a_key_or_a_key_with_its_value() {
        let present = labels(&[("team", "blue"), ("empty", "")]);
        for (text, matches) in [
            ("team", true),
            ("team=blue", true),
            ("team=red", false),
            ("team=", false),
            ("empty=", true),
            ("empty", true),
            ("absent", false),
            ("absent=", false),
        ] {
            let selector: LabelSelector = text.parse().unwrap();
            assert_eq!(selector.matches(&present), matches, "{text}");
            assert_eq!(selector.to_string(), text);
        }
        for bad in ["", "=", "=v", "a b", "a=b=c", "a=b c"] {
            assert!(bad.parse::<LabelSelector>().is_err(), "{bad}");
        }
    }
}
