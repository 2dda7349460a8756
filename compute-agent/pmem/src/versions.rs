//! The oldest kernel and programs that support guests with persistent memory. Pure.
//!
//! | part | at least | source |
//! |---|---|---|
//! | Linux | 4.18 | the kernel |
//! | ndctl | 62 | the program |
//! | daxio | 1.6 | the program |
//! | QEMU | 3.1 | the hypervisor; the caller knows it |
//! | libvirt | 5.0 | the hypervisor; the caller knows it |
//!
//! Invariant: a part that was not queried, does not reply, or replies without a version counts
//! as too old; the reason states which of these it was.

use std::collections::BTreeMap;
use std::fmt;

/// How much of a reply is repeated in a message, in characters.
const QUOTED_MAX: usize = 80;

/// What has a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The kernel.
    Linux,
    /// The program that lists namespaces.
    Ndctl,
    /// The program that erases them.
    Daxio,
    /// What executes guests.
    Qemu,
    /// What drives QEMU.
    Libvirt,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Linux,
        Self::Ndctl,
        Self::Daxio,
        Self::Qemu,
        Self::Libvirt,
    ];

    /// Returns the oldest version that will do.
    #[must_use]
    pub fn floor(self) -> Version {
        let numbers: &[u64] = match self {
            Self::Linux => &[4, 18],
            Self::Ndctl => &[62],
            Self::Daxio => &[1, 6],
            Self::Qemu => &[3, 1],
            Self::Libvirt => &[5, 0],
        };
        Version(numbers.to_vec())
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Linux => "Linux",
            Self::Ndctl => "ndctl",
            Self::Daxio => "daxio",
            Self::Qemu => "QEMU",
            Self::Libvirt => "libvirt",
        })
    }
}

/// Numbers between dots. `4.18` is not older than `4.18.0`.
#[derive(Clone, Debug)]
pub struct Version(Vec<u64>);

impl Version {
    /// Reads the first thing in a text that looks like a version: digits, and more of them after
    /// dots. What comes before and behind, as `ndctl v` or `-28-cloud-amd64`, is passed over.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        let start = text.find(|c: char| c.is_ascii_digit())?;
        let rest = &text[start..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let digits = &rest[..end.unwrap_or(rest.len())];
        let numbers = digits.split('.').take_while(|part| !part.is_empty());
        let numbers: Result<Vec<u64>, _> = numbers.take(8).map(str::parse).collect();
        numbers.ok().map(Self)
    }

    /// The numbers without zeros at the end.
    fn significant(&self) -> &[u64] {
        let length = self.0.iter().rposition(|number| *number != 0);
        &self.0[..length.map_or(0, |last| last + 1)]
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.significant() == other.significant()
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.significant().cmp(other.significant())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, number) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(f, "{dot}{number}")?;
        }
        Ok(())
    }
}

/// The reply of a part to the query for its version, or why there is none.
pub type Answer = Result<String, String>;

/// The versions of the parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// What each answered.
    pub answers: BTreeMap<Part, Answer>,
}

/// A part that will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The part.
    pub part: Part,
    /// What is needed.
    pub needed: Version,
    /// What there is.
    pub actual: Lacking,
}

/// What there is of a part that will not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// An older version.
    Old(Version),
    /// It was not queried.
    Unknown,
    /// It did not reply; why.
    Silent(String),
    /// It replied something else.
    Odd(String),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            part,
            needed,
            actual,
        } = self;
        match actual {
            Lacking::Old(found) => write!(f, "{part} is {found}; {needed} or newer is needed"),
            Lacking::Unknown => {
                write!(
                    f,
                    "the version of {part} is unknown; {needed} or newer is needed"
                )
            }
            Lacking::Silent(why) => write!(f, "{part} {needed} or newer is needed: {why}"),
            Lacking::Odd(text) => write!(
                f,
                "{part} {needed} or newer is needed, and {text:?} is no version"
            ),
        }
    }
}

