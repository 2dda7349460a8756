//! Revoked certificates: `berth cluster revoke-certificate` and what belongs to it.

use std::path::Path;

use anyhow::Context as _;
use berth_domain::id::TimeMs;
use berth_domain::revocation::Fingerprint;
use berth_proto::cluster::v1::cluster_service_client::ClusterServiceClient;
use berth_proto::cluster::v1::{
    ListRevokedCertificatesRequest, ReinstateCertificateRequest, RevokeCertificateRequest,
    RevokedCertificate,
};
use berth_proto::convert::field;
use berth_tls::authority;
use serde_json::{Value, json};

use crate::output::Columns;
use crate::session::{Session, request_id};
use crate::{call, migration, output, read};

/// The columns of the list.
pub(crate) const COLUMNS: Columns<5, 0> = Columns {
    usual: ["sha-256", "principal", "revoked", "expires", "reason"],
    wide: [],
};

pub(crate) async fn revoke(
    session: &Session,
    certificate: &str,
    reason: String,
) -> anyhow::Result<()> {
    let certificate = RevokedCertificate {
        reason,
        ..named(certificate)?
    };
    let request = RevokeCertificateRequest {
        certificate: Some(certificate),
        request_id: request_id(None),
    };
    let response = call!(session, ClusterServiceClient, revoke_certificate, request)?;
    let revoked = response.certificate.unwrap_or_default();
    if session.for_programs() {
        return output::value(&as_json(&revoked));
    }
    output::message(format!(
        "certificate {} is revoked",
        shown(&revoked.fingerprint, &revoked.principal)
    ));
    Ok(())
}

pub(crate) async fn reinstate(session: &Session, certificate: &str) -> anyhow::Result<()> {
    let certificate = named(certificate)?;
    let request = ReinstateCertificateRequest {
        fingerprint: certificate.fingerprint.clone(),
        request_id: request_id(None),
    };
    call!(
        session,
        ClusterServiceClient,
        reinstate_certificate,
        request
    )?;
    let sentence = format!(
        "certificate {} is accepted again",
        shown(&certificate.fingerprint, &certificate.principal)
    );
    session.done(&certificate.fingerprint, "reinstated", sentence)
}

pub(crate) async fn list(session: &Session) -> anyhow::Result<()> {
    let request = ListRevokedCertificatesRequest::default();
    let response = read!(
        session,
        ClusterServiceClient,
        list_revoked_certificates,
        request
    )?;
    if session.for_programs() {
        let all: Vec<Value> = response.certificates.iter().map(as_json).collect();
        return output::value(&all);
    }
    let rows = response.certificates.into_iter().map(|listed| {
        let row = [
            listed.fingerprint.clone(),
            listed.principal.clone(),
            time(listed.revoke_time),
            time(listed.expire_time),
            listed.reason,
        ];
        (row, [])
    });
    output::list(&COLUMNS, rows.collect(), "no certificate is revoked")
}

/// Returns the certificate in a file, or with this fingerprint.
fn named(text: &str) -> anyhow::Result<RevokedCertificate> {
    let path = Path::new(text);
    if !path.exists()
        && let Ok(fingerprint) = text.parse::<Fingerprint>()
    {
        return Ok(RevokedCertificate {
            fingerprint: fingerprint.to_string(),
            ..Default::default()
        });
    }
    let identity = authority::read(path).with_context(|| {
        format!("{text:?} is neither the file of a certificate nor its SHA-256 of 64 digits")
    })?;
    let expires_at = u64::try_from(identity.not_after).unwrap_or_default();
    Ok(RevokedCertificate {
        fingerprint: identity.fingerprint.clone(),
        principal: identity.principal(),
        expire_time: Some(field::timestamp(TimeMs(expires_at.saturating_mul(1000)))),
        ..Default::default()
    })
}

fn shown(fingerprint: &str, principal: &str) -> String {
    let start = fingerprint.get(..16).unwrap_or(fingerprint);
    match principal {
        "" => format!("{start}…"),
        principal => format!("{start}… of {principal}"),
    }
}

fn as_json(listed: &RevokedCertificate) -> Value {
    json!({
        "sha256": listed.fingerprint,
        "principal": listed.principal,
        "reason": listed.reason,
        "revoke_time": time(listed.revoke_time),
        "expire_time": time(listed.expire_time),
    })
}

fn time(wire: Option<prost_types::Timestamp>) -> String {
    let time = field::optional_time(wire, "time").ok().flatten();
    time.map(migration::time).unwrap_or_default()
}
