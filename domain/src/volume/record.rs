//! A volume as the cluster records it: what was requested, and its replicas with their lives.
//!
//! ```text
//! CREATING ──created──▶ READY ──delete──▶ DELETING ──deleted──▶ gone
//!     └──────failed──▶ gone     (delete: DELETING, since its host may have made it)
//! ```
//!
//! Invariant: either all replicas of a volume are DELETING or none is, and there is one at least. A
//! replica takes from its region until its host reports that it is removed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::report::Outcome;
use super::{DeviceMode, Extent, Taken, cut};
use crate::id::{ConsumerId, Generation, TimeMs};
use crate::name::{HostName, RegionName, VolumeId};
use crate::ownership::Ownership;
use crate::topology::CellId;

/// The longest name that people give to a volume, in bytes.
pub const DISPLAY_NAME_LENGTH_MAX: usize = 128;

/// The longest reason why a volume could not be made or removed, in bytes.
pub const FAILURE_LENGTH_MAX: usize = 512;

/// The most replicas of a volume.
pub const REPLICAS_MAX: usize = 256;

/// The most volumes of one host.
pub const HOST_VOLUMES_MAX: usize = 4096;

/// The most volumes of a cluster.
pub const VOLUMES_MAX: usize = 262_144;

/// How much of the name stands at the beginning of an id.
const PREFIX_LENGTH_MAX: usize = 6;

/// What stands there where nothing of the name can.
const PREFIX: &str = "volume";

/// Why a text is not what a volume is called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a volume has 1 to {DISPLAY_NAME_LENGTH_MAX} bytes and no control characters")]
pub struct InvalidDisplayName;

/// What people call a volume. Of those that are not being deleted no two have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DisplayName(Arc<str>);

impl DisplayName {
    /// Returns the name after checking it.
    ///
    /// # Errors
    ///
    /// It is empty, too long or holds control characters.
    pub fn new(text: &str) -> Result<Self, InvalidDisplayName> {
        let is_valid = (1..=DISPLAY_NAME_LENGTH_MAX).contains(&text.len())
            && !text.chars().any(char::is_control);
        is_valid
            .then(|| Self(text.into()))
            .ok_or(InvalidDisplayName)
    }

    /// Returns the text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of a volume of this name: a few characters by which people recognise it, and
    /// a number that is never drawn twice. It can name a namespace and a logical volume.
    #[must_use]
    pub fn id(&self, number: Uuid) -> VolumeId {
        let known = self.0.chars().map(|c| c.to_ascii_lowercase());
        let known = known.filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        let mut prefix: String = known.take(PREFIX_LENGTH_MAX).collect();
        if prefix.is_empty() {
            prefix.push_str(PREFIX);
        }
        let id = format!("{prefix}-{}", number.simple());
        VolumeId::new(&id).expect("39 letters, digits and a dash are a name")
    }
}

impl fmt::Display for DisplayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for DisplayName {
    type Error = InvalidDisplayName;

    fn try_from(text: String) -> Result<Self, InvalidDisplayName> {
        Self::new(&text)
    }
}

impl From<DisplayName> for String {
    fn from(name: DisplayName) -> Self {
        name.0.to_string()
    }
}

/// Returns the consumer that takes what a volume of this id takes; nothing for what is no id of
/// ours.
#[must_use]
pub fn consumer_of(id: &VolumeId) -> Option<ConsumerId> {
    let (_, number) = id.as_str().rsplit_once('-')?;
    let uuid = Uuid::try_parse(number).ok()?;
    (number.len() == uuid::fmt::Simple::LENGTH).then_some(ConsumerId(uuid))
}

/// How long a volume lives, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// On one host until it is deleted.
    Persistent,
    /// On one host as long as what it was made for.
    Ephemeral,
    /// On several hosts, with contents of its own on each.
    Cache,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Persistent => "persistent",
            Self::Ephemeral => "ephemeral",
            Self::Cache => "cache",
        })
    }
}

/// Where a replica is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// It is claimed; its host is to make it.
    Creating,
    /// It is there.
    Ready,
    /// Its host is to remove and erase it.
    Deleting,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Creating => "CREATING",
            Self::Ready => "READY",
            Self::Deleting => "DELETING",
        })
    }
}

