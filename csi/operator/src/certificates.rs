//! The certificates of a deployment: those in its secrets as long as they are good, others newly made.
//!
//! ```text
//!   given in the resource ─▶ checked ─▶ used
//!   in the secrets, right, and of the authority ─▶ used until a third of their validity is left
//!   everything else ─▶ made by the authority
//! ```
//!
//! The authority is Berth's own: the schedulers, which run elsewhere, trust the agents' and controllers'
//! certificates by it.
//!
//! Invariant: while nothing about a certificate changes, it stays the same to the byte; otherwise the
//! operator would write for ever.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use berth_tls::authority::{Authority, CertificateSpec};
use berth_tls::pem::Bundle;
use berth_tls::{Identity, Role};

use crate::desired::{Credentials, NodePairs, Owner, Pair, controller_host};
use crate::spec::{BerthStorageSpec, Certificates, MutatePods};

/// The secret with the authority.
pub const AUTHORITY: &str = "berth-csi-authority";
/// Its certificate in the secret; further ones are trusted too.
pub const AUTHORITY_CERT: &str = "ca.pem";
/// Its key in the secret.
pub const AUTHORITY_KEY: &str = "ca-key.pem";
/// The most nodes of which the certificates fit into one secret.
pub const NODES_MAX: usize = 400;

/// The content of a secret, by file.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A node that an agent runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, which is the host's.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The addresses at which controllers connect to its agent.
    pub addresses: Vec<IpAddr>,
}

/// The authority, as its secret has it.
pub struct Signer {
    /// What makes certificates.
    pub authority: Authority,
    /// The certificates that programs are to trust.
    pub ca: Vec<u8>,
}

impl Signer {
    /// Reads the secret.
    ///
    /// # Errors
    ///
    /// When a part is missing or wrong.
    pub fn read(files: &Files) -> Result<Self, Error> {
        let file = |name: &'static str| files.get(name).ok_or(Error::Incomplete(name));
        let (ca, key) = (file(AUTHORITY_CERT)?, file(AUTHORITY_KEY)?);
        Ok(Self {
            authority: Authority::from_pem(ca, key).map_err(Error::Authority)?,
            ca: ca.clone(),
        })
    }
}

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate has to be made, and there is no authority.
    #[error(
        "certificates have to be made and there is no secret {AUTHORITY} in the operator's namespace; hint: \
         kubectl create secret generic {AUTHORITY} --from-file={AUTHORITY_CERT} --from-file={AUTHORITY_KEY}"
    )]
    NoAuthority,
    /// The secret lacks a file.
    #[error("the secret {AUTHORITY} has no {0}")]
    Incomplete(&'static str),
    /// The secret holds no authority.
    #[error("the secret {AUTHORITY} holds no authority: {0}")]
    Authority(berth_tls::authority::Error),
    /// A certificate cannot be made.
    #[error("the certificate of {name} cannot be made: {why}")]
    Make {
        /// The program.
        name: String,
        /// Why.
        why: berth_tls::authority::Error,
    },
    /// A certificate in the resource is wrong.
    #[error("the {part} in the resource cannot be used: {why}")]
    Given {
        /// Which.
        part: &'static str,
        /// Why.
        why: String,
    },
    /// There are more nodes than fit into a secret.
    #[error(
        "{0} nodes are selected, and the certificates of at most {NODES_MAX} fit into a secret; hint: make \
         several deployments, or give one certificate for all nodes"
    )]
    TooManyNodes(usize),
}

/// What certificates are made for.
pub struct Needs<'a> {
    /// The resource.
    pub owner: &'a Owner,
    /// Everything that it is configured with.
    pub spec: &'a BerthStorageSpec,
    /// The operator's namespace.
    pub namespace: &'a str,
    /// The selected nodes.
    pub nodes: &'a [Node],
    /// How long new certificates are valid.
    pub validity: Duration,
    /// The time.
    pub now: SystemTime,
}

/// The secrets of a deployment, as they are in the cluster; empty if they are not.
#[derive(Default)]
pub struct Existing {
    /// The controller's.
    pub controller: Files,
    /// The agents'.
    pub nodes: Files,
}

/// Returns the certificates of a deployment.
///
/// # Errors
///
/// When the given ones are wrong, or one has to be made and cannot be.
pub fn credentials(
    needs: &Needs<'_>,
    existing: &Existing,
    signer: Option<&Signer>,
) -> Result<Credentials, Error> {
    if let Some(given) = &needs.spec.certificates {
        return use_given(needs, given);
    }
    if needs.nodes.len() > NODES_MAX {
        return Err(Error::TooManyNodes(needs.nodes.len()));
    }
    // Without the authority the existing certificates are good as long as they are.
    let ca = signer.map(|signer| &signer.ca);
    let ca = ca.or_else(|| existing.controller.get("ca.pem"));
    let ca = ca.ok_or(Error::NoAuthority)?;
    let pair = |files: &Files, cert: &str, key: &str| {
        Some(Pair {
            cert: files.get(cert)?.clone(),
            key: files.get(key)?.clone(),
        })
    };
    let controller = pair(&existing.controller, "cert.pem", "key.pem");
    let controller = keep_or_make(needs, &controller_spec(needs), ca, controller, signer)?;
    let mut nodes = BTreeMap::new();
    for node in needs.nodes {
        let name = &node.name;
        let (cert, key) = (format!("agent-{name}.pem"), format!("agent-{name}-key.pem"));
        let kept = pair(&existing.nodes, &cert, &key);
        let made = keep_or_make(needs, &node_spec(needs, node), ca, kept, signer)?;
        nodes.insert(name.clone(), made);
    }
    Ok(Credentials {
        ca: ca.clone(),
        controller,
        nodes: NodePairs::Each(nodes),
    })
}

