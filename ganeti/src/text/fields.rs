//! Takes a line apart: fields with their columns, and the words and numbers in them.
//!
//! Knows nothing of sections or of other lines. A number is plain decimal: no spaces, no plus
//! sign, no `NaN`, and small enough that sums of millions of them fit.

use super::error::{Error, Fault};
use super::{AllocationPolicy, DiskTemplate, Spec, Status};

/// The greatest number in a field: sums over a million lines stay exact in a double.
pub(super) const GREATEST: i64 = 1 << 40;

/// A line and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) number: usize,
    pub(super) text: &'a str,
}

/// A field of a line and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) text: &'a str,
}

impl<'a> Line<'a> {
    /// Returns the fields between the `|`.
    pub(super) fn fields(&self) -> Vec<Field<'a>> {
        let whole = Field {
            line: self.number,
            column: 1,
            text: self.text,
        };
        whole.split('|')
    }
}

impl<'a> Field<'a> {
    /// Returns the parts between a separator, an empty text as one empty part.
    pub(super) fn split(&self, separator: char) -> Vec<Field<'a>> {
        let mut column = self.column;
        let mut parts = Vec::new();
        for text in self.text.split(separator) {
            parts.push(Field {
                line: self.line,
                column,
                text,
            });
            column += text.chars().count() + 1;
        }
        parts
    }

    pub(super) fn error(&self, fault: Fault) -> Error {
        Error {
            line: self.line,
            column: self.column,
            fault,
        }
    }

    /// Returns the text, which must not be empty.
    pub(super) fn name(&self, field: &'static str) -> Result<String, Error> {
        if self.text.is_empty() {
            return Err(self.error(Fault::Empty { field }));
        }
        Ok(self.text.to_owned())
    }

    /// Returns the entries of a comma-separated list; an empty field has none.
    pub(super) fn list(&self) -> Vec<String> {
        self.text
            .split(',')
            .filter(|entry| !entry.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Returns a whole number within its bounds.
    pub(super) fn integer(&self, field: &'static str, least: i64) -> Result<i64, Error> {
        let digits = self.text.strip_prefix('-').unwrap_or(self.text);
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let expected = "a whole number";
        if !plain {
            return Err(self.not_a_number(field, expected));
        }
        let value = self.text.parse::<i64>().map_err(|_| self.too_great(field));
        let value = value?;
        if value < least {
            return Err(self.too_small(field, least));
        }
        if value > GREATEST {
            return Err(self.too_great(field));
        }
        Ok(value)
    }

    /// Returns a number that is not negative, with or without a fraction.
    pub(super) fn real(&self, field: &'static str) -> Result<f64, Error> {
        let expected = "a number";
        let plain = self
            .text
            .bytes()
            .all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'e' | b'E'));
        let begins = self.text.trim_start_matches('-').bytes().next();
        if !plain || !begins.is_some_and(|b| b.is_ascii_digit()) {
            return Err(self.not_a_number(field, expected));
        }
        let value = self.text.parse::<f64>();
        let value = value.map_err(|_| self.not_a_number(field, expected))?;
        if value < 0.0 {
            return Err(self.too_small(field, 0));
        }
        if value > GREATEST as f64 {
            return Err(self.too_great(field));
        }
        Ok(value)
    }

    /// Returns whether the field is `Y`; anything but `Y` and `N` is refused.
    pub(super) fn yes(&self, field: &'static str) -> Result<bool, Error> {
        match self.text {
            "Y" => Ok(true),
            "N" => Ok(false),
            _ => Err(self.unknown_word(field, "Y and N")),
        }
    }

    pub(super) fn allocation_policy(&self) -> Result<AllocationPolicy, Error> {
        match self.text {
            "preferred" => Ok(AllocationPolicy::Preferred),
            "last_resort" => Ok(AllocationPolicy::LastResort),
            "unallocable" => Ok(AllocationPolicy::Unallocable),
            _ => Err(self.unknown_word(
                "allocation policy",
                "preferred, last_resort and unallocable",
            )),
        }
    }

    pub(super) fn status(&self) -> Result<Status, Error> {
        Status::from_word(self.text).ok_or_else(|| {
            self.unknown_word(
                "status",
                "running, ADMIN_down, ADMIN_offline, ERROR_up, ERROR_down, ERROR_nodedown, \
                 ERROR_nodeoffline, ERROR_wrongnode and USER_down",
            )
        })
    }

    pub(super) fn disk_template(&self) -> Result<DiskTemplate, Error> {
        DiskTemplate::from_word(self.text).ok_or_else(|| {
            self.unknown_word(
                "disk template",
                "diskless, file, sharedfile, plain, blockdev, drbd, rbd, ext and gluster",
            )
        })
    }

    pub(super) fn spec(&self) -> Result<Spec, Error> {
        let values = self.split(',');
        let [memory, cpus, disk_size, disk_count, nic_count, spindle_use] = values[..] else {
            let found = values.len();
            return Err(self.error(Fault::SpecCount { actual: found }));
        };
        Ok(Spec {
            memory: memory.integer("memory of a specification", 0)?,
            cpus: cpus.integer("CPUs of a specification", 0)?,
            disk_size: disk_size.integer("disk size of a specification", 0)?,
            disk_count: disk_count.integer("disks of a specification", 0)?,
            nic_count: nic_count.integer("network cards of a specification", 0)?,
            spindle_use: spindle_use.integer("spindle use of a specification", 0)?,
        })
    }

    fn not_a_number(&self, field: &'static str, expected: &'static str) -> Error {
        self.error(Fault::NotANumber {
            field,
            value: shortened(self.text),
            expected,
        })
    }

    fn too_small(&self, field: &'static str, least: i64) -> Error {
        self.error(Fault::TooSmall {
            field,
            value: shortened(self.text),
            least,
        })
    }

    fn too_great(&self, field: &'static str) -> Error {
        self.error(Fault::TooGreat {
            field,
            value: shortened(self.text),
            most: GREATEST,
        })
    }

    fn unknown_word(&self, field: &'static str, known: &'static str) -> Error {
        self.error(Fault::UnknownWord {
            field,
            value: shortened(self.text),
            known,
        })
    }
}

