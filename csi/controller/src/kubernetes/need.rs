//! Which volumes a pod still needs, and how large.
//!
//! | volume of the pod | counts |
//! |---|---|
//! | claim that is bound, or whose volume is named | no: it is there |
//! | claim without a class | no: an administrator binds it by hand |
//! | claim of a class of another driver, or of one that binds at once | no: it is not ours to wait |
//! | claim whose node is decided on | no: what is claimed there must not be requested twice |
//! | any other claim of ours, also one that is made for the pod | yes; 0 is the smallest volume |
//! | inline volume of our driver | yes |

use std::collections::BTreeSet;

use berth_proto::convert::Invalid;
use berth_proto::convert::csi::parameters::{Origin, Parameters};

use super::api;
use super::lookup::Lookup;
use super::object::{Inline, Pod, Volume};

/// Why it is not known what a pod needs.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// There is no such claim.
    #[error("there is no claim {name:?} in namespace {namespace:?}")]
    Claim {
        /// The namespace of the pod.
        namespace: String,
        /// The claim's name.
        name: String,
    },
    /// There is no such class.
    #[error("claim {claim:?} is of storage class {class:?}, which does not exist")]
    Class {
        /// The claim.
        claim: String,
        /// The class that it names.
        class: String,
    },
    /// The query of the API server failed.
    #[error("querying the API server failed")]
    Api(#[from] api::Error),
    /// An inline volume is invalid.
    #[error("inline volume {volume:?} is wrong")]
    Inline {
        /// Its name in the pod.
        volume: String,
        /// What is wrong with it.
        #[source]
        fault: Invalid,
    },
}

/// Returns the sizes in bytes of the volumes that are still to be made where the pod goes.
///
/// # Errors
///
/// When a claim or class is missing or cannot be read, or when an inline volume is wrong.
pub async fn sizes(pod: &Pod, driver: &str, lookup: &Lookup) -> Result<Vec<u64>, Unknown> {
    let mut sizes = Vec::new();
    let mut seen = BTreeSet::new();
    for volume in &pod.spec.volumes {
        if let Some(claim) = claim_name(pod, volume) {
            if seen.insert(claim.clone()) {
                sizes.extend(of_claim(pod, claim, driver, lookup).await?);
            }
        } else if let Some(inline) = volume.csi.as_ref().filter(|i| i.driver == driver) {
            let size = of_inline(inline).map_err(|fault| Unknown::Inline {
                volume: volume.name.clone(),
                fault,
            })?;
            sizes.push(size);
        }
    }
    Ok(sizes)
}

/// Returns the name of the claim that a volume of a pod is bound to.
fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(reference) = &volume.persistent_volume_claim {
        return Some(reference.claim_name.clone());
    }
    let _made_for_it = volume.ephemeral.as_ref()?;
    Some(format!("{}-{}", pod.metadata.name, volume.name))
}

async fn of_claim(
    pod: &Pod,
    name: String,
    driver: &str,
    lookup: &Lookup,
) -> Result<Option<u64>, Unknown> {
    let namespace = &pod.metadata.namespace;
    let Some(claim) = lookup.claim(namespace, &name).await? else {
        let namespace = namespace.clone();
        return Err(Unknown::Claim { namespace, name });
    };
    let Some(class) = claim.class().filter(|class| !class.is_empty()) else {
        return Ok(None);
    };
    // Until that node's volume is there, CreateVolume decides: where there is no space, the
    // provisioner takes its mark away, and the claim counts again.
    if claim.is_bound() || claim.has_node() {
        return Ok(None);
    }
    let found = lookup.class(class).await?.ok_or_else(|| Unknown::Class {
        claim: name,
        class: class.to_owned(),
    })?;
    let bytes = u64::try_from(claim.bytes()).unwrap_or(0);
    Ok(found.is_late(driver).then_some(bytes))
}

/// Returns the size of an inline volume. What its host would refuse is refused here.
fn of_inline(inline: &Inline) -> Result<u64, Invalid> {
    let attributes = inline.volume_attributes.clone();
    let parameters = Parameters::read(Origin::Pod, attributes)?;
    Ok(parameters.size_bytes.unwrap_or(0))
}

/// Returns whether a pod has a volume for which the extender has to be called. What does not exist
/// yet does not count: the pod is let through, as Kubernetes would.
///
/// # Errors
///
/// When the API server does not answer.
pub async fn concerns(
    pod: &Pod,
    namespace: &str,
    driver: &str,
    lookup: &Lookup,
) -> Result<bool, api::Error> {
    for volume in &pod.spec.volumes {
        let concerned = if let Some(reference) = &volume.persistent_volume_claim {
            // An earlier answer may be from before the claim.
            match lookup.claim(namespace, &reference.claim_name).await? {
                Some(claim) => is_late(claim.class(), driver, lookup).await?,
                None => false,
            }
        } else if let Some(ephemeral) = &volume.ephemeral {
            match ephemeral.volume_claim_template.class() {
                None => {
                    let class = lookup.default_class().await?;
                    class.is_some_and(|class| class.is_late(driver))
                }
                class => is_late(class, driver, lookup).await?,
            }
        } else {
            volume.csi.as_ref().is_some_and(|i| i.driver == driver)
        };
        if concerned {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn is_late(class: Option<&str>, driver: &str, lookup: &Lookup) -> Result<bool, api::Error> {
    let Some(class) = class.filter(|class| !class.is_empty()) else {
        return Ok(false);
    };
    let class = lookup.class(class).await?;
    Ok(class.is_some_and(|class| class.is_late(driver)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inline(attributes: &[(&str, &str)]) -> Result<u64, Invalid> {
        let pairs = attributes.iter();
        of_inline(&Inline {
            driver: "d".into(),
            volume_attributes: pairs.map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        })
    }

    #[test]
    fn an_inline_volume_says_its_size() {
        let pod_info = "csi.storage.k8s.io/pod.name";
        let all = [
            ("size", "2Gi"),
            ("eraseafter", "false"),
            ("kataContainers", "true"),
            (pod_info, "p"),
        ];
        assert_eq!(inline(&all).unwrap(), 2 << 30);
        assert_eq!(inline(&[("size", "0")]).unwrap(), 0);
        for wrong in [
            &[][..],
            &[("size", "-1Gi")],
            &[("size", "foobar")],
            &[("size", "1Gi"), ("cacheSize", "2")],
        ] {
            assert!(inline(wrong).is_err(), "{wrong:?}");
        }
    }
}