/// What a volume's host has to know of what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Parameters {
    /// Whether its contents are overwritten when it is deleted.
    pub erase_after: bool,
    /// Whether its file system is in an image file that Kata Containers can hand to a guest.
    pub kata_containers: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            erase_after: true,
            kata_containers: false,
        }
    }
}

/// A volume on one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replica {
    /// The host.
    pub host: HostName,
    /// The region.
    pub region: RegionName,
    /// The cell of the region, where the host reported it.
    pub cell: Option<CellId>,
    /// How it is made. It stays so, whatever mode the region is in later.
    pub mode: DeviceMode,
    /// How much of the region it takes, in bytes.
    pub gross_bytes: u64,
    /// How much of it can be used, in bytes.
    pub size_bytes: u64,
    /// Where it lies; only in mode direct. Absent there too once it turned out that it has no
    /// space.
    pub extent: Option<Extent>,
    /// Whether its host reported its offset. Until then `extent` is the planned one.
    pub placed: bool,
    /// Where it is in its life.
    pub phase: Phase,
    /// The revision of its claim: replicas of one region are made in this order.
    pub sequence: u64,
    /// How much of it is erased, in bytes, as its agent last reported.
    pub erased_bytes: u64,
    /// What was wrong last when its host tried to make or to remove it; empty where nothing was.
    pub failure: String,
    /// How often that failed.
    pub failures: u32,
}

impl Replica {
    /// Returns what it takes of its region; nothing where it turned out to have no space.
    #[must_use]
    pub fn taken(&self) -> Option<Taken> {
        if self.mode == DeviceMode::Direct && self.extent.is_none() {
            return None;
        }
        Some(Taken {
            gross_bytes: self.gross_bytes,
            extent: self.extent,
        })
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Volume {
    /// Which; never used again.
    pub id: VolumeId,
    /// What people call it.
    pub display_name: DisplayName,
    /// How long it lives, and where.
    pub kind: Kind,
    /// How much was requested at least, in bytes.
    pub required_bytes: u64,
    /// What its hosts have to know.
    pub parameters: Parameters,
    /// Where it is, in order of the hosts' names.
    pub replicas: Vec<Replica>,
    /// When it was claimed.
    pub created_at: TimeMs,
    /// Changes with every change.
    pub generation: Generation,
    /// Its project and its creator.
    #[serde(flatten)]
    pub ownership: Ownership,
}

/// What became of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing.
    Same,
    /// It is so now.
    Changed(Box<Volume>),
    /// Nothing is left of it.
    Gone,
}

impl Volume {
    /// Returns whether it is to be removed. Its name is free then.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.any(|replica| replica.phase == Phase::Deleting)
    }