/// Why guests cannot be assigned persistent memory on this host: every part that is too old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// The parts; at least one.
    pub lacks: Vec<Lack>,
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, lack) in self.lacks.iter().enumerate() {
            let between = if index == 0 { "" } else { "; " };
            write!(f, "{between}{lack}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Withheld {}

impl Versions {
    /// Adds what a part answered.
    #[must_use]
    pub fn with(mut self, part: Part, answer: Answer) -> Self {
        self.answers.insert(part, answer);
        self
    }

    /// Adds the hypervisor's versions, as it reports them. For one that runs without such a part the
    /// caller passes that part's minimum.
    #[must_use]
    pub fn with_hypervisor(self, qemu: &str, libvirt: &str) -> Self {
        self.with(Part::Qemu, Ok(qemu.to_owned()))
            .with(Part::Libvirt, Ok(libvirt.to_owned()))
    }

    /// Checks all parts.
    ///
    /// # Errors
    ///
    /// Names every part that is too old or unknown, with its version and the minimum.
    pub fn check(&self) -> Result<(), Withheld> {
        self.check_parts(&Part::ALL)
    }

    /// Checks those parts alone.
    ///
    /// # Errors
    ///
    /// As [`Self::check`].
    pub fn check_parts(&self, parts: &[Part]) -> Result<(), Withheld> {
        let lacks: Vec<Lack> = parts.iter().filter_map(|part| self.lack(*part)).collect();
        if lacks.is_empty() {
            Ok(())
        } else {
            Err(Withheld { lacks })
        }
    }

    fn lack(&self, part: Part) -> Option<Lack> {
        let needed = part.floor();
        let actual = match self.answers.get(&part) {
            None => Lacking::Unknown,
            Some(Err(why)) => Lacking::Silent(why.clone()),
            Some(Ok(text)) => match Version::find(text) {
                None => Lacking::Odd(text.trim().chars().take(QUOTED_MAX).collect()),
                Some(version) if version < needed => Lacking::Old(version),
                Some(_) => return None,
            },
        };
        Some(Lack {
            part,
            needed,
            actual,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        for (text, expected) in [
            ("6.1.0-28-cloud-amd64\n", "6.1.0"),
            ("4.18.0-553.el8_10.x86_64", "4.18.0"),
            ("76.1", "76.1"),
            ("ndctl 72.1+", "72.1"),
            ("78.", "78"),
            ("v61.2-1", "61.2"),
            ("1.12.1", "1.12.1"),
            ("daxio 1.13.1", "1.13.1"),
            ("1.6+git3.gdeadbee", "1.6"),
            ("2.1.0-rc1", "2.1.0"),
            ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)", "7.2.22"),
            ("libvirtd (libvirt) 9.0.0", "9.0.0"),
        ] {
            let found = Version::find(text).map(|version| version.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{text:?}");
        }
        for text in ["", "unknown", "v", "99999999999999999999999"] {
            assert_eq!(Version::find(text), None, "{text:?}");
        }
    }

    #[test]
    fn versions_are_ordered_as_numbers() {
        let version = |text: &str| Version::find(text).unwrap();
        for (older, newer) in [
            ("4.9", "4.18"),
            ("61.99", "62"),
            ("1.6", "1.6.1"),
            ("1.6", "1.10"),
        ] {
            assert!(version(older) < version(newer), "{older} {newer}");
        }
        assert_eq!(version("5"), version("5.0.0"));
    }

    fn found(answers: [(Part, &str); 5]) -> Versions {
        answers
            .iter()
            .fold(Versions::default(), |versions, (part, text)| {
                versions.with(*part, Ok((*text).to_owned()))
            })
    }

    #[test]
    fn the_floor_itself_will_do() {
        let floors = Part::ALL.map(|part| (part, part.floor().to_string()));
        let floors = floors.each_ref().map(|(part, text)| (*part, text.as_str()));
        assert_eq!(found(floors).check(), Ok(()));
    }

    #[test]
    fn everything_that_will_not_do_is_named() {
        let versions = found([
            (Part::Linux, "4.17.19"),
            (Part::Ndctl, "61.2"),
            (Part::Daxio, "1.5.1"),
            (Part::Qemu, "3.0.1"),
            (Part::Libvirt, "4.10.0"),
        ]);
        assert_eq!(
            versions.check().unwrap_err().to_string(),
            "Linux is 4.17.19; 4.18 or newer is needed; ndctl is 61.2; 62 or newer is needed; \
             daxio is 1.5.1; 1.6 or newer is needed; QEMU is 3.0.1; 3.1 or newer is needed; \
             libvirt is 4.10.0; 5.0 or newer is needed"
        );
        let versions = Versions::default()
            .with(Part::Linux, Ok("6.1".into()))
            .with(Part::Ndctl, Err("there is no program ndctl".into()))
            .with(Part::Daxio, Ok("hello\n".into()))
            .with(Part::Qemu, Ok("7.2".into()));
        assert_eq!(
            versions.check().unwrap_err().to_string(),
            "ndctl 62 or newer is needed: there is no program ndctl; daxio 1.6 or newer is \
             needed, and \"hello\" is no version; the version of libvirt is unknown; 5.0 or \
             newer is needed"
        );
        assert_eq!(versions.check_parts(&[Part::Linux, Part::Qemu]), Ok(()));
    }
}
