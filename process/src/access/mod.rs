//! Which role may call what: the layer in front of every server.
//!
//! ```text
//!   connection (Peer) ─▶ ran out? ─▶ trusted still? ─▶ table: role x method ─▶ the method
//!                                                                              └▶ speaks for its own
//!                                                                                 host alone
//! ```
//!
//! Where nothing is encrypted nobody is known, and everybody may do everything: that is what
//! `insecure_listen` says.
//!
//! Invariant: with certificates, a method that is not in the table is refused to everybody.

mod guard;
pub mod table;

use std::collections::HashMap;
use std::sync::Arc;

use berth_tls::{Identity, Peer, Role};
use tonic::{Code, Extensions, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

pub use guard::{Guard, Layer};

/// The reason of a refusal because of the role.
pub const ROLE_NOT_ALLOWED: &str = "ROLE_NOT_ALLOWED";
/// The reason of a refusal because somebody speaks for another host or service than its own.
pub const NOT_YOURS: &str = "NOT_YOURS";
/// The reason of a refusal because the certificate of an open connection has run out.
pub const CERTIFICATE_RAN_OUT: &str = "CERTIFICATE_RAN_OUT";
/// The reason of a refusal because the authorities of now do not stand behind the certificate of an
/// open connection.
pub const NOT_TRUSTED: &str = "CERTIFICATE_NOT_TRUSTED";
/// The reason of a refusal because nobody was shown to be there.
pub const NOBODY: &str = "NO_CERTIFICATE";

/// The metadata in which a conductor says on whose behalf it asks.
pub const ON_BEHALF_OF: &str = "berth-on-behalf-of";

/// On whose behalf requests are made where nobody proves who they are. The address that a request
/// came from says nothing: a retry may come through another conductor, or from the same client by
/// another way, and must still be known as a retry.
pub const UNVERIFIED: &str = "unverified";

/// Returns who calls; nobody where nothing is encrypted.
#[must_use]
pub fn caller(extensions: &Extensions) -> Option<&Arc<Identity>> {
    extensions.get::<Peer>()?.identity.as_ref()
}

/// Checks that the authorities of now stand behind the certificate of who calls.
///
/// # Errors
///
/// Why they do not.
pub fn still_trusted(extensions: &Extensions) -> Result<(), String> {
    extensions.get::<Peer>().map_or(Ok(()), Peer::check)
}

/// Returns on whose behalf a request is made: of whom it is from, or, where a conductor passes it on,
/// of whom it says. Nobody else is believed.
#[must_use]
pub fn principal<T>(request: &tonic::Request<T>) -> String {
    let Some(identity) = caller(request.extensions()) else {
        return UNVERIFIED.to_owned();
    };
    let said = request.metadata().get(ON_BEHALF_OF);
    let said = said.and_then(|said| said.to_str().ok());
    match said.filter(|said| identity.role == Role::Conductor && is_principal(said)) {
        Some(said) => said.to_owned(),
        None => identity.principal(),
    }
}

/// Returns whether a text is of the form of a principal, as `operator:ann`.
fn is_principal(text: &str) -> bool {
    let parts = text.split_once(':');
    parts.is_some_and(|(role, name)| {
        role.parse::<Role>().is_ok() && berth_tls::identity::is_name(name)
    })
}

/// Returns which agent calls, if it is one.
#[must_use]
pub fn agent(extensions: &Extensions) -> Option<&Arc<Identity>> {
    caller(extensions).filter(|identity| identity.role == Role::Agent)
}

/// Returns the refusal of somebody who speaks for what is another one's.
#[must_use]
pub fn not_yours(what: impl Into<String>) -> Status {
    refused(Code::PermissionDenied, NOT_YOURS, what.into())
}

/// Checks that an agent speaks for its own host; everybody else was judged by the table.
///
/// # Errors
///
/// When it speaks for another one.
pub fn check_host(extensions: &Extensions, host: &str) -> Result<(), Status> {
    let Some(identity) = agent(extensions).filter(|agent| !agent.is_agent_of(host)) else {
        return Ok(());
    };
    let what = format!(
        "{} does not speak for host {host}: an agent's certificate carries the name of its host \
         (berth certs issue --role agent --name {host})",
        identity.principal()
    );
    Err(not_yours(what))
}

/// Checks that a conductor speaks for itself, and that nobody else speaks for it.
///
/// # Errors
///
/// When somebody speaks for another one.
pub fn check_conductor(extensions: &Extensions, name: &str) -> Result<(), Status> {
    caller(extensions).map_or(Ok(()), |identity| check_is_conductor(identity, name))
}

/// Checks that somebody is a conductor, and the one that is meant.
///
/// # Errors
///
/// When it is not.
pub fn check_is_conductor(identity: &Identity, name: &str) -> Result<(), Status> {
    if identity.role == Role::Conductor && identity.name == name {
        return Ok(());
    }
    let what = format!(
        "{} does not speak for conductor {name}: a conductor's certificate carries its name (berth \
         certs issue --role conductor --name {name})",
        identity.principal()
    );
    Err(not_yours(what))
}

/// Judges a call by the table.
///
/// # Errors
///
/// Why it is refused.
pub fn judge(peer: Option<&Peer>, path: &str, now: i64) -> Result<(), Status> {
    let shown = peer.and_then(|peer| Some((peer, peer.identity.as_ref()?)));
    let Some((peer, identity)) = shown else {
        let what = "no certificate was shown".to_owned();
        return Err(refused(Code::Unauthenticated, NOBODY, what));
    };
    if identity.has_run_out(now) {
        let what = format!(
            "the certificate of {} has run out while the connection was open: renew it (berth certs \
             renew) and connect again",
            identity.principal()
        );
        return Err(refused(Code::Unauthenticated, CERTIFICATE_RAN_OUT, what));
    }
    if let Err(why) = peer.check() {
        let what = format!(
            "the certificate of {} is not trusted any more: {why}",
            identity.principal()
        );
        return Err(refused(Code::Unauthenticated, NOT_TRUSTED, what));
    }
    let method = path.trim_start_matches('/');
    if table::may(identity.role, method) {
        return Ok(());
    }
    let who = table::roles(method).map(Role::as_str).collect::<Vec<_>>();
    let what = match who.is_empty() {
        true => format!("nobody may call {method}: it is in no table of who may call what"),
        false => format!(
            "{} may not call {method}: that is for {}",
            identity.principal(),
            who.join(", ")
        ),
    };
    Err(refused(Code::PermissionDenied, ROLE_NOT_ALLOWED, what))
}

/// Returns a refusal with its reason for programs.
fn refused(code: Code, reason: &str, what: String) -> Status {
    let details = ErrorDetails::with_error_info(reason, "berth", HashMap::new());
    Status::with_error_details(code, what, details)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(role: Role, name: &str) -> Peer {
        Peer {
            standing: None,
            address: None,
            identity: Some(Arc::new(Identity {
                role,
                name: name.to_owned(),
                dns: Vec::new(),
                ips: Vec::new(),
                not_before: 0,
                not_after: 100,
                fingerprint: String::new(),
            })),
        }
    }

    fn request(peer: Option<Peer>, said: Option<&'static str>) -> tonic::Request<()> {
        let mut request = tonic::Request::new(());
        request
            .extensions_mut()
            .insert(peer.unwrap_or(Peer::unknown(None)));
        if let Some(said) = said {
            request
                .metadata_mut()
                .insert(ON_BEHALF_OF, said.parse().unwrap());
        }
        request
    }

    /// Goal: a conductor is believed on whose behalf it asks, and nobody else.
    #[test]
    fn who_is_behind_a_request() {
        let check = |peer: Option<Peer>, said, expected: &str| {
            assert_eq!(principal(&request(peer, said)), expected);
        };
        check(None, None, "unverified");
        check(None, Some("operator:ann"), "unverified");
        check(Some(peer(Role::Operator, "ann")), None, "operator:ann");
        for role in Role::ALL {
            let is_believed = role == Role::Conductor;
            let own = format!("{role}:x");
            let expected = if is_believed { "operator:ann" } else { &own };
            check(Some(peer(role, "x")), Some("operator:ann"), expected);
        }
        for nonsense in ["ann", "root:ann", "operator:", "operator:a b", "leader"] {
            check(
                Some(peer(Role::Conductor, "c1")),
                Some(nonsense),
                "conductor:c1",
            );
        }
    }

    #[test]
    fn nobody_speaks_for_another() {
        let host =
            |role, name: &str| check_host(request(Some(peer(role, name)), None).extensions(), "h1");
        assert!(host(Role::Agent, "h1").is_ok());
        let told = host(Role::Agent, "h2").unwrap_err();
        assert!(
            told.message()
                .contains("agent:h2 does not speak for host h1"),
            "{told}"
        );
        assert!(host(Role::Operator, "ann").is_ok(), "the table has judged");
        assert!(check_host(request(None, None).extensions(), "h1").is_ok());

        let conductor = |role, name: &str| {
            check_conductor(request(Some(peer(role, name)), None).extensions(), "c1")
        };
        assert!(conductor(Role::Conductor, "c1").is_ok());
        assert!(conductor(Role::Conductor, "c2").is_err());
        assert!(conductor(Role::Operator, "c1").is_err());
        assert!(check_conductor(request(None, None).extensions(), "c1").is_ok());
    }

    #[test]
    fn calls_are_judged_by_time_and_role() {
        let path = "/berth.scheduler.v1.SchedulerService/CreateFlavor";
        let ann = peer(Role::Operator, "ann");
        assert!(judge(Some(&ann), path, 100).is_ok());
        let told = |peer, path, now| judge(peer, path, now).unwrap_err();
        let late = told(Some(&ann), path, 101);
        assert_eq!(late.code(), Code::Unauthenticated);
        assert!(late.message().contains("berth certs renew"), "{late}");
        let reader = peer(Role::Reader, "bob");
        let refused = told(Some(&reader), path, 1);
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(
            refused.message().ends_with("that is for operator"),
            "{refused}"
        );
        assert_eq!(
            refused.get_details_error_info().unwrap().reason,
            ROLE_NOT_ALLOWED
        );
        let unknown = told(Some(&ann), "/berth.new.v1.NewService/New", 1);
        assert_eq!(unknown.code(), Code::PermissionDenied);
        assert_eq!(told(None, path, 1).code(), Code::Unauthenticated);
    }
}