    /// Returns whether it is there on every host.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let mut replicas = self.replicas.iter();
        replicas.all(|replica| replica.phase == Phase::Ready)
    }

    /// Returns how much can be used of its smallest replica, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let sizes = self.replicas.iter().map(|replica| replica.size_bytes);
        sizes.min().unwrap_or(0)
    }

    /// Returns what is of it on a host.
    #[must_use]
    pub fn on(&self, host: &HostName) -> Option<&Replica> {
        self.replicas.iter().find(|replica| replica.host == *host)
    }

    /// Returns it as it is to be removed.
    #[must_use]
    pub fn deleted(&self) -> Self {
        let mut after = self.clone();
        for replica in &mut after.replicas {
            if replica.phase != Phase::Deleting {
                replica.phase = Phase::Deleting;
                replica.erased_bytes = 0;
                replica.failure.clear();
                replica.failures = 0;
            }
        }
        after.generation = self.generation.next();
        after
    }

    /// Returns it without what is on a host.
    #[must_use]
    pub fn without(&self, host: &HostName) -> After {
        let mut after = self.clone();
        after.replicas.retain(|replica| replica.host != *host);
        if after.replicas.is_empty() {
            return After::Gone;
        }
        after.generation = self.generation.next();
        After::Changed(Box::new(after))
    }

    /// Returns it as it is to be removed from a host that is none of the cluster's any more: if
    /// that comes back, it is instructed.
    #[must_use]
    pub fn left_on(&self, host: &HostName) -> Self {
        let mut after = self.clone();
        for replica in after.replicas.iter_mut().filter(|r| r.host == *host) {
            replica.failure = cut(format!(
                "host {host} was removed from the cluster; it is erased there if the host comes back"
            ));
            replica.failures = 1;
        }
        after.generation = self.generation.next();
        after
    }

    /// Returns it as a host that was removed from the cluster and is back is to remove it.
    #[must_use]
    pub fn deleted_again(&self, host: &HostName) -> Self {
        let mut after = self.clone();
        for replica in after.replicas.iter_mut().filter(|r| r.host == *host) {
            replica.failure.clear();
            replica.failures = 0;
        }
        after.generation = self.generation.next();
        after
    }

    /// The reason for each part that is to be removed.
    fn say(&mut self, why: &str) {
        for replica in &mut self.replicas {
            replica.failure = cut(why.to_owned());
            replica.failures = 1;
        }
    }

    /// Returns what becomes of it by the report of a host's agent. What is out of date is passed
    /// over.
    #[must_use]
    pub fn after(&self, host: &HostName, outcome: &Outcome) -> After {
        let Some(at) = self.replicas.iter().position(|r| r.host == *host) else {
            return After::Same;
        };
        let is_deleting = self.replicas[at].phase == Phase::Deleting;
        if let (Outcome::Deleted, true) = (outcome, is_deleting) {
            return self.without(host);
        }
        if let (Outcome::Failed { why }, Phase::Creating) = (outcome, self.replicas[at].phase) {
            // All or nothing: a cache on fewer hosts than were requested is none.
            return match self.without(host) {
                After::Changed(rest) => {
                    let mut rest = rest.deleted();
                    rest.say(&format!("host {host} cannot make its part: {why}"));
                    After::Changed(Box::new(rest))
                }
                other @ (After::Same | After::Gone) => other,
            };
        }
        let mut after = self.clone();
        after.replicas[at].take(outcome);
        if after.replicas == self.replicas {
            return After::Same;
        }
        after.generation = self.generation.next();
        After::Changed(Box::new(after))
    }
}

