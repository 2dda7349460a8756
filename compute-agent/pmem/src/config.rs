//! The agent's option `pmem_namespaces`: `LABEL:NAME[|NAME...][,LABEL:NAME[|NAME...]...]`.
//!
//! What it is not: a look at the host; [`crate::discovery`] is.
//!
//! Invariant: a name stands in it once, and each label is in its one form. A label that stands in
//! several entries has the names of all of them. All faults are reported at once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use berth_domain::pmem::{InvalidLabel, Label};

/// The most namespaces of one host.
pub const NAMESPACES_MAX: usize = 1024;

/// The longest text that is read, in bytes.
pub const TEXT_MAX: usize = 256 * 1024;

/// The longest name of a namespace, in characters. The kernel keeps 63.
pub const NAME_MAX: usize = 63;

/// The most faults that are reported; a text that is something else altogether has one in each entry.
const FAULTS_MAX: usize = 20;

/// How much of an entry is repeated in a message, in characters.
const QUOTED_MAX: usize = 80;

/// The namespaces that guests may be assigned, and the label of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    labels: BTreeMap<String, Label>,
}

impl Configured {
    /// Parses the option. Blanks around entries, labels and names are ignored; a blank text
    /// names no namespaces.
    ///
    /// # Errors
    ///
    /// Names every entry that is invalid, and states what is allowed there.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.len() > TEXT_MAX {
            return Err(Invalid::one(Fault::TooLong { bytes: text.len() }));
        }
        let mut reader = Reader::default();
        if !text.trim().is_empty() {
            for (index, entry) in text.split(',').enumerate() {
                reader.entry(Place::new(index, entry));
            }
        }
        reader.finish()
    }

    /// Returns the label of a namespace, if it is configured.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&Label> {
        self.labels.get(name)
    }

    /// Returns every name with its label, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Label)> {
        self.labels
            .iter()
            .map(|(name, label)| (name.as_str(), label))
    }

    /// Returns how many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

/// An entry of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which one, from 1.
    pub entry: usize,
    /// Its text, cut to a bounded length.
    pub text: String,
}

impl Place {
    fn new(index: usize, text: &str) -> Self {
        Self {
            entry: index + 1,
            text: text.trim().to_owned(),
        }
    }

    /// As it is kept in a fault: what was read in full is repeated in part.
    fn cut(&self) -> Self {
        let mut text: String = self.text.chars().take(QUOTED_MAX).collect();
        if text.len() < self.text.len() {
            text.push('…');
        }
        Self { text, ..*self }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} ({:?})", self.entry, self.text)
    }
}

/// What is wrong in the text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The whole text is too long to be read.
    #[error("it has {bytes} bytes; at most {TEXT_MAX} are read")]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// There is nothing between two commas.
    #[error("{at} is empty; leave the comma out, or write LABEL:NAME[|NAME...]")]
    EmptyEntry {
        /// Where.
        at: Place,
    },
    /// There is nothing that ends the label.
    #[error("{at} has no colon; write LABEL:NAME[|NAME...], as 128G:ns0|ns1")]
    NoColon {
        /// Where.
        at: Place,
    },
    /// There is no such label.
    #[error("{at}: {why}")]
    Label {
        /// Where.
        at: Place,
        /// Which rule it breaks.
        why: InvalidLabel,
    },
    /// A name is not there.
    #[error("{at}: name {position} is empty; write LABEL:NAME[|NAME...], as 128G:ns0|ns1")]
    EmptyName {
        /// Where.
        at: Place,
        /// Which name of the entry, from 1.
        position: usize,
    },
    /// There is no such name.
    #[error(
        "{at}: name {position} ({text:?}) is not valid: 1 to {NAME_MAX} characters out of letters, \
         digits, '.', '_' and '-', beginning with a letter or a digit; name the namespace so with \
         ndctl create-namespace --name"
    )]
    Name {
        /// Where.
        at: Place,
        /// Which name of the entry, from 1.
        position: usize,
        /// The name, cut to a bounded length.
        text: String,
    },
    /// A name is listed twice.
    #[error("namespace {name:?} stands in {first} and again in {second}; leave one of them out")]
    Repeated {
        /// The name.
        name: String,
        /// Where it stands first.
        first: Place,
        /// Where it stands again.
        second: Place,
    },
    /// There are more than any host has.
    #[error("it names more than {NAMESPACES_MAX} namespaces")]
    TooMany,
}

