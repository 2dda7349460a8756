//! The record of a volume, written before its device is made and kept until it is removed.
//!
//! ```text
//!            create                 made                 delete
//!   (nothing) ─────▶ CREATING ──────────────▶ READY ─────────────▶ DELETING ───▶ (nothing)
//!                        │ at the next start, or when it is tried again: what was made is
//!                        ▼ removed
//!                    (nothing)
//! ```
//!
//! Invariant: while a device is there, so is its record; only a lost or torn file breaks that, and
//! the record is rebuilt from the device.

use std::collections::BTreeMap;

use berth_domain::name::{RegionName, VolumeId};
use berth_domain::volume::DeviceMode;
use serde_json::{Map, Value, json};

use super::manager::{Device, volume_id};

/// The form of the file; another one is not guessed at.
const FORMAT: u64 = 1;

/// The largest file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// The most that is kept beside a volume, in bytes of names and words.
pub const WORDS_BYTES_MAX: usize = 256 << 10;

/// Words by name.
pub type Words = BTreeMap<String, String>;

/// Where a volume is in its life on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Its device is being made; it was not assigned yet.
    Creating,
    /// It can be used.
    Ready,
    /// It is being wiped and removed.
    Deleting,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Creating, Self::Ready, Self::Deleting];

    fn word(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Deleting => "deleting",
        }
    }
}

/// What is written down of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which.
    pub id: VolumeId,
    /// The region that it lies in.
    pub region: RegionName,
    /// How it is made: kept with each, so that a host can change modes.
    pub mode: DeviceMode,
    /// How much of the region it takes.
    pub gross_bytes: u64,
    /// Where it is in its life.
    pub phase: Phase,
    /// Whether its contents are overwritten when it is deleted.
    pub erase_after: bool,
    /// What it was created with; not interpreted here.
    pub parameters: Words,
    /// Where it is staged and published, and with what; written by the part that speaks CSI.
    /// While there are any, it is in use.
    pub targets: Words,
    /// The VM that owns it, running or not, by the scheduler's last reply; empty: none.
    pub owner: String,
    /// What distinguishes its device from all others; empty while it is being made.
    pub uuid: String,
    /// How much of it is overwritten; counts only for the device of that `uuid`.
    pub erased_bytes: u64,
    /// Whether the file was lost and this was made from the device: its parameters are not known.
    pub is_recovered: bool,
    /// Whether its device may have been handed out as it is, without a file system of ours: what looks
    /// empty may hold data then. Written before the device is handed out.
    pub is_raw: bool,
}

impl Record {
    /// Returns the record of a device whose file was lost.
    #[must_use]
    pub fn recovered(device: &Device) -> Self {
        Self {
            id: device.id.clone(),
            region: device.region.clone(),
            mode: device.mode,
            gross_bytes: device.gross_bytes,
            phase: Phase::Ready,
            // Not known, and the careful one of the two.
            erase_after: true,
            parameters: Words::new(),
            targets: Words::new(),
            owner: String::new(),
            uuid: device.uuid.clone(),
            erased_bytes: 0,
            is_recovered: true,
            // Not known either.
            is_raw: true,
        }
    }

    /// Returns what is written into its file.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let value = json!({
            "format": FORMAT,
            "id": self.id.as_str(),
            "region": self.region.as_str(),
            "mode": self.mode.to_string(),
            "gross_bytes": self.gross_bytes,
            "phase": self.phase.word(),
            "erase_after": self.erase_after,
            "parameters": self.parameters,
            "targets": self.targets,
            "owner": self.owner,
            "uuid": self.uuid,
            "erased_bytes": self.erased_bytes,
            "is_recovered": self.is_recovered,
            "is_raw": self.is_raw,
        });
        let mut bytes = value.to_string().into_bytes();
        bytes.push(b'\n');
        bytes
    }

    /// Returns the format of a file that a newer program has written, if it is such a one.
    pub(crate) fn newer_format(bytes: &[u8]) -> Option<u64> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let format = value.get("format").and_then(Value::as_u64);
        format.filter(|format| *format > FORMAT)
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// What is odd about it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let object = value.as_object().ok_or("it is no object")?;
        let format = number(object, "format")?;
        if format != FORMAT {
            return Err(format!(
                "its format is {format}; this program knows {FORMAT}"
            ));
        }
        let id = volume_id(text(object, "id")?).ok_or("its id is not that of a volume")?;
        let region = RegionName::new(text(object, "region")?).map_err(|e| e.to_string())?;
        let mode = text(object, "mode")?;
        let mode = [DeviceMode::Lvm, DeviceMode::Direct]
            .into_iter()
            .find(|known| known.to_string() == mode)
            .ok_or("its mode is neither lvm nor direct")?;
        let phase = text(object, "phase")?;
        let phase = Phase::ALL
            .into_iter()
            .find(|known| known.word() == phase)
            .ok_or("its phase is unknown")?;
        Ok(Self {
            id,
            region,
            mode,
            gross_bytes: number(object, "gross_bytes")?,
            phase,
            erase_after: flag(object, "erase_after")?,
            parameters: words(object, "parameters")?,
            targets: words(object, "targets")?,
            // Earlier files do not have it.
            owner: match object.contains_key("owner") {
                true => text(object, "owner")?.to_owned(),
                false => String::new(),
            },
            uuid: text(object, "uuid")?.to_owned(),
            erased_bytes: number(object, "erased_bytes")?,
            is_recovered: flag(object, "is_recovered")?,
            // Earlier files do not have it.
            is_raw: match object.contains_key("is_raw") {
                true => flag(object, "is_raw")?,
                false => true,
            },
        })
    }
}