impl Replica {
    fn take(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Created { size_bytes, extent } => {
                let extent_bytes = extent.filter(|extent| extent.length_bytes > 0);
                match (self.mode, extent_bytes) {
                    (DeviceMode::Lvm, Some(_) | None) => {}
                    (DeviceMode::Direct, Some(extent)) => {
                        self.gross_bytes = extent.length_bytes;
                        self.extent = Some(extent);
                        self.placed = true;
                    }
                    // A volume at an unknown offset is not made: it could be given to others.
                    (DeviceMode::Direct, None) => return,
                }
                self.size_bytes = *size_bytes;
                if self.phase == Phase::Creating {
                    self.phase = Phase::Ready;
                    self.failure.clear();
                    self.failures = 0;
                }
            }
            Outcome::Erasing { erased_bytes } if self.phase == Phase::Deleting => {
                self.erased_bytes = *erased_bytes;
            }
            Outcome::Delayed { why } if self.phase != Phase::Ready => {
                self.failure.clone_from(why);
                self.failures = self.failures.saturating_add(1);
            }
            Outcome::Erasing { .. }
            | Outcome::Delayed { .. }
            | Outcome::Failed { .. }
            | Outcome::Deleted => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_ids_name_devices() {
        for good in ["a", "pvc-4711", "ü", "a b/c", &"x".repeat(128)] {
            assert_eq!(DisplayName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a\nb", "\0", "\u{85}", &"x".repeat(129)] {
            assert!(DisplayName::new(bad).is_err(), "{bad:?}");
        }
        let number = Uuid::from_u128(0x1f);
        let id = |name: &str| DisplayName::new(name).unwrap().id(number).to_string();
        assert_eq!(id("PVC-4711-x"), "pvc471-0000000000000000000000000000001f");
        assert_eq!(id("ü/"), "volume-0000000000000000000000000000001f");
        assert_eq!(id(&"x".repeat(128)).len(), 39);
        for name in ["a", "--", "a-b-c"] {
            let id = DisplayName::new(name).unwrap().id(number);
            assert_eq!(consumer_of(&id), Some(ConsumerId(number)));
        }
        for strange in ["a", "a-1f", "a-0000000000000000000000000000001g"] {
            assert_eq!(consumer_of(&VolumeId::new(strange).unwrap()), None);
        }
    }

    fn volume(phases: &[Phase]) -> Volume {
        let name = DisplayName::new("v").unwrap();
        let replica = |(at, phase): (usize, &Phase)| Replica {
            host: HostName::new(&format!("h{at}")).unwrap(),
            region: RegionName::new("r0").unwrap(),
            cell: None,
            mode: DeviceMode::Direct,
            gross_bytes: 10,
            size_bytes: 9,
            extent: Some(Extent {
                offset_bytes: 0,
                length_bytes: 10,
            }),
            placed: false,
            phase: *phase,
            sequence: 1,
            erased_bytes: 0,
            failure: String::new(),
            failures: 0,
        };
        Volume {
            id: name.id(Uuid::nil()),
            display_name: name,
            kind: Kind::Cache,
            required_bytes: 8,
            parameters: Parameters::default(),
            replicas: phases.iter().enumerate().map(replica).collect(),
            created_at: TimeMs(1),
            generation: Generation(1),
            ownership: Ownership::default(),
        }
    }

    fn outcomes() -> Vec<Outcome> {
        vec![
            Outcome::Created {
                size_bytes: 7,
                extent: Some(Extent {
                    offset_bytes: 20,
                    length_bytes: 12,
                }),
            },
            Outcome::Failed { why: "x".into() },
            Outcome::Erasing { erased_bytes: 3 },
            Outcome::Delayed { why: "y".into() },
            Outcome::Deleted,
        ]
    }

    /// Goal: every phase by every report of an agent, as the drawing has it.
    #[test]
    fn replicas_live_as_drawn() {
        use Phase::{Creating, Deleting, Ready};
        let host = HostName::new("h0").unwrap();
        let phase = |after: After| match after {
            After::Same => "same".to_owned(),
            After::Changed(volume) => volume.replicas[0].phase.to_string(),
            After::Gone => "gone".to_owned(),
        };
        let expected = [
            (Creating, ["READY", "gone", "same", "CREATING", "same"]),
            (Ready, ["READY", "same", "same", "same", "same"]),
            (
                Deleting,
                ["DELETING", "same", "DELETING", "DELETING", "gone"],
            ),
        ];
        for (before, expected) in expected {
            let all = outcomes();
            let after = all.iter().map(|o| phase(volume(&[before]).after(&host, o)));
            assert_eq!(after.collect::<Vec<_>>(), expected, "{before}");
        }
        let stranger = HostName::new("h9").unwrap();
        for outcome in outcomes() {
            let after = volume(&[Creating]).after(&stranger, &outcome);
            assert_eq!(after, After::Same);
        }
    }

    /// Goal: where a volume really lies counts, and so does how much of it can be used.
    #[test]
    fn the_true_extent_counts() {
        let host = HostName::new("h0").unwrap();
        let After::Changed(after) = volume(&[Phase::Creating]).after(&host, &outcomes()[0]) else {
            panic!("it is READY now");
        };
        let replica = &after.replicas[0];
        assert_eq!(replica.extent.unwrap().offset_bytes, 20);
        assert_eq!((replica.gross_bytes, replica.size_bytes), (12, 7));
        assert!(replica.placed);
        assert_eq!(after.generation, Generation(2));
        assert_eq!(after.after(&host, &outcomes()[0]), After::Same);
    }

    /// Goal: a cache that cannot be made on one of its hosts is made on none.
    #[test]
    fn caches_are_whole_or_not_at_all() {
        let host = HostName::new("h1").unwrap();
        let before = volume(&[Phase::Ready, Phase::Creating, Phase::Creating]);
        let After::Changed(after) = before.after(&host, &outcomes()[1]) else {
            panic!("something is left to be removed");
        };
        assert_eq!(after.replicas.len(), 2);
        assert!(after.replicas.iter().all(|r| r.phase == Phase::Deleting));
    }
}
