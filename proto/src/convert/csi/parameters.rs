//! The parameters of volumes: which keys may come from where, and what they mean. They are those of
//! PMEM-CSI 0.7.
//!
//! Invariant: a key that means nothing in its place is refused, with its name. Only Kubernetes'
//! own keys are passed over.

use std::collections::BTreeMap;

use crate::convert::Invalid;
use crate::convert::csi::quantity;
use crate::convert::field;
use crate::volume::v1::{VolumeKind, VolumeParameters};

/// The most parameters, and the most bytes of a key or a value.
const ENTRIES_MAX: usize = 64;
const LENGTH_MAX: usize = 4096;

/// On how many hosts a cache volume can be.
pub const CACHE_SIZE_MAX: u32 = 10_000;

const MODEL: &str = "persistencyModel";
const CACHE_SIZE: &str = "cacheSize";
const ERASE_AFTER: &str = "eraseafter";
const KATA: &str = "kataContainers";
const SIZE: &str = "size";
const NAME: &str = "name";

/// The lifecycle of a volume that ends with its pod.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// Where parameters come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A storage class: with CreateVolume.
    Class,
    /// A pod: with NodePublishVolume of a volume that is made for it.
    Pod,
    /// What CreateVolume answered: with the other calls.
    Context,
}

/// What a volume is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// How long it lives, and where.
    pub kind: VolumeKind,
    /// On how many hosts it is; 1 unless it is a cache volume.
    pub replicas: u32,
    /// Whether its contents are overwritten when it is deleted.
    pub erase_after: bool,
    /// Whether its file system is in an image file for Kata Containers.
    pub kata_containers: bool,
    /// How large it is to be at least; only from a pod.
    pub size_bytes: Option<u64>,
}

impl Parameters {
    /// Reads parameters.
    ///
    /// # Errors
    ///
    /// When a key is not known there, or a value means nothing; the path names the key.
    pub fn read(origin: Origin, entries: BTreeMap<String, String>) -> Result<Self, Invalid> {
        let what = match origin {
            Origin::Class => "parameters",
            Origin::Pod | Origin::Context => "volume_context",
        };
        let entries = field::text_map(entries, what, ENTRIES_MAX, LENGTH_MAX)?;
        let mut read = Self {
            kind: match origin {
                Origin::Class | Origin::Context => VolumeKind::Persistent,
                Origin::Pod => VolumeKind::Ephemeral,
            },
            replicas: 1,
            erase_after: true,
            kata_containers: false,
            size_bytes: None,
        };
        for (key, value) in &entries {
            let taken = read.take(origin, key, value);
            taken.map_err(|e| e.within(format_args!("{what}[{key:?}]")))?;
        }
        read.check(origin, what, &entries)?;
        Ok(read)
    }

    fn take(&mut self, origin: Origin, key: &str, value: &str) -> Result<(), Invalid> {
        let is_volume = matches!(origin, Origin::Class | Origin::Context);
        match key {
            MODEL if is_volume => self.kind = model(value)?,
            CACHE_SIZE if is_volume => self.replicas = cache_size(value)?,
            ERASE_AFTER => self.erase_after = boolean(value)?,
            KATA => self.kata_containers = boolean(value)?,
            SIZE if origin == Origin::Pod => self.size_bytes = Some(quantity::bytes(value)?),
            NAME if origin == Origin::Context => {}
            _ if is_of_kubernetes(key) => {}
            _ => {
                let known = known(origin).join(", ");
                return Err(Invalid::here(format!(
                    "is not known here; known are {known}"
                )));
            }
        }
        Ok(())
    }

    fn check(
        &self,
        origin: Origin,
        what: &str,
        entries: &BTreeMap<String, String>,
    ) -> Result<(), Invalid> {
        let of = |key: &str| format!("{what}[{key:?}]");
        if entries.contains_key(CACHE_SIZE) && self.kind != VolumeKind::Cache {
            let rule = "goes with persistencyModel=cache alone";
            return Err(Invalid::new(of(CACHE_SIZE), rule));
        }
        if origin == Origin::Pod && self.size_bytes.is_none() {
            return Err(Invalid::new(of(SIZE), "is required"));
        }
        Ok(())
    }