/// Why the text is not a list of namespaces: every fault, in the order of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The faults; at least one.
    pub faults: Vec<Fault>,
    /// How many more there are.
    pub further: usize,
}

impl Invalid {
    fn one(fault: Fault) -> Self {
        Self {
            faults: vec![fault],
            further: 0,
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            let between = if index == 0 { "" } else { "; " };
            write!(f, "{between}{fault}")?;
        }
        match self.further {
            0 => Ok(()),
            further => write!(f, "; and {further} more faults"),
        }
    }
}

impl std::error::Error for Invalid {}

/// What has been read so far.
#[derive(Default)]
struct Reader {
    labels: BTreeMap<String, (Label, Place)>,
    faults: Vec<Fault>,
    is_full: bool,
}

impl Reader {
    fn entry(&mut self, at: Place) {
        if at.text.is_empty() {
            return self.faults.push(Fault::EmptyEntry { at });
        }
        let Some((label, names)) = at.text.split_once(':') else {
            return self.faults.push(Fault::NoColon { at: at.cut() });
        };
        let label = match Label::parse(label.trim()) {
            Ok(label) => Some(label),
            Err(why) => {
                let at = at.cut();
                self.faults.push(Fault::Label { at, why });
                None
            }
        };
        for (index, name) in names.split('|').enumerate() {
            self.name(&at, label.as_ref(), index + 1, name.trim());
        }
    }

    fn name(&mut self, at: &Place, label: Option<&Label>, position: usize, name: &str) {
        let at = at.cut();
        if name.is_empty() {
            return self.faults.push(Fault::EmptyName { at, position });
        }
        if !is_name(name) {
            let text = name.chars().take(NAME_MAX + 1).collect();
            return self.faults.push(Fault::Name { at, position, text });
        }
        let Some(label) = label else { return };
        if self.labels.len() == NAMESPACES_MAX && !self.labels.contains_key(name) {
            self.is_full = true;
            return;
        }
        match self.labels.entry(name.to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert((label.clone(), at));
            }
            Entry::Occupied(taken) => self.faults.push(Fault::Repeated {
                name: name.to_owned(),
                first: taken.get().1.clone(),
                second: at,
            }),
        }
    }

    fn finish(mut self) -> Result<Configured, Invalid> {
        if self.is_full {
            self.faults.push(Fault::TooMany);
        }
        if self.faults.is_empty() {
            let labels = self.labels.into_iter();
            return Ok(Configured {
                labels: labels.map(|(name, (label, _))| (name, label)).collect(),
            });
        }
        let further = self.faults.len().saturating_sub(FAULTS_MAX);
        self.faults.truncate(FAULTS_MAX);
        Err(Invalid {
            faults: self.faults,
            further,
        })
    }
}

