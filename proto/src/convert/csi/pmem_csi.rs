//! Volumes that PMEM-CSI created, in a cluster whose driver Berth's has replaced.
//!
//! Berth does not manage them. Its own ids have another form, so one of PMEM-CSI's is recognized by itself,
//! and what is said about it can be true: such a volume is not absent, and nothing erases it.
//!
//! Not here: how volumes are moved (docs/kubernetes-operator.md, "Coming from PMEM-CSI").

/// The longest first part of an id: the beginning of the volume's name.
const START_BYTES_MAX: usize = 6;
/// The digits of SHA-224.
const DIGITS: usize = 56;

/// Returns whether PMEM-CSI gave a volume this id: the first characters of its name, a hyphen, and the
/// SHA-224 of the name.
#[must_use]
pub fn is_id(id: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    id.rsplit_once('-').is_some_and(|(start, digits)| {
        start.chars().count() <= START_BYTES_MAX
            && digits.len() == DIGITS
            && digits.bytes().all(is_digit)
    })
}

/// Returns what is said about the volume with such an id.
#[must_use]
pub fn refusal(id: &str) -> String {
    format!(
        "volume {id:?} was created by PMEM-CSI, and Berth does not manage it: it stays on its node as it is; \
         hint: see \"Coming from PMEM-CSI\" in docs/kubernetes-operator.md"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::csi::{Origin, Parameters};

    /// Goal: the storage classes and pods of its clusters are used as they are. Method: the parameters of
    /// release 0.7, each with its values, and the contexts that it gave its volumes.
    #[test]
    fn its_parameters_are_read() {
        let read = |origin, entries: &[(&str, &str)]| {
            let entries = entries
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            Parameters::read(origin, entries.collect()).expect("it is read")
        };
        let class = |entries: &[(&str, &str)]| {
            let file_system = [("csi.storage.k8s.io/fstype", "xfs")];
            read(Origin::Class, &[&file_system[..], entries].concat())
        };
        assert_eq!(
            class(&[]),
            class(&[("eraseafter", "true"), ("persistencyModel", "normal")])
        );
        assert_eq!(class(&[]), class(&[("persistencyModel", "none")]));
        assert!(!class(&[("eraseafter", "false")]).erase_after);
        assert!(class(&[("kataContainers", "true")]).kata_containers);
        let cache = class(&[("persistencyModel", "cache"), ("cacheSize", "3")]);
        assert_eq!(cache.replicas, 3);
        assert_eq!(class(&[("persistencyModel", "cache")]).replicas, 1);
        let context = read(
            Origin::Context,
            &[
                ("name", "pvc-1"),
                ("persistencyModel", "normal"),
                ("eraseafter", "true"),
                (
                    "storage.kubernetes.io/csiProvisionerIdentity",
                    "1-8081-pmem-csi.intel.com",
                ),
            ],
        );
        assert_eq!(context, class(&[]));
        let inline = read(
            Origin::Pod,
            &[
                ("size", "2Gi"),
                ("eraseafter", "false"),
                ("kataContainers", "true"),
                ("csi.storage.k8s.io/ephemeral", "true"),
                ("csi.storage.k8s.io/pod.name", "app"),
            ],
        );
        assert_eq!(inline.size_bytes, Some(2 << 30));
    }

    /// Goal: every id of PMEM-CSI is one, also that of a short name or one with hyphens, and none of Berth's.
    #[test]
    fn its_ids_are_recognized() {
        let digits = "0123456789abcdef0123456789abcdef0123456789abcdef01234567";
        for start in ["pvc-fa", "a", "", "data", "a-b-c-", "äöüäöü"] {
            assert!(is_id(&format!("{start}-{digits}")), "{start}");
        }
        let short = &digits[..55];
        for other in [
            "",
            "-",
            "nothing",
            digits,
            &format!("seven77-{digits}"),
            &format!("data-{short}"),
            &format!("data-{digits}0"),
            &format!("data-{short}g"),
            &format!("data-{short}A"),
            "data-0123456789abcdef0123456789abcdef",
            // An inline volume of a pod.
            &format!("csi-{digits}01234567"),
        ] {
            assert!(!is_id(other), "{other}");
        }
    }
}