/// Returns how many bytes the words have.
pub(crate) fn words_bytes(words: &Words) -> usize {
    words
        .iter()
        .map(|(name, word)| name.len() + word.len())
        .sum()
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    let value = object.get(key).and_then(Value::as_str);
    value.ok_or_else(|| format!("its {key} is missing or no text"))
}

fn number(object: &Map<String, Value>, key: &str) -> Result<u64, String> {
    let value = object.get(key).and_then(Value::as_u64);
    value.ok_or_else(|| format!("its {key} is missing or no number"))
}

fn flag(object: &Map<String, Value>, key: &str) -> Result<bool, String> {
    let value = object.get(key).and_then(Value::as_bool);
    value.ok_or_else(|| format!("its {key} is missing or neither true nor false"))
}

fn words(object: &Map<String, Value>, key: &str) -> Result<Words, String> {
    let odd = || format!("its {key} are missing or not words by name");
    let value = object.get(key).and_then(Value::as_object).ok_or_else(odd)?;
    let word = |(name, word): (&String, &Value)| {
        let word = word.as_str().ok_or_else(odd)?;
        Ok((name.clone(), word.to_owned()))
    };
    value.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            id: VolumeId::new("data-0123456789abcdef0123456789abcdef").unwrap(),
            region: RegionName::new("region0").unwrap(),
            mode: DeviceMode::Direct,
            gross_bytes: u64::MAX,
            phase: Phase::Deleting,
            erase_after: false,
            parameters: Words::from([("kata".to_owned(), "x\"\n\u{0}ä".to_owned())]),
            targets: Words::from([("/a b".to_owned(), String::new())]),
            owner: "db1".to_owned(),
            uuid: "u".to_owned(),
            erased_bytes: 7,
            is_recovered: false,
            is_raw: true,
        }
    }

    /// Goal: of a volume that was written down before it was kept who had its device, the worst is
    /// assumed.
    #[test]
    fn what_a_file_of_before_does_not_say_is_doubted() {
        let fresh = Record {
            is_raw: false,
            ..record()
        };
        let text = String::from_utf8(fresh.write()).unwrap();
        let before = text.replace("\"is_raw\":false,", "");
        assert_ne!(before, text);
        assert_eq!(Record::read(before.as_bytes()), Ok(record()));
    }

    #[test]
    fn what_is_written_is_read() {
        let record = record();
        assert_eq!(Record::read(&record.write()), Ok(record));
    }

    /// Goal: a file of a program that wrote down no owners is read.
    #[test]
    fn without_an_owner_it_is_nobodys() {
        let mut value: Value = serde_json::from_slice(&record().write()).unwrap();
        value.as_object_mut().unwrap().remove("owner");
        let read = Record::read(value.to_string().as_bytes()).unwrap();
        let owner = String::new();
        assert_eq!(read, Record { owner, ..record() });
    }

    /// Goal: a file that was cut off anywhere is not taken for a whole one.
    #[test]
    fn no_part_of_a_file_is_a_file() {
        let whole = record().write();
        for end in 0..whole.len() - 1 {
            assert!(Record::read(&whole[..end]).is_err(), "{end}");
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_is_refused_or_read_but_never_worse(bytes: Vec<u8>, at: proptest::sample::Index) {
            let _ = Record::read(&bytes);
            let mut whole = record().write();
            let at = at.index(whole.len());
            whole[at] = bytes.first().copied().unwrap_or_default();
            if let Ok(read) = Record::read(&whole) {
                proptest::prop_assert_eq!(Record::read(&read.write()), Ok(read));
            }
        }
    }
}