/// The rule of all names that people choose, so that a name can stand in a path or a table.
fn is_name(text: &str) -> bool {
    let inside = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    text.len() <= NAME_MAX
        && text.bytes().all(inside)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` and writes it down as `name=LABEL ...`, or its faults.
    fn read(text: &str) -> String {
        match Configured::parse(text) {
            Ok(configured) => {
                let pairs = configured
                    .iter()
                    .map(|(name, label)| format!("{name}={label}"));
                pairs.collect::<Vec<_>>().join(" ")
            }
            Err(invalid) => format!("! {invalid}"),
        }
    }

    #[test]
    fn names_get_the_labels_of_their_entries() {
        for (text, expected) in [
            ("", ""),
            ("  ", ""),
            ("128G:ns0", "ns0=128G"),
            (
                "128G:ns0|ns1|ns2|ns3,262144MB:ns4|ns5,MEDIUM:ns6|ns7",
                "ns0=128G ns1=128G ns2=128G ns3=128G ns4=262144MB ns5=262144MB ns6=MEDIUM \
                 ns7=MEDIUM",
            ),
            // One label in two entries, in two cases: one class.
            ("small:a,SMALL:b", "a=SMALL b=SMALL"),
            (
                " 128g : ns0 | ns1 , x:pmem-1.2_3 ",
                "ns0=128G ns1=128G pmem-1.2_3=X",
            ),
        ] {
            assert_eq!(read(text), expected, "{text:?}");
        }
    }

    #[test]
    fn faults_name_the_entry_its_place_and_what_is_allowed() {
        for (text, expected) in [
            (
                "a:x,,b:y",
                "entry 2 (\"\") is empty; leave the comma out, or write LABEL:NAME[|NAME...]",
            ),
            (
                "a:x,",
                "entry 2 (\"\") is empty; leave the comma out, or write LABEL:NAME[|NAME...]",
            ),
            (
                "ns0|ns1",
                "entry 1 (\"ns0|ns1\") has no colon; write LABEL:NAME[|NAME...], as 128G:ns0|ns1",
            ),
            (
                "a:x, :y",
                "entry 2 (\":y\"): a label is empty; labels are out of letters, digits and _, as \
                 128G or SMALL",
            ),
            (
                "12-8:x",
                "entry 1 (\"12-8:x\"): label \"12-8\" has '-'; labels are out of letters, digits \
                 and _",
            ),
            (
                "a:x|",
                "entry 1 (\"a:x|\"): name 2 is empty; write LABEL:NAME[|NAME...], as 128G:ns0|ns1",
            ),
            (
                "a:",
                "entry 1 (\"a:\"): name 1 is empty; write LABEL:NAME[|NAME...], as 128G:ns0|ns1",
            ),
            (
                "a:b:c",
                "entry 1 (\"a:b:c\"): name 1 (\"b:c\") is not valid: 1 to 63 characters out of \
                 letters, digits, '.', '_' and '-', beginning with a letter or a digit; name the \
                 namespace so with ndctl create-namespace --name",
            ),
            (
                "a:x|y,b:z|x",
                "namespace \"x\" stands in entry 1 (\"a:x|y\") and again in entry 2 (\"b:z|x\"); \
                 leave one of them out",
            ),
            (
                "a:x|x",
                "namespace \"x\" stands in entry 1 (\"a:x|x\") and again in entry 1 (\"a:x|x\"); \
                 leave one of them out",
            ),
        ] {
            assert_eq!(read(text), format!("! {expected}"), "{text:?}");
        }
    }

    #[test]
    fn all_faults_are_told_and_none_at_length() {
        let invalid = Configured::parse("a:x,b,c:x,d-:y").unwrap_err();
        assert_eq!(invalid.faults.len(), 3);
        let invalid = Configured::parse(&",".repeat(1000)).unwrap_err();
        assert_eq!((invalid.faults.len(), invalid.further), (20, 981));
        assert!(invalid.to_string().ends_with("; and 981 more faults"));
        let long = format!("{}:x", "L".repeat(300));
        let said = read(&long);
        assert!(said.contains("a label has 300 characters; at most 233 fit"));
        let long = format!("a:{}", "n".repeat(64));
        assert!(read(&long).contains("is not valid: 1 to 63 characters"));
        let said = read(&"x".repeat(TEXT_MAX + 1));
        assert_eq!(said, "! it has 262145 bytes; at most 262144 are read");
    }

    #[test]
    fn there_are_so_many_namespaces_and_no_more() {
        let names = |count: usize| {
            let names = (0..count).map(|n| format!("n{n}"));
            format!("a:{}", names.collect::<Vec<_>>().join("|"))
        };
        let configured = Configured::parse(&names(NAMESPACES_MAX)).unwrap();
        assert_eq!(configured.len(), NAMESPACES_MAX);
        let said = read(&names(NAMESPACES_MAX + 5));
        assert_eq!(said, "! it names more than 1024 namespaces");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_what_is_read_reads_again(text in "[a-zA-Z0-9:|, _.-]{0,60}") {
            if let Ok(configured) = Configured::parse(&text) {
                let pairs = configured.iter().map(|(name, label)| format!("{label}:{name}"));
                let again = pairs.collect::<Vec<_>>().join(",");
                proptest::prop_assert_eq!(Configured::parse(&again), Ok(configured));
            }
        }

        #[test]
        fn no_text_makes_it_fail(text in "\\PC{0,200}") {
            if let Err(invalid) = Configured::parse(&text) {
                proptest::prop_assert!(!invalid.to_string().is_empty());
            }
        }
    }
}
