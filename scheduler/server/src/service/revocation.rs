//! Revoked certificates: requests for them, and the list that programs of the cluster take over.

use berth_domain::refusal::{Code, Refusal};
use berth_domain::revocation::RevokedCertificate;
use berth_proto::cluster::v1;
use berth_proto::convert::field;
use berth_proto::status::to_status;
use berth_state::State;
use berth_tls::{Identity, Revoked};
use tonic::Status;

/// Returns the certificate that is to be revoked. A caller that revoked its own one could not take it back.
pub(super) fn requested(
    wire: Option<v1::RevokedCertificate>,
    caller: Option<&Identity>,
) -> Result<RevokedCertificate, Status> {
    let certificate: RevokedCertificate = field::required(wire, "certificate")?;
    let fingerprint = certificate.fingerprint.to_string();
    if caller.is_some_and(|caller| caller.fingerprint == fingerprint) {
        let message = "this is the certificate with which the request was made";
        let refusal = Refusal::new(Code::FailedPrecondition, "OWN_CERTIFICATE", message)
            .with_hint("revoke it with the certificate of another operator")
            .with("fingerprint", fingerprint);
        return Err(to_status(&refusal));
    }
    Ok(certificate)
}

/// Returns all that are listed.
pub(super) fn to_wire(state: &State) -> Vec<v1::RevokedCertificate> {
    let listed = state.revoked_certificates().values();
    listed.map(|certificate| (&**certificate).into()).collect()
}

/// Returns what this process is not to accept, if the list changed after that revision.
pub(crate) fn revoked_since(state: &State, revision: u64) -> Option<Revoked> {
    let is_later = state.header().revoked_revision > revision;
    is_later.then(|| Revoked {
        cluster: state.cluster().map(|id| id.to_string()).unwrap_or_default(),
        revision: state.header().revoked_revision,
        fingerprints: state.revoked_certificates().keys().map(|f| f.0).collect(),
    })
}
