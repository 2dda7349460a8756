//! Who calls: by a token from a file, or by their own word in tests.

use axum::http::HeaderMap;

use super::tokens::Tokens;

/// Carries the token.
const TOKEN: &str = "x-auth-token";
/// Carries roles where callers are believed.
const ROLES: &str = "x-roles";
/// Carries the project where callers are believed.
const PROJECT: &str = "x-project-id";
/// The longest project that is believed, in bytes.
const NAME_MAX: usize = 255;
/// The longest user that is believed: it is kept with each command, beside whose certificate was shown,
/// and both together are read back up to 256 bytes.
const USER_MAX: usize = 160;
/// Says that the caller acts for the whole system, not for a project.
const SYSTEM: &str = "openstack-system-scope";

/// Who calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Caller {
    /// The user, for the log of commands.
    pub(super) user: String,
    /// The project that the caller acts for.
    pub(super) project: Option<String>,
    /// What the caller is.
    pub(super) roles: Vec<String>,
    /// Whether the caller acts for the whole system.
    pub(super) is_system: bool,
}

impl Caller {
    /// Says whether the caller has a role; case does not matter.
    pub(super) fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|own| own.eq_ignore_ascii_case(role))
    }
}

/// How callers are known.
#[derive(Clone, Debug)]
pub(super) enum Authority {
    /// They are believed: the token is `user` or `user:project`, and the user `admin` is an
    /// administrator unless roles are given. OpenStack calls this `noauth2`.
    Believing,
    /// By tokens in a file.
    Tokens(Tokens),
}

impl Authority {
    /// Returns who calls; absent if that is not known.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let token = header(headers, TOKEN)?;
        match self {
            Self::Tokens(tokens) => tokens.find(token),
            Self::Believing => believed(token, headers),
        }
    }
}

fn believed(token: &str, headers: &HeaderMap) -> Option<Caller> {
    let (user, project) = token.split_once(':').unwrap_or((token, ""));
    if user.len() > USER_MAX || project.len() > NAME_MAX {
        return None;
    }
    let is_system = header(headers, SYSTEM).is_some_and(|scope| !scope.is_empty());
    let roles = match header(headers, ROLES) {
        Some(roles) => roles
            .split(',')
            .map(|role| role.trim().to_owned())
            .collect(),
        None if user == "admin" => vec!["admin".to_owned()],
        None => Vec::new(),
    };
    let own = if project.is_empty() { user } else { project };
    let project = header(headers, PROJECT).unwrap_or(own);
    Some(Caller {
        user: user.to_owned(),
        project: Some(project.to_owned()).filter(|_| !is_system),
        roles,
        is_system,
    })
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(pairs: &[(&'static str, &'static str)]) -> Option<Caller> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        Authority::Believing.caller(&headers)
    }

    #[test]
    fn unauthenticated_callers_are_named_by_headers() {
        assert_eq!(caller(&[]), None);
        let long: &'static str = Box::leak("x".repeat(256).into_boxed_str());
        assert_eq!(caller(&[(TOKEN, long)]), None);
        let admin = caller(&[(TOKEN, "admin")]).unwrap();
        assert!(admin.has_role("admin") && admin.project.as_deref() == Some("admin"));
        let user = caller(&[(TOKEN, "user:p"), (ROLES, "member, reader")]).unwrap();
        assert!(user.has_role("reader") && user.project.as_deref() == Some("p"));
        let demoted = caller(&[(TOKEN, "admin"), (ROLES, "member")]).unwrap();
        assert!(!demoted.has_role("admin"));
        let system = caller(&[(TOKEN, "admin"), (SYSTEM, "all")]).unwrap();
        assert!(system.is_system && system.project.is_none());
    }
}