    /// Returns what the volume's other calls are given with it: everything, so that what a default
    /// is may change.
    #[must_use]
    pub fn context(&self, name: &str) -> BTreeMap<String, String> {
        let mut context = BTreeMap::from([
            (NAME.to_owned(), name.to_owned()),
            (ERASE_AFTER.to_owned(), self.erase_after.to_string()),
            (KATA.to_owned(), self.kata_containers.to_string()),
        ]);
        match self.kind {
            VolumeKind::Cache => {
                context.insert(MODEL.to_owned(), "cache".to_owned());
                context.insert(CACHE_SIZE.to_owned(), self.replicas.to_string());
            }
            VolumeKind::Unspecified | VolumeKind::Persistent | VolumeKind::Ephemeral => {
                context.insert(MODEL.to_owned(), "normal".to_owned());
            }
        }
        context
    }

    /// Returns what the volume's host has to know.
    #[must_use]
    pub fn wire(&self) -> VolumeParameters {
        VolumeParameters {
            erase_after: Some(self.erase_after),
            kata_containers: self.kata_containers,
        }
    }
}

/// Returns whether a volume is to be made for a pod; absent where that is not set.
#[must_use]
pub fn requested_ephemeral(context: &BTreeMap<String, String>) -> Option<bool> {
    boolean(context.get(EPHEMERAL)?).ok()
}

/// Returns whether a volume was made by a provisioner, and so not for a pod.
#[must_use]
pub fn is_provisioned(context: &BTreeMap<String, String>) -> bool {
    context.contains_key("storage.kubernetes.io/csiProvisionerIdentity")
}

fn known(origin: Origin) -> &'static [&'static str] {
    match origin {
        Origin::Class => &[MODEL, CACHE_SIZE, ERASE_AFTER, KATA],
        Origin::Pod => &[SIZE, ERASE_AFTER, KATA],
        Origin::Context => &[MODEL, CACHE_SIZE, ERASE_AFTER, KATA, NAME],
    }
}

fn is_of_kubernetes(key: &str) -> bool {
    key.starts_with("csi.storage.k8s.io/") || key == "storage.kubernetes.io/csiProvisionerIdentity"
}

fn model(value: &str) -> Result<VolumeKind, Invalid> {
    match value {
        // The older name of the same.
        "normal" | "none" => Ok(VolumeKind::Persistent),
        "cache" => Ok(VolumeKind::Cache),
        other => {
            let shown = field::shown(other);
            Err(Invalid::here(format!(
                "must be normal or cache, not {shown}"
            )))
        }
    }
}

fn cache_size(value: &str) -> Result<u32, Invalid> {
    let size = value.parse::<u32>().ok();
    size.filter(|size| (1..=CACHE_SIZE_MAX).contains(size))
        .ok_or_else(|| {
            let shown = field::shown(value);
            Invalid::here(format!(
                "must be a number of hosts from 1 to {CACHE_SIZE_MAX}, not {shown}"
            ))
        })
}