fn controller_spec(needs: &Needs<'_>) -> CertificateSpec {
    CertificateSpec {
        role: Role::CsiController,
        name: needs.owner.name.clone(),
        dns: vec![controller_host(needs.owner, needs.namespace)],
        ips: Vec::new(),
        validity: needs.validity,
    }
}

fn node_spec(needs: &Needs<'_>, node: &Node) -> CertificateSpec {
    CertificateSpec {
        role: Role::Agent,
        name: node.name.clone(),
        dns: vec![node.name.clone()],
        ips: node.addresses.clone(),
        validity: needs.validity,
    }
}

fn keep_or_make(
    needs: &Needs<'_>,
    spec: &CertificateSpec,
    ca: &[u8],
    existing: Option<Pair>,
    signer: Option<&Signer>,
) -> Result<Pair, Error> {
    let is_good = |pair: &Pair| {
        let bundle = Bundle {
            ca,
            cert: &pair.cert,
            key: &pair.key,
        };
        let is_signed = signer.is_none_or(|signer| signer.authority.has_signed(&pair.cert));
        let identity = bundle.check();
        is_signed && identity.is_ok_and(|identity| is_right(&identity, spec, needs.now))
    };
    if let Some(pair) = existing.filter(is_good) {
        return Ok(pair);
    }
    let signer = signer.ok_or(Error::NoAuthority)?;
    let made = signer.authority.sign(spec);
    let (cert, key) = made.map_err(|why| Error::Make {
        name: spec.name.clone(),
        why,
    })?;
    tracing::info!(role = %spec.role, name = spec.name, "made a certificate");
    Ok(Pair {
        cert: cert.into_bytes(),
        key: key.into_bytes(),
    })
}

/// Returns whether a valid certificate is what would be made, and has time left.
fn is_right(identity: &Identity, spec: &CertificateSpec, now: SystemTime) -> bool {
    let now = now.duration_since(SystemTime::UNIX_EPOCH);
    let now = i64::try_from(now.unwrap_or_default().as_secs()).unwrap_or(i64::MAX);
    let (left, whole) = (
        identity.not_after - now,
        identity.not_after - identity.not_before,
    );
    identity.role == spec.role
        && identity.name == spec.name
        && identity.dns == spec.dns
        && identity.ips == spec.ips
        && left * 3 > whole
}

fn use_given(needs: &Needs<'_>, given: &Certificates) -> Result<Credentials, Error> {
    let check = |part, cert: &[u8], key: &[u8], role: Role| {
        let bundle = Bundle {
            ca: &given.ca.0,
            cert,
            key,
        };
        let wrong = |why| Error::Given { part, why };
        let identity = bundle.check().map_err(wrong)?;
        if identity.role != role {
            let why = format!("it is that of {}, not of a {role}", identity.principal());
            return Err(wrong(why));
        }
        Ok(identity)
    };
    let (cert, key) = (&given.controller_cert.0, &given.controller_key.0);
    let part = "controller's certificate";
    check(part, cert, key, Role::CsiController)?;
    // The API server calls the webhook by the name of the service.
    match needs.spec.mutate_pods {
        MutatePods::Always | MutatePods::Try => Bundle {
            ca: &given.ca.0,
            cert,
            key,
        }
        .check_serves(&controller_host(needs.owner, needs.namespace))
        .map_err(|why| Error::Given { part, why })?,
        MutatePods::Never => {}
    }
    let part = "agents' certificate";
    let (node_cert, node_key) = (&given.node_cert.0, &given.node_key.0);
    let identity = check(part, node_cert, node_key, Role::Agent)?;
    if let Some(node) = needs.nodes.iter().find(|n| !identity.is_agent_of(&n.name)) {
        let why = format!("it is not that of node {}", node.name);
        return Err(Error::Given { part, why });
    }
    let pair = |cert: &[u8], key: &[u8]| Pair {
        cert: cert.to_vec(),
        key: key.to_vec(),
    };
    Ok(Credentials {
        ca: given.ca.0.clone(),
        controller: pair(cert, key),
        nodes: NodePairs::Shared(pair(node_cert, node_key)),
    })
}

#[cfg(test)]
mod tests;
