//! Which role may call what: the layer in front of every server.
//!
//! ```text
//!   connection (Peer) ─▶ expired? ─▶ still trusted? ─▶ table: role x method ─▶ the method
//!                                                                              └▶ an agent acts for
//!                                                                                 its own host only
//! ```
//!
//! Without encryption no caller is known, and every caller may call everything: that is the meaning
//! of `insecure_listen`.
//!
//! Invariant: with certificates, a method that is not in the table is refused to every caller.

pub mod audit;
mod layer;
pub mod table;

use std::collections::HashMap;
use std::sync::Arc;

use berth_tls::{Identity, Peer, Role};
use tonic::{Code, Extensions, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

pub use layer::{Authorized, Layer, record_refusal};

/// The reason of a refusal because of the role.
pub const ROLE_NOT_ALLOWED: &str = "ROLE_NOT_ALLOWED";
/// The reason of a refusal because a caller acts for another host or service than its own.
pub const NOT_YOURS: &str = "NOT_YOURS";
/// The reason of a refusal because the certificate of an open connection has expired.
pub const CERTIFICATE_EXPIRED: &str = "CERTIFICATE_RAN_OUT";
/// The reason of a refusal because the current authorities do not trust the certificate of an open
/// connection.
pub const NOT_TRUSTED: &str = "CERTIFICATE_NOT_TRUSTED";
/// The reason of a refusal because the caller presented no certificate.
pub const NO_CERTIFICATE: &str = "NO_CERTIFICATE";

/// The reason of a refusal because no program of this version has the method.
pub const UNKNOWN_METHOD: &str = "UNKNOWN_METHOD";

/// The metadata key in which a conductor forwards the principal of its caller, and a scheduler names who uses
/// its page.
pub const ON_BEHALF_OF: &str = "berth-on-behalf-of";

/// The operator or reader whom a scheduler makes a request for: an extension of requests that were authorized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnBehalfOf(String);

/// The principal of requests of unauthenticated callers. The source address is no principal: a retry
/// may come through another conductor, or from the same client by another address, and must still be
/// recognised as a retry.
pub const UNVERIFIED: &str = "unverified";

/// Returns the identity of the caller; `None` where nothing is encrypted.
#[must_use]
pub fn caller(extensions: &Extensions) -> Option<&Arc<Identity>> {
    extensions.get::<Peer>()?.identity.as_ref()
}

/// Checks that the current authorities trust the certificate of the caller.
///
/// # Errors
///
/// Why they do not.
pub fn still_trusted(extensions: &Extensions) -> Result<(), String> {
    extensions.get::<Peer>().map_or(Ok(()), Peer::check)
}

/// Returns the principal of a request: its caller, or, where a conductor forwards it, the principal
/// that the conductor names. Besides conductors only a scheduler may name one, to the methods that are delegated.
#[must_use]
pub fn principal<T>(request: &tonic::Request<T>) -> String {
    let Some(identity) = caller(request.extensions()) else {
        return UNVERIFIED.to_owned();
    };
    if let Some(OnBehalfOf(person)) = request.extensions().get() {
        return person.clone();
    }
    let forwarded = request.metadata().get(ON_BEHALF_OF);
    let forwarded = forwarded.and_then(|forwarded| forwarded.to_str().ok());
    match forwarded.filter(|forwarded| identity.role == Role::Conductor && is_principal(forwarded))
    {
        Some(forwarded) => forwarded.to_owned(),
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

/// Returns the caller if it is an agent.
#[must_use]
pub fn agent(extensions: &Extensions) -> Option<&Arc<Identity>> {
    caller(extensions).filter(|identity| identity.role == Role::Agent)
}

/// Returns the refusal of a caller that acts for a host or service of another one.
#[must_use]
pub fn not_yours(what: impl Into<String>) -> Status {
    refused(Code::PermissionDenied, NOT_YOURS, what.into())
}

/// The longest name of a request that a refusal repeats, in characters. It may be anything, since it is
/// checked before the request is read, and a client refuses headers that are too long.
const SHOWN_MAX: usize = 128;

fn shortened(name: &str) -> String {
    match name.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

/// Checks that an agent acts for its own host; the table has authorized all other callers.
///
/// # Errors
///
/// When it acts for another one.
pub fn check_host(extensions: &Extensions, host: &str) -> Result<(), Status> {
    let Some(identity) = agent(extensions).filter(|agent| !agent.is_agent_of(host)) else {
        return Ok(());
    };
    let host = &shortened(host);
    let (caller, why) = (identity.principal(), identity.not_of_host(host));
    Err(not_yours(format!(
        "{caller} does not speak for host {host}: {why}"
    )))
}

/// Checks that the caller is the conductor of this name.
///
/// # Errors
///
/// When it is another caller.
pub fn check_conductor(extensions: &Extensions, name: &str) -> Result<(), Status> {
    caller(extensions).map_or(Ok(()), |identity| check_is_conductor(identity, name))
}

/// Checks that an identity is that of the conductor of this name.
///
/// # Errors
///
/// When it is not.
pub fn check_is_conductor(identity: &Identity, name: &str) -> Result<(), Status> {
    if identity.role == Role::Conductor && identity.name == name {
        return Ok(());
    }
    let name = shortened(name);
    let what = format!(
        "{} does not speak for conductor {name}: a conductor's certificate carries its name (berth \
         certs issue --role conductor --name {name})",
        identity.principal()
    );
    Err(not_yours(what))
}

/// Authorizes a call by its certificate and the table.
///
/// # Errors
///
/// Why it is refused.
pub fn authorize(peer: Option<&Peer>, path: &str, now: i64) -> Result<(), Status> {
    let identity = check_validity(peer, now)?;
    let method = path.trim_start_matches('/');
    if table::may(identity.role, method) {
        return Ok(());
    }
    let roles = table::roles(method).map(Role::as_str).collect::<Vec<_>>();
    if roles.is_empty() {
        // As from a server without certificates: a newer client then does without the method.
        let what = format!("this program has no method {method}");
        return Err(refused(Code::Unimplemented, UNKNOWN_METHOD, what));
    }
    let what = format!(
        "{} may not call {method}: that is for {}",
        identity.principal(),
        roles.join(", ")
    );
    Err(refused(Code::PermissionDenied, ROLE_NOT_ALLOWED, what))
}

/// Checks that a caller presented a certificate that is valid and trusted now.
fn check_validity(peer: Option<&Peer>, now: i64) -> Result<&Arc<Identity>, Status> {
    let shown = peer.and_then(|peer| Some((peer, peer.identity.as_ref()?)));
    let Some((peer, identity)) = shown else {
        let what = "no certificate was presented".to_owned();
        return Err(refused(Code::Unauthenticated, NO_CERTIFICATE, what));
    };
    if identity.has_expired(now) {
        let what = format!(
            "the certificate of {} has expired while the connection was open: renew it (berth certs \
             renew) and connect again",
            identity.principal()
        );
        return Err(refused(Code::Unauthenticated, CERTIFICATE_EXPIRED, what));
    }
    if let Err(why) = peer.check() {
        let what = format!(
            "the certificate of {} is not trusted any more: {why}",
            identity.principal()
        );
        return Err(refused(Code::Unauthenticated, NOT_TRUSTED, what));
    }
    Ok(identity)
}

/// Authorizes a call in which its caller names another principal. Returns the operator or reader if a scheduler
/// makes the call for one; what any other caller names has no part in this.
///
/// # Errors
///
/// Why it is refused.
pub fn authorize_for(
    peer: Option<&Peer>,
    path: &str,
    named: &str,
    now: i64,
) -> Result<Option<OnBehalfOf>, Status> {
    let identity = peer.and_then(|peer| peer.identity.as_ref());
    let is_scheduler = identity.is_some_and(|identity| identity.role == Role::Scheduler);
    let method = path.trim_start_matches('/');
    let may = person(named).is_some_and(|role| table::may(role, method));
    if !is_scheduler || !table::is_delegated(method) || !may {
        return authorize(peer, path, now).map(|()| None);
    }
    check_validity(peer, now)?;
    Ok(Some(OnBehalfOf(named.to_owned())))
}

/// Returns the role of the operator or reader whom a text names, as `operator:ann`.
fn person(text: &str) -> Option<Role> {
    let role: Role = text.split(':').next()?.parse().ok()?;
    let is_person = matches!(role, Role::Operator | Role::Reader);
    (is_person && is_principal(text)).then_some(role)
}

/// Checks that a caller may read metrics and health: those who may read everything else. Without
/// certificates every caller may.
///
/// # Errors
///
/// Why it may not.
pub fn check_watcher(extensions: &Extensions, now: i64) -> Result<(), String> {
    let Some(identity) = caller(extensions) else {
        return Ok(());
    };
    let principal = identity.principal();
    if identity.has_expired(now) {
        return Err(format!(
            "the certificate of {principal} has expired: renew it (berth certs renew) and connect again"
        ));
    }
    still_trusted(extensions)
        .map_err(|why| format!("the certificate of {principal} is not trusted any more: {why}"))?;
    match identity.role {
        Role::Operator | Role::Reader => Ok(()),
        Role::Scheduler | Role::Conductor | Role::Agent | Role::CsiController => Err(format!(
            "{principal} may not read metrics and health: that is for operators and readers (berth \
             certs issue --role reader)"
        )),
    }
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
            trust: None,
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

    fn request(peer: Option<Peer>, forwarded: Option<&'static str>) -> tonic::Request<()> {
        let mut request = tonic::Request::new(());
        request
            .extensions_mut()
            .insert(peer.unwrap_or(Peer::unknown(None)));
        if let Some(forwarded) = forwarded {
            request
                .metadata_mut()
                .insert(ON_BEHALF_OF, forwarded.parse().unwrap());
        }
        request
    }

    /// Goal: only a conductor may name the principal of a request.
    #[test]
    fn who_is_behind_a_request() {
        let check = |peer: Option<Peer>, forwarded, expected: &str| {
            assert_eq!(principal(&request(peer, forwarded)), expected);
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

    /// Goal: a scheduler acts for an operator whom it names in exactly the methods for that, and for no other
    /// principal. Method: every method, role and name, through the authorization and the principal.
    #[test]
    fn a_scheduler_acts_for_persons_in_few_methods() {
        let names = [
            "operator:ann",
            "reader:ann",
            "agent:h1",
            "operator:",
            "operator:a b",
            "ann",
            "",
        ];
        for method in table::methods() {
            for (role, named) in Role::ALL.into_iter().flat_map(|r| names.map(|n| (r, n))) {
                let peer = peer(role, "x");
                let allowed = authorize_for(Some(&peer), &format!("/{method}"), named, 1);
                let may = match named {
                    "operator:ann" => table::may(Role::Operator, &method),
                    "reader:ann" => table::may(Role::Reader, &method),
                    _ => false,
                };
                let is_for = role == Role::Scheduler && table::is_delegated(&method) && may;
                let expected = is_for || table::may(role, &method);
                assert_eq!(allowed.is_ok(), expected, "{role} {method} {named}");
                let Ok(on_behalf_of) = allowed else { continue };
                assert_eq!(on_behalf_of.is_some(), is_for, "{role} {method} {named}");
                if let Some(person) = on_behalf_of {
                    let mut request = request(Some(peer.clone()), None);
                    request.extensions_mut().insert(person);
                    assert_eq!(principal(&request), named);
                }
                let late = authorize_for(Some(&peer), &method, named, 101);
                assert_eq!(late.unwrap_err().code(), Code::Unauthenticated, "{method}");
            }
        }
        for method in table::DELEGATED {
            let roles: Vec<Role> = table::roles(method).collect();
            assert!(roles.contains(&Role::Operator), "{method}");
            assert!(!roles.contains(&Role::Scheduler), "{method}");
        }
    }

    #[test]
    fn callers_act_only_for_themselves() {
        let host =
            |role, name: &str| check_host(request(Some(peer(role, name)), None).extensions(), "h1");
        assert!(host(Role::Agent, "h1").is_ok());
        let refused = host(Role::Agent, "h2").unwrap_err();
        assert!(
            refused
                .message()
                .contains("agent:h2 does not speak for host h1"),
            "{refused}"
        );
        assert!(host(Role::Operator, "ann").is_ok(), "the table decides");
        let long = "ä".repeat(1 << 20);
        for name in ["h2", "pmem-node-controller"] {
            let caller = request(Some(peer(Role::Agent, name)), None);
            let refused = check_host(caller.extensions(), &long).unwrap_err();
            assert!(
                refused.message().len() < 2_048,
                "{}",
                refused.message().len()
            );
        }
        let caller = request(Some(peer(Role::Conductor, "c2")), None);
        let refused = check_conductor(caller.extensions(), &long).unwrap_err();
        assert!(
            refused.message().len() < 2_048,
            "{}",
            refused.message().len()
        );
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
    fn operators_and_readers_read_metrics() {
        let check = |peer: Option<Peer>, now| {
            check_watcher(request(peer, None).extensions(), now).map_err(|why| why.len())
        };
        assert!(check(None, 1).is_ok());
        for role in Role::ALL {
            let may = matches!(role, Role::Operator | Role::Reader);
            assert_eq!(check(Some(peer(role, "x")), 1).is_ok(), may, "{role}");
            assert!(check(Some(peer(role, "x")), 101).is_err(), "{role} is late");
        }
    }

    #[test]
    fn calls_are_authorized_by_time_and_role() {
        let path = "/berth.scheduler.v1.SchedulerService/CreateFlavor";
        let ann = peer(Role::Operator, "ann");
        assert!(authorize(Some(&ann), path, 100).is_ok());
        let refusal = |peer, path, now| authorize(peer, path, now).unwrap_err();
        let late = refusal(Some(&ann), path, 101);
        assert_eq!(late.code(), Code::Unauthenticated);
        assert!(late.message().contains("berth certs renew"), "{late}");
        let reader = peer(Role::Reader, "bob");
        let refused = refusal(Some(&reader), path, 1);
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(
            refused.message().ends_with("that is for operator"),
            "{refused}"
        );
        assert_eq!(
            refused.get_details_error_info().unwrap().reason,
            ROLE_NOT_ALLOWED
        );
        let unknown = refusal(Some(&ann), "/berth.new.v1.NewService/New", 1);
        assert_eq!(unknown.code(), Code::Unimplemented);
        assert_eq!(refusal(None, path, 1).code(), Code::Unauthenticated);
    }
}