/// Reads what Go's `strconv.ParseBool` takes: storage classes were written for it.
fn boolean(value: &str) -> Result<bool, Invalid> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => {
            let shown = field::shown(other);
            Err(Invalid::here(format!("must be true or false, not {shown}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGINS: [Origin; 3] = [Origin::Class, Origin::Pod, Origin::Context];

    fn read(origin: Origin, entries: &[(&str, &str)]) -> Result<Parameters, Invalid> {
        let entries = entries
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Parameters::read(origin, entries.collect())
    }

    /// The table of facts: which key may come from where.
    #[test]
    fn each_key_has_its_places() {
        let (class, pod, context) = (true, true, true);
        for (key, value, allowed) in [
            (MODEL, "normal", [class, false, context]),
            (ERASE_AFTER, "false", [class, pod, context]),
            (KATA, "true", [class, pod, context]),
            (SIZE, "1Gi", [false, pod, false]),
            (NAME, "x", [false, false, context]),
            ("deviceMode", "lvm", [false, false, false]),
            ("_id", "x", [false, false, false]),
            ("usage", "FileIO", [false, false, false]),
            ("Size", "1", [false, false, false]),
            ("csi.storage.k8s.io/pod.name", "x", [class, pod, context]),
            (
                "csi.storage.k8s.io/ephemeral",
                "true",
                [class, pod, context],
            ),
            (
                "storage.kubernetes.io/csiProvisionerIdentity",
                "x",
                [class, pod, context],
            ),
        ] {
            for (origin, allowed) in ORIGINS.into_iter().zip(allowed) {
                let mut entries = vec![(key, value)];
                if origin == Origin::Pod && key != SIZE {
                    entries.push((SIZE, "1Gi"));
                }
                match read(origin, &entries) {
                    Ok(_) => assert!(allowed, "{key} {origin:?}"),
                    Err(refused) => {
                        assert!(!allowed, "{key} {origin:?}: {refused}");
                        assert!(refused.path.ends_with(&format!("[{key:?}]")), "{refused}");
                        assert!(refused.rule.contains("eraseafter"), "{refused}");
                    }
                }
            }
        }
        assert!(read(Origin::Context, &[(MODEL, "cache"), (CACHE_SIZE, "2")]).is_ok());
        assert!(read(Origin::Pod, &[(SIZE, "1"), (CACHE_SIZE, "2")]).is_err());
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let plain = read(Origin::Class, &[]).unwrap();
        let expected = Parameters {
            kind: VolumeKind::Persistent,
            replicas: 1,
            erase_after: true,
            kata_containers: false,
            size_bytes: None,
        };
        assert_eq!(plain, expected);
        let pod = read(Origin::Pod, &[(SIZE, "5Mi")]).unwrap();
        assert_eq!(
            (pod.kind, pod.size_bytes),
            (VolumeKind::Ephemeral, Some(5 << 20))
        );
        let cache = read(Origin::Class, &[(MODEL, "cache")]).unwrap();
        assert_eq!((cache.kind, cache.replicas), (VolumeKind::Cache, 1));
        let legacy = read(Origin::Class, &[(MODEL, "none")]).unwrap();
        assert_eq!(legacy.kind, VolumeKind::Persistent);
    }

    #[test]
    fn values_that_mean_nothing_are_refused_by_their_key() {
        let check = |origin, entries: &[(&str, &str)], key: &str, part: &str| {
            let refused = read(origin, entries).unwrap_err();
            assert!(refused.path.ends_with(&format!("[{key:?}]")), "{refused}");
            assert!(refused.rule.contains(part), "{refused}");
        };
        let class = Origin::Class;
        check(class, &[(MODEL, "ephemeral")], MODEL, "normal or cache");
        check(class, &[(MODEL, "")], MODEL, "normal or cache");
        check(
            class,
            &[(CACHE_SIZE, "2")],
            CACHE_SIZE,
            "persistencyModel=cache alone",
        );
        for bad in ["0", "-1", "x", "10001", "4294967296", ""] {
            let entries = [(MODEL, "cache"), (CACHE_SIZE, bad)];
            check(class, &entries, CACHE_SIZE, "from 1 to 10000");
        }
        check(class, &[(ERASE_AFTER, "yes")], ERASE_AFTER, "true or false");
        check(class, &[(KATA, "TrUe")], KATA, "true or false");
        check(Origin::Pod, &[], SIZE, "is required");
        check(Origin::Pod, &[(SIZE, "-1")], SIZE, "negative");
        let long = "x".repeat(4097);
        assert_eq!(
            read(class, &[(KATA, &long)]).unwrap_err().path,
            "parameters"
        );
    }

    #[test]
    fn what_go_takes_for_a_boolean_is_taken() {
        for (value, expected) in [("1", true), ("T", true), ("True", true), ("f", false)] {
            let read = read(Origin::Class, &[(ERASE_AFTER, value)]).unwrap();
            assert_eq!(read.erase_after, expected);
        }
    }

    /// Goal: what a volume is created as comes back with each later call.
    #[test]
    fn the_context_is_read_as_what_was_meant() {
        for entries in [
            &[][..],
            &[(MODEL, "cache"), (CACHE_SIZE, "3"), (ERASE_AFTER, "false")],
            &[(KATA, "true")],
        ] {
            let meant = read(Origin::Class, entries).unwrap();
            let back = Parameters::read(Origin::Context, meant.context("pvc-1"));
            assert_eq!(back, Ok(meant));
        }
    }

    #[test]
    fn made_for_a_pod_or_not() {
        let context = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        assert_eq!(requested_ephemeral(&context(EPHEMERAL, "true")), Some(true));
        assert_eq!(
            requested_ephemeral(&context(EPHEMERAL, "false")),
            Some(false)
        );
        assert_eq!(requested_ephemeral(&BTreeMap::new()), None);
        let identity = "storage.kubernetes.io/csiProvisionerIdentity";
        assert!(is_provisioned(&context(identity, "x")));
        assert!(!is_provisioned(&BTreeMap::new()));
    }
}
