//! Who may do what: OpenStack's rules, in its old and its new defaults.
//!
//! Invariant: checked before body and query are read, so that an unauthorized caller learns nothing of
//! what is wrong with them.

use axum::http::StatusCode;

use super::caller::Caller;
use super::fault::Fault;

/// How callers are known and what they may do; the four ways in which OpenStack's own test suite
/// runs the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Administrators and services may do everything, as by OpenStack's old defaults.
    Default,
    /// OpenStack's new defaults: reshaping is for services, readers see their project's usages.
    SecureRbac,
    /// Every authenticated caller may do everything.
    OpenPolicy,
    /// As default, and scripts of `http://valid.example.com` may call from a browser.
    Cors,
}

/// Who may use an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Everybody, known or not.
    Anybody,
    /// Administrators and services.
    AdminOrService,
    /// Services; by the old defaults administrators too.
    Service,
    /// Administrators, services, and readers of the requested project.
    AdminServiceOrReader,
}

/// Judges a call of the endpoint with this rule.
///
/// `project` is the requested project, if any.
pub(super) fn check(
    profile: Profile,
    who: Who,
    rule: &str,
    caller: &Caller,
    project: Option<&str>,
) -> Result<(), Fault> {
    // Placement knows projects only: who acts for the whole system may do nothing here.
    if who == Who::Anybody || (!caller.is_system && allows(profile, who, caller, project)) {
        return Ok(());
    }
    let detail = format!("Policy does not allow placement:{rule} to be performed.");
    Err(Fault::new(StatusCode::FORBIDDEN, detail))
}

fn allows(profile: Profile, who: Who, caller: &Caller, project: Option<&str>) -> bool {
    let (admin, service) = (caller.has_role("admin"), caller.has_role("service"));
    let new = match who {
        Who::Anybody => true,
        Who::AdminOrService => admin || service,
        Who::Service => service,
        Who::AdminServiceOrReader => {
            let own = caller.project.is_some() && caller.project.as_deref() == project;
            admin || service || (caller.has_role("reader") && own)
        }
    };
    match profile {
        Profile::OpenPolicy => true,
        Profile::SecureRbac => new,
        Profile::Default | Profile::Cors => new || admin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each rule under each profile. Method: a table of roles and what they may.
    #[test]
    fn roles_may_what_openstack_says() {
        let caller = |roles: &str| Caller {
            user: "u".into(),
            project: Some("p".into()),
            roles: roles.split(',').map(str::to_owned).collect(),
            is_system: false,
        };
        let may = |profile, who, roles: &str| {
            check(profile, who, "rule", &caller(roles), Some("p")).is_ok()
        };
        use Profile::{Cors, Default, OpenPolicy, SecureRbac};
        use Who::{AdminOrService, AdminServiceOrReader, Service};
        for (profile, who, roles, expected) in [
            (Default, AdminOrService, "admin", true),
            (Default, AdminOrService, "SERVICE", true),
            (Default, AdminOrService, "member,reader", false),
            (Default, Service, "admin", true),
            (Cors, Service, "admin", true),
            (SecureRbac, Service, "admin", false),
            (SecureRbac, Service, "service", true),
            (SecureRbac, AdminServiceOrReader, "reader", true),
            (SecureRbac, AdminOrService, "reader", false),
            (OpenPolicy, Service, "", true),
        ] {
            assert_eq!(
                may(profile, who, roles),
                expected,
                "{profile:?} {who:?} {roles}"
            );
        }
        let reader = caller("reader");
        let other = check(SecureRbac, AdminServiceOrReader, "r", &reader, Some("q"));
        assert!(
            other.is_err() && check(SecureRbac, AdminServiceOrReader, "r", &reader, None).is_err()
        );
        let system = Caller {
            is_system: true,
            ..caller("admin")
        };
        assert!(check(Default, AdminOrService, "r", &system, None).is_err());
    }
}