/// Returns the beginning of a text, so that no message grows with what was sent.
pub(super) fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(MOST).collect();
    format!("{beginning}…")
}

impl Status {
    /// Every status with the word that stands for it.
    const WORDS: [(Status, &'static str); 9] = [
        (Status::Running, "running"),
        (Status::AdminDown, "ADMIN_down"),
        (Status::AdminOffline, "ADMIN_offline"),
        (Status::ErrorUp, "ERROR_up"),
        (Status::ErrorDown, "ERROR_down"),
        (Status::ErrorNodeDown, "ERROR_nodedown"),
        (Status::ErrorNodeOffline, "ERROR_nodeoffline"),
        (Status::ErrorWrongNode, "ERROR_wrongnode"),
        (Status::UserDown, "USER_down"),
    ];

    /// Returns the status that a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Status> {
        let found = Self::WORDS.iter().find(|(_, known)| *known == word);
        found.map(|(status, _)| *status)
    }

    /// Returns the word of the text format.
    #[must_use]
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(status, _)| *status == self);
        found.expect("every status has its word").1
    }
}

impl DiskTemplate {
    /// Every disk template with the word that stands for it.
    const WORDS: [(DiskTemplate, &'static str); 9] = [
        (DiskTemplate::Diskless, "diskless"),
        (DiskTemplate::File, "file"),
        (DiskTemplate::SharedFile, "sharedfile"),
        (DiskTemplate::Plain, "plain"),
        (DiskTemplate::BlockDevice, "blockdev"),
        (DiskTemplate::Drbd, "drbd"),
        (DiskTemplate::Rbd, "rbd"),
        (DiskTemplate::External, "ext"),
        (DiskTemplate::Gluster, "gluster"),
    ];

    /// All disk templates.
    pub const ALL: [DiskTemplate; 9] = [
        DiskTemplate::Diskless,
        DiskTemplate::File,
        DiskTemplate::SharedFile,
        DiskTemplate::Plain,
        DiskTemplate::BlockDevice,
        DiskTemplate::Drbd,
        DiskTemplate::Rbd,
        DiskTemplate::External,
        DiskTemplate::Gluster,
    ];

    /// Returns the disk template that a word stands for.
    #[must_use]
    pub fn from_word(word: &str) -> Option<DiskTemplate> {
        let found = Self::WORDS.iter().find(|(_, known)| *known == word);
        found.map(|(template, _)| *template)
    }

    /// Returns the word of the text format.
    #[must_use]
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(template, _)| *template == self);
        found.expect("every disk template has its word").1
    }
}
